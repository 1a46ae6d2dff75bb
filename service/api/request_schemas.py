"""What may a request body look like? The nouns, and the shorter forms in which a body takes them."""

from service.api.json_schema import Schema, ref
from service.workflows.nouns import LONGEST_NAME

MODEL_FORMS = ("Model-Input", "ChangedModel", "ImportedModel")
"""Components that spell a model, beside its name."""

CLUSTER_FORMS = ("Cluster-Input", "NodesOfGpu", "ChangedCluster")
"""Components that spell a cluster, beside its name."""

PRICE_FORMS = ("Price-Input", "CataloguePrice", "CardPrice", "OwnedPrice-Input")
"""Components that spell a price."""

NAME: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": LONGEST_NAME,
    "description": "A name, alias or Hugging Face id.",
}

CONFIG: Schema = {
    "type": "object",
    "description": "The config.json.",
    "required": ["model_type"],
    "additionalProperties": True,
    "properties": {"model_type": {"type": "string", "description": "Which architecture the other keys describe."}},
}


def request_schemas(nouns: dict[str, Schema]) -> dict[str, Schema]:
    """The request bodies, and the forms in which they take a model, a cluster and a price.

    Args:
        nouns: schemas of the nouns by component name

    Returns:
        schemas by component name
    """
    limits = _one_of("What the run may take at most; null for no limit.", ref("Limits"), {"type": "null"})
    return {
        "QuestionRequest": _question("One configuration to estimate: four nouns, and a price if the cost is wanted."),
        "CheckRequest": _question("A job that wants to start: a question, and what the run may take.", limits=limits),
        "ChangedModel": _changed("A model preset with some of its fields given anew.", nouns["Model-Input"]),
        "ChangedCluster": _changed("A cluster preset, resized or changed.", nouns["Nodes"], nouns["Cluster-Input"]),
        "NodesOfGpu": _noun("So many nodes of one GPU.", ["gpu", "nodes"], nouns["Cluster-Input"], nouns["Nodes"]),
        "ImportedModel": {
            "type": "object",
            "description": "A model as its Hugging Face config.json describes it.",
            "additionalProperties": False,
            "required": ["hf_config"],
            "properties": {"hf_config": CONFIG},
        },
    }


def _question(description: str, **more: Schema) -> Schema:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "required": ["model", "recipe", "cluster"],
        "properties": {
            "model": _one_of("What is trained.", NAME, *map(ref, MODEL_FORMS)),
            "recipe": ref("Recipe-Input"),
            "layout": _one_of("How it is divided; null for the defaults.", ref("Layout-Input"), {"type": "null"}),
            "cluster": _one_of("What it runs on.", NAME, *map(ref, CLUSTER_FORMS)),
            "price": _one_of("What it costs.", *map(ref, PRICE_FORMS), {"type": "null"}),
            **more,
        },
    }


def _changed(description: str, *nouns: Schema) -> Schema:
    """A preset with fields given anew: what is left out is the preset's, so no field has a default."""
    changed = _noun(description, ["preset"], *nouns)
    fields = changed["properties"].items()
    changes = {name: {key: value for key, value in s.items() if key != "default"} for name, s in fields}
    return changed | {"properties": {"preset": NAME, **changes}}


def _noun(description: str, required: list[str], *nouns: Schema) -> Schema:
    """The fields of some nouns in one object."""
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "required": required,
        "properties": {name: schema for noun in nouns for name, schema in noun["properties"].items()},
    }


def _one_of(description: str, *options: Schema) -> Schema:
    return {"description": description, "anyOf": list(options)}
