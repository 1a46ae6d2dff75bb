"""What is one fact of the catalogue? A model, a GPU, a cluster or a price, each with where it was read and when."""

import re
from dataclasses import dataclass
from typing import Literal

from service.errors import StartupError
from service.estimator.gpu import Gpu
from service.estimator.model import Model
from service.estimator.names import PriceModel
from service.estimator.question import Cluster

Verified = Literal["yes", "partly", "no"]
PriceStat = Literal["point", "min", "max"]

NOT_IN_IDS = re.compile(r"[^a-z0-9.]+")
"""Characters that the id of a price does without: it needs no quoting in a URL."""


class UnsoundFact(StartupError):
    """A row of facts that does not load: without source or date, contradicting another, or not a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a row's numbers were read, when, and how well that was checked."""

    source: str
    """Document, repository at a commit, or page; `from memory` where there is none."""
    as_of: str
    """Date at which the numbers held or were read, as exact as it is known: 2025, 2025-03 or 2025-03-17."""
    verified: Verified
    """Whether the numbers were read in the source: yes, partly, or no (recalled)."""
    note: str = ""
    """What to know before relying on the row."""

    def __post_init__(self) -> None:
        """Refuse a fact that nobody can check."""
        if not self.source.strip():
            raise UnsoundFact("a row has no source; a number without a source does not load")
        if not _is_date(self.as_of):
            raise UnsoundFact("a row has no as_of date; write 2025, 2025-03 or 2025-03-17")
        if self.verified not in ("yes", "partly", "no"):
            raise UnsoundFact("a row's verified is none of yes, partly, no")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCounts:
    """Parameters as the model's makers print them, rounded."""

    total: int
    """In all."""
    active: int | None = None
    """Used by one token, by the makers' own definition."""
    source: str
    """Where they print it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactCounts:
    """Parameters counted in another implementation of the model: every trained number once, buffers not."""

    total: int
    """In all, multi-token-prediction depths left out."""
    active: int
    """Used by one token: all but the routed experts that it does not visit."""
    non_embedding: int
    """Without token embedding, positions and an untied head."""
    input_embedding: int
    """Token embedding."""
    position_embedding: int = 0
    """Learned position table."""
    lm_head: int = 0
    """Head matrix; 0 where tied."""
    routed_experts: int = 0
    """All routed experts."""
    shared_experts: int = 0
    """All shared experts."""
    multi_token_prediction: int = 0
    """Own weights of the multi-token-prediction depths."""
    source: str
    """What counted them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow(Provenance):
    """A model preset."""

    slug: str
    """Catalogue name, e.g. llama-3.1-8b."""
    name: str
    """Name in print."""
    family: str
    """Models published together."""
    aliases: tuple[str, ...] = ()
    """Other names that mean this model."""
    hugging_face_id: str | None = None
    """Repository of its weights."""
    release: str | None = None
    """Month of publication."""
    model: Model | None
    """Its architecture; absent where it cannot be expressed yet."""
    not_estimated: str | None = None
    """Why it cannot be estimated, where model is absent."""
    published: PublishedCounts | None = None
    """Parameters in print."""
    exact: ExactCounts | None = None
    """Parameters counted elsewhere; the ledger must equal them."""

    def __post_init__(self) -> None:
        """Refuse a row that neither describes a model nor says why."""
        Provenance.__post_init__(self)
        if (self.model is None) == (self.not_estimated is None):
            raise UnsoundFact(f"model {self.slug} needs either a model or the reason why it has none")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow(Provenance):
    """An accelerator."""

    gpu: Gpu
    """Its facts in base units."""
    name: str
    """Name in print."""
    vendor: str
    """Who makes it."""
    release_year: int
    """Year of its announcement."""
    aliases: tuple[str, ...] = ()
    """Names by nvidia-smi, Kubernetes labels, GKE labels, cloud machine types; several GPUs may share one."""
    default_for: tuple[str, ...] = ()
    """Shared aliases that mean this GPU when nothing more is said."""
    usable_basis: str
    """How the usable memory is known."""
    link_name: str
    """Fast link between the GPUs."""

    @property
    def slug(self) -> str:
        """Catalogue name."""
        return self.gpu.slug


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow(Provenance):
    """A machine that people name as a whole."""

    slug: str
    """Catalogue name, e.g. dgx-h100."""
    name: str
    """Name in print."""
    aliases: tuple[str, ...] = ()
    """Other names that mean it, e.g. the cloud's machine type."""
    cluster: Cluster
    """One such machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow(Provenance):
    """What somebody asked for a GPU-hour at some date."""

    provider: str
    """Who rents it out; `market:...` for a range over many."""
    instance_type: str
    """Machine, in the provider's spelling."""
    gpu: str
    """Catalogue name of the GPU."""
    gpu_count: int
    """GPUs in the machine."""
    region: str
    """Where, in the provider's spelling; `all` where there is one price for everywhere."""
    price_model: PriceModel
    """On what terms."""
    stat: PriceStat
    """The price itself, or an end of a range (spot prices over zones, a market survey)."""
    usd_per_gpu_hour: float
    """US dollars for one GPU for one hour."""
    usd_per_instance_hour: float
    """US dollars for the whole machine for one hour."""

    @property
    def id(self) -> str:
        """What tells this price from every other, e.g. aws-p5.48xlarge-h100-sxm5-80gb-us-east-1-spot-min-2026."""
        told = (self.provider, self.instance_type, self.gpu, self.region, self.price_model, self.stat, self.as_of)
        return NOT_IN_IDS.sub("-", "-".join(told).lower()).strip("-")


def _is_date(text: str) -> bool:
    parts = text.split("-")
    return all(part.isdigit() for part in parts) and [len(part) for part in parts] in ([4], [4, 2], [4, 2, 2])
