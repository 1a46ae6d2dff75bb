"""What may a request body look like? The nouns, and the shorter forms in which a body takes them."""

from service.answers.checks import MOST_FREE
from service.answers.diagnoses import LONGEST_MESSAGE
from service.api.json_schema import NULL, Schema, described, ref, undefaulted
from service.validation.specs import LONGEST_NAME

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
    return {
        "QuestionRequest": _question("One configuration to estimate: four nouns, and a price if the cost is wanted."),
        "CheckRequest": _check(nouns["Waiting"]["properties"]),
        "DiagnoseRequest": _diagnose(),
        "SlurmCheckRequest": _slurm(nouns["SlurmJob"]),
        "SiteQuestion": _site(),
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
            "recipe": described("How it is trained.", ref("Recipe-Input")),
            "layout": _one_of("How it is divided; null for the defaults.", ref("Layout-Input"), NULL),
            "cluster": _cluster("What it runs on."),
            "price": _one_of("What it costs.", *map(ref, PRICE_FORMS), NULL),
            **more,
        },
    }


def _check(waiting: Schema) -> Schema:
    """A question, or a launcher's words that stand for parts of it: what is missing in the end is refused."""
    question = _question(
        "A job that wants to start: a question, in its own words or its launcher's, and what it may take.",
        recipe=described("How it is trained, as far as its launcher does not say it.", ref("RecipeFields")),
        limits=_one_of("What the run may take at most; null for no limit.", ref("Limits"), NULL),
        launch=_one_of(
            "The launcher's own words, which say of model, recipe and layout what the question leaves out.",
            ref("Launch"),
            NULL,
        ),
        free_pool={
            "description": "Clusters of GPUs that are free; the job is judged on the first where cluster is absent.",
            "anyOf": [{"type": "array", "maxItems": MOST_FREE, "items": _cluster("So many free GPUs.")}, NULL],
        },
        deadline_seconds=waiting["deadline_seconds"],
    )
    return {name: value for name, value in question.items() if name != "required"}


def _diagnose() -> Schema:
    stats: Schema = {"type": "object", "additionalProperties": {"type": "number"}}
    said = {"type": "string", "maxLength": LONGEST_MESSAGE}
    return _question(
        "A configuration that ran out of memory, and what was said of it: a message, statistics, or both.",
        message=_one_of("The message, with its traceback, or torch.cuda.memory_summary().", said, NULL),
        memory_stats=_one_of("What torch.cuda.memory_stats() gave.", stats, NULL),
    )


def _slurm(job: Schema) -> Schema:
    said = described("Parts of the question that a site says of every job.", ref("SiteQuestion"))
    return {**job, "properties": {**job["properties"], "question": said}}


def _site() -> Schema:
    """Fields of any part: a site names its GPU and its price, and the job the rest."""
    whole = _question(
        "What holds for every job of a site.",
        recipe=described("How they train, as far as all agree.", ref("RecipeFields")),
        cluster=_one_of("What the jobs run on; the job says how many GPUs.", NAME, ref("ClusterFields")),
        limits=described("What a run may take at most.", ref("Limits")),
    )
    return {name: value for name, value in whole.items() if name != "required"}


def _cluster(description: str) -> Schema:
    return _one_of(description, NAME, *map(ref, CLUSTER_FORMS))


def _changed(description: str, *nouns: Schema) -> Schema:
    """A preset with fields given anew: what is left out is the preset's, so no field has a default."""
    changed = _noun(description, ["preset"], *nouns)
    fields = changed["properties"].items()
    changes = {name: undefaulted(schema) for name, schema in fields}
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
