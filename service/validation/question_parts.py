"""Parts of a question, and the forms in which a request may spell each of them.

The forms describe the parts in the contract; `read_question` validates them together with the catalogue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from service.estimator.question import DESCRIBED, Cluster, Layout, Model, Name, OwnedPrice, Price, Recipe, Strict
from service.validation.clusters import NodeCount, Nodes
from service.validation.forms import DescribedAs, Patch, Variant, requiring
from service.validation.prices import CardPrice, CataloguePrice

QUESTION_SPECS: Sequence[tuple[str, type]] = (
    ("model", Model),
    ("recipe", Recipe),
    ("layout", Layout),
    ("cluster", Cluster),
    ("cluster", Nodes),
    ("price", Price),
    ("price", CataloguePrice),
    ("price", CardPrice),
    ("price", OwnedPrice),
)
"""Part of a question, and the dataclass that defines it."""

PARTS = tuple(dict.fromkeys(part for part, _ in QUESTION_SPECS))
"""The parts of a question."""

RowName = Annotated[Name, Field(description="A name, alias or Hugging Face id.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class HfConfig:
    """The config.json."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED | {"extra": "allow"}

    model_type: str
    """Which architecture the other keys describe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel(Strict):
    """A model as its Hugging Face config.json describes it."""

    hf_config: HfConfig
    """The config.json."""


_PRESET = {"preset": RowName}
ChangedModel = Annotated[
    Any,
    Variant(Model, "ChangedModel", "A model preset with some of its fields given anew.", ("preset",), more=_PRESET),
]
_NODES = Annotated[NodeCount, Field(description="Nodes in all; gpus is nodes x gpus_per_node.")]
_SIZED_PRESET = _PRESET | {"nodes": _NODES}
ChangedCluster = Annotated[
    Any,
    Variant(Cluster, "ChangedCluster", "A cluster preset, resized or changed.", ("preset",), more=_SIZED_PRESET),
]
NodesOfGpu = Annotated[
    Any,
    Variant(Cluster, "NodesOfGpu", "So many nodes of one GPU.", required=("gpu", "nodes"), more={"nodes": _NODES}),
]

ModelFields = Annotated[Any, Variant(Model, "ModelFields", "Some fields of a model.")]
RecipeFields = Annotated[Any, Variant(Recipe, "RecipeFields", "Some fields of a recipe.")]
ClusterFields = Annotated[Any, Variant(Cluster, "ClusterFields", "Some fields of a cluster.", more=_SIZED_PRESET)]

ModelForm = Annotated[Any, DescribedAs(RowName | Model | ChangedModel | ImportedModel)]
RecipeForm = Annotated[Any, DescribedAs(Recipe)]
LayoutForm = Annotated[Any, DescribedAs(Layout | None)]
ClusterForm = Annotated[Any, DescribedAs(RowName | Cluster | NodesOfGpu | ChangedCluster)]
PriceForm = Annotated[Any, DescribedAs(Price | CataloguePrice | CardPrice | OwnedPrice | None)]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRequest:
    """One configuration to estimate: four objects, and a price if you want the cost."""

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring("model", "recipe", "cluster")

    model: ModelForm = None
    """What is trained."""
    recipe: RecipeForm = None
    """How it is trained."""
    layout: LayoutForm = None
    """How it is divided; null for the defaults."""
    cluster: ClusterForm = None
    """What it runs on."""
    price: PriceForm = None
    """What it costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuestion(QuestionRequest):
    """What is trained and how; what it runs on and what that costs may be stated elsewhere."""

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring("model", "recipe")


RecipePatch = Annotated[Any, Patch("RecipePatch", (Recipe,))]
LayoutPatch = Annotated[Any, Patch("LayoutPatch", (Layout,))]
_CONFIG = Annotated[dict[str, Any], Field(description="The config.json.")]
_MODEL_PATCH = Patch("ModelPatch", (Model,), more=_PRESET | {"hf_config": _CONFIG})
_CLUSTER_PATCH = Patch("ClusterPatch", (Cluster,), more=_SIZED_PRESET)
_PRICE_PATCH = Patch("PricePatch", (Price, CataloguePrice, CardPrice, OwnedPrice))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPatch(Strict):
    """What changes in a question, as an RFC 7396 merge patch: null takes a field away."""

    model: Annotated[Any, DescribedAs(RowName | Annotated[Any, _MODEL_PATCH] | None)] = None
    """What changes in the model."""
    recipe: Annotated[Any, DescribedAs(RecipePatch | None)] = None
    """What changes in the recipe."""
    layout: Annotated[Any, DescribedAs(LayoutPatch | None)] = None
    """What changes in the layout."""
    cluster: Annotated[Any, DescribedAs(RowName | Annotated[Any, _CLUSTER_PATCH] | None)] = None
    """What changes in the cluster."""
    price: Annotated[Any, DescribedAs(Annotated[Any, _PRICE_PATCH] | None)] = None
    """What changes in the price."""
