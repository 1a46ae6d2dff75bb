"""Where does the contract take or give only some of a question? Patches, parts of nouns, and fields by dotted name."""

from collections.abc import Iterator, Mapping

from service.api.json_schema import NULL, Schema, bare, described, nullable, object_schema, ref, undefaulted
from service.api.request_schemas import CLUSTER_FORMS, CONFIG, NAME, PRICE_FORMS
from service.workflows.solve_border import CHANGING

Schemas = Mapping[str, Schema]

INPUT = "-Input"
"""How the name of a noun ends where a request spells it."""

QUESTION = "QuestionRequest"
"""Component of what POST /v1/estimates takes."""

NAMED = {"preset": NAME}
"""A model and a cluster may be a preset with changes."""


def partial_schemas(spelled: Schemas) -> dict[str, Schema]:
    """Some fields of a question, and what changes it.

    Args:
        spelled: schemas of the nouns, of the forms in which a request takes them, and of a question, by component name

    Returns:
        JSON schemas by component name
    """
    some = {
        "ModelFields": _some("Some fields of a model.", _fields(spelled, "Model-Input")),
        "RecipeFields": _some("Some fields of a recipe.", _fields(spelled, "Recipe-Input")),
        "ClusterFields": _some("Some fields of a cluster.", NAMED | _fields(spelled, *CLUSTER_FORMS)),
    }
    job = {**spelled[QUESTION], "required": ["model", "recipe"]}
    told = {"description": "What is trained and how; what it runs on and what that costs may be said elsewhere."}
    solved = object_schema("Fields that a solution changes, by dotted name.", [], dict(_changes(spelled)))
    return {**some, "JobQuestion": job | told, "SolvedFields": solved, **_Patches(spelled).made()}


def questions_inside(spelled: Schemas) -> Mapping[str, Schema]:
    """Fields of answers that hold some of a question, in the types of the question.

    Args:
        spelled: schemas of answers by component name

    Returns:
        schemas by field of each component
    """
    types: Mapping[str, Schema] = {
        "Alternative": {"patch": ref("QuestionPatch")},
        "Supposition": {"patch": ref("QuestionPatch")},
        "Imported": {
            "model": {"anyOf": [NAME, ref("ModelFields"), NULL]},
            "recipe": ref("RecipeFields"),
            "layout": ref("Layout-Input"),
        },
        "Solution": {"changes": ref("SolvedFields")},
    }
    return {
        name: {field: described(spelled[name]["properties"][field]["description"], one) for field, one in inner.items()}
        for name, inner in types.items()
    }


def _changes(spelled: Schemas) -> Iterator[tuple[str, Schema]]:
    """Every field that a solution may change, by its dotted name, as an answer holds it."""
    for part in CHANGING:
        for name, schema in spelled[f"{part.capitalize()}-Output"]["properties"].items():
            yield f"{part}.{name}", schema


def dotted(spelled: Schemas, path: tuple[str, ...]) -> Schema:
    """What a field of a question takes.

    Args:
        spelled: schemas of the nouns, of the forms in which a request takes them, and of a question, by component name
        path: steps to the field

    Returns:
        its schema
    """
    found: list[Schema] = [spelled[QUESTION]]
    for step in path:
        inside = [one["properties"][step] for one in _objects(spelled, found) if step in one["properties"]]
        found = list({repr(bare(one)): one for one in inside}.values())
    options = [bare(option) for schema in found for option in schema.get("anyOf", (schema,))]
    different = list({repr(option): option for option in options}.values())
    return {"description": found[0].get("description", ""), "anyOf": different}


def _objects(spelled: Schemas, schemas: list[Schema]) -> Iterator[Schema]:
    """The objects that some schemas allow."""
    for schema in schemas:
        for option in schema.get("anyOf", (schema,)):
            held = spelled[option["$ref"].rpartition("/")[2]] if "$ref" in option else option
            if "properties" in held:
                yield held


def _fields(spelled: Schemas, *forms: str) -> Schema:
    """The fields of every form of a noun."""
    fields: Schema = {}
    for form in forms:
        fields = spelled[form]["properties"] | fields
    return fields


def _some(description: str, fields: Schema) -> Schema:
    return object_schema(description, [], {name: undefaulted(schema) for name, schema in fields.items()})


class _Patches:
    """Merge patches of a question and of all that is inside it: every field may be given alone, null takes one away.

    Args:
        spelled: schemas of the nouns and of the forms in which a request takes them, by component name
    """

    def __init__(self, spelled: Schemas) -> None:
        self._spelled = spelled
        self._made: dict[str, Schema] = {}

    def made(self) -> dict[str, Schema]:
        """The patches by component name."""
        config = {"hf_config": {key: value for key, value in CONFIG.items() if key != "required"}}
        parts = {
            "model": self._of("Model", NAMED | config | _fields(self._spelled, "Model-Input")),
            "recipe": self._of("Recipe", _fields(self._spelled, "Recipe-Input")),
            "layout": self._of("Layout", _fields(self._spelled, "Layout-Input")),
            "cluster": self._of("Cluster", NAMED | _fields(self._spelled, *CLUSTER_FORMS)),
            "price": self._of("Price", _fields(self._spelled, *PRICE_FORMS)),
        }
        named = {"model", "cluster"}
        properties = {
            part: {"description": f"What changes in the {part}.", "anyOf": [NAME, patch] if part in named else [patch]}
            for part, patch in parts.items()
        }
        meaning = "What changes in a question, as an RFC 7396 merge patch: null takes a field away."
        whole = {part: nullable(schema) for part, schema in properties.items()}
        return {"QuestionPatch": object_schema(meaning, [], whole), **self._made}

    def _of(self, name: str, fields: Schema) -> Schema:
        patch = f"{name}Patch"
        if patch not in self._made:
            self._made[patch] = {}  # named before its fields are read, which may speak of it
            inner = {field: nullable(self._inside(undefaulted(schema))) for field, schema in fields.items()}
            self._made[patch] = object_schema(
                f"What changes in the {name.lower()}; null takes a field away.", [], inner
            )
        return ref(patch)

    def _inside(self, schema: Schema) -> Schema:
        """The schema of a field, an object in it as a patch of that object."""
        if "anyOf" in schema:
            return schema | {"anyOf": [self._inside(option) for option in schema["anyOf"]]}
        component = schema.get("$ref", "").rpartition("/")[2]
        noun = self._spelled.get(component, {})
        if "properties" not in noun:
            return schema
        kept = {key: value for key, value in schema.items() if key != "$ref"}
        return self._of(component.removesuffix(INPUT), noun["properties"]) | kept
