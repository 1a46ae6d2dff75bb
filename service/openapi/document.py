"""The OpenAPI document: FastAPI's, with named components, compact types, problems, and what operations share."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from service.answers.accuracy import HeldOutQuantity
from service.answers.checks import CheckVerdict
from service.answers.launch_checks import LaunchStatus, LaunchVerdict, Where
from service.answers.names import COMPONENT, EACH, INLINED, OWN_DESCRIPTION, WIRE_NAMES
from service.answers.plans import Objective, UnknownName
from service.answers.workers import RunnerName
from service.api.access.authorization import ISSUER_AWAY, NO_KEY
from service.api.caching import NEEDED, REPLAYED, REUSED
from service.api.compute import NO_SLOT, caller_excess, process_lost, queue_full
from service.api.cross_site import CROSS_SITE, UNKNOWN_NAME
from service.api.errors import KINDS, LEAVING, MEDIA_TYPE, problem_response
from service.api.inputs import REV
from service.api.limits.http_limits import TOO_MUCH
from service.api.limits.rate_limits import Allowance, too_many_requests
from service.api.openapi import ETAG, JSON, KEY, MERGE_PATCH, SCOPE, Schema, ref
from service.api.request_context import deprecation_of
from service.api.server import ONE_HOST
from service.calibration.records import DeviceKind, ProbeName, ProbeStatus
from service.catalogue.rows import PriceStat, RegionKind, Scope, Verified
from service.errors import MOST_PROBLEMS
from service.estimator import question
from service.estimator.answer import Basis, Phase, Verdict
from service.estimator.memory.memory import Moment, StepName
from service.features.checks.schemas import FormatName
from service.features.compare.schemas import Pairing
from service.features.launch_checks.targets import NO_WORKER_FIX
from service.features.workers.leases import NOT_HELD
from service.jobs.leases import FINISHED
from service.source_tree import ROOT, write_generated
from service.validation.forms import NULL
from service.validation.question_parts import ModelFields

PARTS: Mapping[str, Any] = json.loads(Path(__file__).with_name("parts.json").read_text(encoding="utf-8"))
"""Parts of the document that are plain data: tags, security schemes, headers, and the schemas of problems."""

RENAMED: Mapping[str, str] = PARTS["renamed"]
"""Published names of classes whose own name is ambiguous."""

INPUT, OUTPUT = "-Input", "-Output"
"""Suffixes of pydantic for a dataclass in a request, and for the same in an answer, with every default filled."""

CHOICES: Mapping[str, tuple[str, Any]] = {
    "AttentionGate": ("A gate on what attention finds.", question.AttentionGate),
    "AttentionKernel": ("How attention is computed.", question.AttentionName),
    "Basis": ("What a number rests on.", Basis),
    "Batching": ("How documents fill sequences.", question.BatchingName),
    "CheckVerdict": ("May a job start?", CheckVerdict),
    "CheckpointRule": ("How the time between checkpoints is found.", question.IntervalRule),
    "ContextMethod": ("How attention is divided over a sequence.", question.ContextMethod),
    "CrossEntropy": ("How the loss is computed.", question.CrossEntropyName),
    "ExpertDispatcher": ("How tokens get to their experts.", question.DispatcherName),
    "HeldOutQuantity": ("What a point of the scoreboard measures.", HeldOutQuantity),
    "FloatDtype": ("A floating-point type of gradients or master weights.", question.GradientDtype),
    "DeviceKind": ("What was measured on.", DeviceKind),
    "HeldUntil": ("How long a training loop holds the logits of a micro-batch.", question.HeldUntil),
    "LaunchFormat": ("A kind of file that says how a job trains.", FormatName),
    "LaunchStatus": ("Where a launch check is.", LaunchStatus),
    "LaunchVerdict": ("May a job start, after what was measured?", LaunchVerdict),
    "LayerType": ("How a layer mixes tokens.", question.LayerType),
    "MlpType": ("How a layer mixes channels.", question.MlpType),
    "ModelPart": ("A part of a model.", question.PartName),
    "MomentDtype": ("Type of the optimizer's moments.", question.MomentDtype),
    "Normalization": ("How a layer is normalised.", question.Normalization),
    "Objective": ("What plans are ranked by.", Objective),
    "Offload": ("What is kept in the host's memory.", question.OffloadName),
    "OnWorkers": ("On which workers a launch check may run.", Where),
    "Optimizer": ("What turns gradients into updates.", question.OptimizerName),
    "Pairing": ("How clusters and prices are paired.", Pairing),
    "Phase": ("The part of a step in which memory peaks.", Phase),
    "Precision": ("In which numbers a model trains.", question.PrecisionName),
    "PriceModel": ("On what terms a GPU is rented.", question.PriceModel),
    "PriceStat": ("Which of several prices a row holds.", PriceStat),
    "ProbeName": ("A thing that a worker can measure.", ProbeName),
    "ProbeStatus": ("Where a probe is.", ProbeStatus),
    "ProblemCode": ("A kind of problem, stable.", KINDS),
    "QkNorm": ("How queries and keys are normalised.", question.QkNorm),
    "Quantization": ("In which form frozen matrices are kept.", question.QuantizationName),
    "RankOrder": ("Which ranks are neighbours.", question.RankOrder),
    "RecomputeGranularity": ("How much is computed again.", question.RecomputeName),
    "RecomputeMethod": ("Which layers compute again.", question.RecomputeMethod),
    "RecomputeModule": ("A module that is computed again.", question.RecomputeModule),
    "RegionKind": ("What a region is.", RegionKind),
    "RunnerName": ("Where a worker runs what it is given.", RunnerName),
    "Schedule": ("The order of a pipeline's passes.", question.ScheduleName),
    "SoftwareImplementation": ("Whose operations training software runs.", question.ImplementationName),
    "StackName": ("Training software.", question.StackName),
    "TargetMatrix": ("A matrix that gets an adapter.", question.MatrixName),
    "TimelineMoment": ("A moment of a step.", Moment),
    "TimelineStep": ("The first step, or a later one.", StepName),
    "ToolName": ("Another tool that estimates memory.", question.ToolName),
    "TrainingMethodName": ("Which parameters are trained.", question.MethodName),
    "UnknownField": ("A field that can be solved for.", UnknownName),
    "Verdict": ("Whether the job fits.", Verdict),
    "RowScope": ("Whose answers may rest on a row or a calibration: its owner's, or everyone's.", Scope),
    "Verified": ("Whether a row was checked against its source.", Verified),
    "ZeroStage": ("What is sharded over replicas.", question.ZeroStage),
}

EXAMPLES = {"example", "examples"}
"""Keys below which nothing is a schema."""


def published_name(name: str) -> str:
    """What a component is called in the contract.

    >>> [published_name(name) for name in ("Layout-Input", "Layout-Output", "service__estimator__question__Versions")]
    ['Layout', 'ResolvedLayout', 'AnswerVersions']
    """
    own = name.rpartition("__")[2]
    kind = own.removesuffix(INPUT).removesuffix(OUTPUT)
    renamed = RENAMED.get(own) or RENAMED.get(kind, kind)
    return f"Resolved{renamed}" if own.endswith(OUTPUT) and own not in RENAMED else renamed


def published(document: Any) -> Any:
    """A part of the contract in which every component has its published name, and every known choice is one."""
    if isinstance(document, list):
        return [published(item) for item in document]
    if not isinstance(document, dict):
        return document
    fields = {key: value if key in EXAMPLES else published(value) for key, value in document.items()}
    values = fields.get("enum")
    name = _names_of_choices().get(tuple(values)) if isinstance(values, list) else None
    if name is not None:
        others = {key: value for key, value in fields.items() if key not in {"enum", "type"}}
        return others | {"$ref": f"#/components/schemas/{name}"}
    if isinstance(fields.get("$ref"), str):
        path, _, component = fields["$ref"].rpartition("/")
        return fields | ({"$ref": f"{path}/{published_name(component)}"} if path.endswith("/schemas") else {})
    return fields


def published_schemas(schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """The component schemas under their published names, and those of the choices."""
    renamed = {published_name(name): published(schema) for name, schema in schemas.items()}
    return dict(sorted((renamed | {name: _schema(name) for name in CHOICES}).items()))


def _schema(name: str) -> Schema:
    meaning, _ = CHOICES[name]
    values = _values(name)
    kind = "integer" if isinstance(values[0], int) else "string"
    return {"type": kind, "description": meaning, "enum": values}


def _values(name: str) -> list[Any]:
    kind = CHOICES[name][1]
    return list(kind if isinstance(kind, Mapping) else get_args(kind))


@cache
def _names_of_choices() -> Mapping[tuple[Any, ...], str]:
    return {tuple(_values(name)): name for name in CHOICES}


DEFAULT = "Problem"
"""The response for every status that an operation does not name."""

RESPONSES: Mapping[str, str] = {
    "404": "NotFound",
    "409": "Conflict",
    "412": "PreconditionFailed",
    "422": "UnprocessableContent",
    "428": "PreconditionRequired",
    "503": "ServiceUnavailable",
    "4XX": DEFAULT,
    "default": DEFAULT,
}
"""Component of the response for each status that operations name, called as HTTP calls it."""

LIMIT_HEADERS: Mapping[str, Schema] = PARTS["headers"]

REQUEST_ID = "5d2f0c0a6c0f4b5e9a3f1f6f0c8e7a21"

DETAILS: Mapping[str, str] = {
    **PARTS["details"],
    "bad_request": ONE_HOST,
    "unauthorized": NO_KEY,
    "foreign_page": CROSS_SITE,
    "unknown_host": UNKNOWN_NAME,
    "key_reused": REUSED,
    "precondition_required": NEEDED,
    "too_many_computations": caller_excess(16, 8).detail,
    "rate_limited": too_many_requests(Allowance(0, 20.0, 1.0)).detail,
    "too_many_bodies": TOO_MUCH,
    "computing_full": queue_full(60).detail,
    "computation_lost": process_lost(1).detail,
    "issuer_away": ISSUER_AWAY,
    "busy": NO_SLOT,
    "draining": LEAVING,
}
"""What each kind may say of one time that it happened."""

FIELDS: Mapping[str, Mapping[str, str]] = {
    **PARTS["fieldDetails"],
    "no_matching_worker": PARTS["fieldDetails"]["no_matching_worker"] | {"fix": NO_WORKER_FIX},
    **{
        one.code: {"pointer": f"/{one.field}", "code": one.code, "message": one.message, "fix": one.fix}
        for one in (FINISHED, NOT_HELD)
    },
}
"""The same of kinds that name a field."""


def problem_schemas() -> dict[str, Schema]:
    """The schema of a problem document, and of each thing to mend in it."""
    problem, field = PARTS["schemas"]["Problem"], PARTS["schemas"]["FieldProblem"]
    code, errors = problem["properties"]["code"], problem["properties"]["errors"]
    filled = {"code": code | {"enum": list(KINDS)}, "errors": errors | {"maxItems": MOST_PROBLEMS}}
    return {"Problem": problem | {"properties": problem["properties"] | filled}, "FieldProblem": field}


def problem_example(code: str) -> dict[str, Any]:
    """A problem document of one kind, as the service sends it."""
    fields = [] if code in DETAILS else [dict(FIELDS[code])]
    detail = DETAILS[code] if code in DETAILS else f"{fields[0]['message']}; {fields[0]['fix']}"
    response = problem_response({"state": {"request_id": REQUEST_ID}}, code, detail, errors=fields)
    document: dict[str, Any] = json.loads(bytes(response.body))
    return document


def _problem_response(status: str) -> Schema:
    """The response of a status, with an example of every kind of problem that has it."""
    own = [code for code, kind in KINDS.items() if str(kind.status) == status]
    codes = own or [code for code, kind in KINDS.items() if str(kind.status) not in RESPONSES]
    titles = [KINDS[code].title for code in codes]
    return {
        "description": f"{'; or '.join(titles)}." if own else EVERY_OTHER,
        **({"headers": PARTS["problemHeaders"]} if status in {"503", "default"} else {}),
        "content": {
            MEDIA_TYPE: {
                "schema": ref("Problem"),
                "examples": {code: {"summary": KINDS[code].title, "value": problem_example(code)} for code in codes},
            }
        },
    }


EVERY_OTHER = (
    "Whatever else goes wrong, under its own status: 400 not JSON, 401 no valid key, 403 a key without this scope, 408 "
    "a body that arrives too late, 413 too large, 415 another media type, 429 too many requests."
)

FASTAPI_SCHEMAS = {"HTTPValidationError", "ValidationError"}
"""FastAPI's own error form, which this service never sends."""

NAMED_BY_ANSWERS: tuple[Any, ...] = (ModelFields,)
"""Parts of a question that answers refer to by name, and no request defines."""

NAMED_PLACES = ("properties", "schemas")
"""Keys below which names stand, not keywords."""

REFERENCE = "#/components/schemas/"


def tidied(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Schema]]:
    """The paths and the component schemas of a document that FastAPI generated."""
    generated = document.get("components", {}).get("schemas", {})
    schemas = {name: without_titles(one) for name, one in generated.items() if name not in FASTAPI_SCHEMAS}
    hoisted: dict[str, Schema] = {}
    paths = without_titles(document["paths"])
    for operation in (one for methods in paths.values() for one in methods.values() if "parameters" in one):
        operation["parameters"] = [each for one in operation["parameters"] for each in _spread(one)]
    for kind in NAMED_BY_ANSWERS:
        with_references(without_titles(TypeAdapter(kind).json_schema(ref_template=f"{REFERENCE}{{model}}")), hoisted)
    paths = with_references(paths, hoisted)
    schemas = {name: with_references(one, hoisted) for name, one in schemas.items()}
    answered = answered_by(paths, schemas | hoisted)
    complete = {name: _complete(one) if name in answered else one for name, one in schemas.items()}
    return paths, {name: _as_on_the_wire(one) for name, one in (complete | hoisted).items()}


def without_titles(value: Any) -> Any:
    """A schema without titles, which repeat the names of fields."""
    if isinstance(value, list):
        return [without_titles(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # FastAPI gives the bounds of integers as doubles
    if not isinstance(value, Mapping):
        return value
    return {
        key: {name: without_titles(one) for name, one in item.items()} if key in NAMED_PLACES else without_titles(item)
        for key, item in value.items()
        if not (key == "title" and isinstance(item, str))
    }


def _spread(parameter: Schema) -> list[Schema]:
    """The parameters that one describes together, each by itself, for clients that serialise no objects."""
    schema = parameter.get("schema", {})
    if EACH not in schema:
        return [parameter]
    return [{"name": name, "in": "query", "schema": field} for name, field in schema["properties"].items()]


def with_references(value: Any, hoisted: dict[str, Schema]) -> Any:
    """A part of the document with references in place of the schemas that name their component."""
    if isinstance(value, list):
        return [with_references(item, hoisted) for item in value]
    if not isinstance(value, Mapping):
        return value
    inner = {
        key: with_references(item, hoisted) for key, item in value.items() if key not in (COMPONENT, OWN_DESCRIPTION)
    }
    name, is_reference = value.get(COMPONENT), inner.keys() <= {"description"}
    if not isinstance(name, str):
        return inner
    own = value.get(OWN_DESCRIPTION, None if is_reference else inner.get("description"))
    if not is_reference:
        hoisted.setdefault(name, inner | ({"description": own} if own else {}))
    use = {"description": inner["description"]} if inner.get("description", own) != own else {}
    return {"$ref": f"{REFERENCE}{name}", **use}


def answered_by(paths: Mapping[str, Any], schemas: Mapping[str, Schema]) -> set[str]:
    """Components that answers reach and requests do not."""
    operations = [operation for methods in paths.values() for operation in methods.values()]
    asked = reached([(one.get("requestBody"), one.get("parameters")) for one in operations], schemas)
    return reached([one["responses"] for one in operations], schemas) - asked


def reached(parts: Iterable[Any], schemas: Mapping[str, Schema]) -> set[str]:
    """Names of the component schemas that parts of the document refer to, one through another."""
    reached: set[str] = set()
    new = set(_references(list(parts)))
    while new:
        reached |= new
        new = {name for one in new for name in _references(schemas.get(one))} - reached
    return reached


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _references(item)
    elif isinstance(value, Mapping):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith(REFERENCE):
            yield reference.removeprefix(REFERENCE)
        for item in value.values():
            yield from _references(item)


def _complete(schema: Schema) -> Schema:
    """The schema of an answer: every field is always there, so none has a default."""
    if "properties" not in schema:
        return schema
    fields = {
        name: {key: item for key, item in one.items() if key != "default"} for name, one in schema["properties"].items()
    }
    return schema | {"required": list(fields), "properties": fields}


def _as_on_the_wire(schema: Schema) -> Schema:
    """A schema with the names and number types of JSON: FLOP counts are doubles."""
    if "properties" not in schema:
        return schema
    inlined = {name: one for name, one in schema["properties"].items() if INLINED in one}
    described = {name: _default_in_words(_as_double(name, one)) for name, one in schema["properties"].items()}
    fields = {WIRE_NAMES.get(name, name): one for name, one in described.items()}
    fields = {name: one for name, one in fields.items() if name not in inlined}
    required = [WIRE_NAMES.get(name, name) for name in schema.get("required", ()) if name not in inlined]
    whole = {**schema, "properties": fields, **({"required": required} if required else {})}
    for one in inlined.values():
        whole["additionalProperties"] = one["additionalProperties"]
    return whole


def _as_double(name: str, schema: Schema) -> Schema:
    if not name.endswith("_flop"):
        return schema
    options = [{"type": "number"} if one.get("type") == "integer" else one for one in schema.get("anyOf", ())]
    return schema | ({"anyOf": options} if options else {"type": "number"})


def _default_in_words(field: Schema) -> Schema:
    """Move a default into the description: generated clients treat a field with a `default` as always present."""
    default = field.get("default")
    schema = {key: value for key, value in field.items() if key != "default"}
    if default in (None, [], "") or isinstance(default, Mapping):
        return schema
    words = default if isinstance(default, str) else json.dumps(default)
    return schema | {"description": f"{field.get('description', '')} Default: {words}.".lstrip()}


def compacted(value: Any) -> Any:
    """A part of the document in which a type or null is one list of types."""
    if isinstance(value, list):
        return [compacted(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {key: item if key in EXAMPLES else compacted(item) for key, item in value.items()}
    options = inner.get("anyOf")
    if not isinstance(options, list):
        return inner
    others = {key: item for key, item in inner.items() if key != "anyOf"}
    if all(option.keys() == {"type"} and isinstance(option["type"], str) for option in options):
        return others | {"type": [option["type"] for option in options]}
    values = [option for option in options if option != NULL]
    if len(values) == 1 < len(options) and isinstance(values[0].get("type"), str) and not values[0].keys() & VALUES:
        return others | values[0] | {"type": [values[0]["type"], "null"]}
    return inner


VALUES = {"enum", "const"}
"""Keywords that list values, and so exclude null."""

BOUNDS = frozenset({
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
})  # fmt: skip
"""Keywords that bound what callers may send; answers keep to them anyway."""


def without_bounds(value: Any) -> Any:
    """The schema of an answer without the bounds of its values."""
    if isinstance(value, list):
        return [without_bounds(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: {name: without_bounds(one) for name, one in item.items()} if key == "properties" else without_bounds(item)
        for key, item in value.items()
        if key == "properties" or key not in BOUNDS
    }


COMPONENTS = "#/components/"


def _share(places: list[Any], kind: str, shared: dict[str, Schema]) -> None:
    every = [(place, key) for place in places for key in (place if isinstance(place, dict) else range(len(place)))]
    used = Counter(_text(place[key]) for place, key in every)
    names = {_text(part): name for name, part in shared.items()}
    for place, key in every:
        text = _text(place[key])
        if "$ref" in place[key] or used[text] == 1:
            continue
        if text not in names:
            name = _name_of(place[key])
            names[text] = next(one for one in (name, *map(f"{name}{{}}".format, range(2, 100))) if one not in shared)
            shared[names[text]] = place[key]
        place[key] = {"$ref": f"{COMPONENTS}{kind}/{names[text]}"}


def _text(part: Schema) -> str:
    return json.dumps(part, sort_keys=True)


def _name_of(part: Schema) -> str:
    """Name of a parameter; of a response, the type of its answer."""
    if "name" in part:
        name: str = part["name"]
        return name
    for media_type, content in part.get("content", {}).items():
        reference = content["schema"].get("$ref")
        subtype = media_type.rpartition("/")[2].rpartition(".")[2].rpartition("-")[2].capitalize()
        return reference.rpartition("/")[2] if reference else f"{subtype}File"
    return "Done"


RECORDED = Path(__file__).parents[1] / "web" / "examples"
"""Examples of answers, recorded from the service: one file a type, or an operation that answers a text."""

EXAMPLE_ADDRESSES = "x-examples"
"""Extension of a media type: addresses of examples. Generators resolve OpenAPI's `externalValue` as a local file."""


def add_examples(operation: Schema) -> None:
    """Name the file with an example of each successful response of an operation."""
    for media_type, content in successes(operation):
        if media_type == JSON:
            names = [name for name in types_of(content["schema"]) if (RECORDED / f"{name}.json").exists()]
            content[EXAMPLE_ADDRESSES] = [f"/web/examples/{name}.json" for name in names]
        else:
            text = RECORDED / f"{operation['operationId']}.txt"
            if text.exists():
                content["example"] = text.read_text(encoding="utf-8")


def successes(operation: Schema) -> Iterator[tuple[str, Schema]]:
    """The content of every successful response of an operation."""
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            yield from response.get("content", {}).items()


def types_of(schema: Schema) -> list[str]:
    return [option["$ref"].rpartition("/")[2] for option in schema.get("anyOf", (schema,)) if "$ref" in option]


COMMITTED = ROOT / "openapi" / "openapi.json"

DESCRIPTION = """What it takes to train a model: bytes per GPU, FLOP, seconds per step, GPU-hours, money and energy.

Ask with four objects (model, recipe, layout, cluster) and get one answer. Units are suffixes of the names; null means
"not asked or not known", never zero. Errors are RFC 9457 problem documents that name the field and the fix."""

TAGS: Mapping[str, str] = PARTS["tags"]

CHANGED = ("calibrations", "measurements", "catalogue", "scenarios", "sweeps")
"""Families of what callers change; a change of an older version is refused."""

CONTRADICTED = frozenset({
    "createLaunchCheck", "createSweep", "promoteCalibration", "retireCalibration", "rollBackCalibration",
})  # fmt: skip
"""Operations that what is stored may contradict."""

STORED = (
    "/v1/scenarios", "/v1/sweeps", "/v1/estimates/", "/v1/catalogue/revisions", "/v1/reconciliations", "/v1/worker",
    "/v1/launch-checks", "/v1/measurements", "/v1/calibrations", "/v1/audit", "/readyz",
)  # fmt: skip
"""Beginnings of the paths whose every answer comes from the database, which may not answer."""

EARLIER = {REV, "revision"}
"""Parameters that name an earlier catalogue or row, which the database holds; of a list, a column."""

NEVER_REFUSED = "/v1/cell/why"
"""The path that answers every question of a caller with access, in words."""

OF_A_LEASE = "/v1/worker/jobs/"

ETAG_REFERENCE = {"$ref": "#/components/headers/ETag"}

NOT_MODIFIED = {"description": "The answer is the one that If-None-Match names.", "headers": {"ETag": ETAG_REFERENCE}}


def contract_bytes(app: FastAPI) -> bytes:
    """The contract of an application, byte for byte."""
    return (json.dumps(contract(app), indent=1, ensure_ascii=False) + "\n").encode()


def write_contract(app: FastAPI) -> Path:
    """Write the contract into the source tree, where a test compares it with the one that is served."""
    return write_generated(COMMITTED, lambda: contract_bytes(app))


def contract(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary="What it takes to train a large language model.",
        description=DESCRIPTION,
        routes=app.routes,
        tags=[{"name": name, "description": meaning} for name, meaning in TAGS.items()],
        servers=[{"url": "/", "description": "This service."}],
        contact={"name": "The maintainers of traincost"},
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    paths, own = tidied(document)
    schemas = compacted(published_schemas(problem_schemas()) | published_schemas(own))
    by_family = sorted(paths.items(), key=lambda path: [*TAGS].index(next(iter(path[1].values()))["tags"][0]))
    paths = compacted(published(dict(by_family)))
    answered = answered_by(paths, schemas) & schemas.keys()
    schemas |= {name: without_bounds(schemas[name]) for name in answered}
    for path, operations in paths.items():
        for method, operation in operations.items():
            _complete_operation(path, method, operation)
    parameters: dict[str, Schema] = {}
    problems = {name: _problem_response(status) for status, name in RESPONSES.items() if status != "4XX"}
    responses = {"NotModified": NOT_MODIFIED, **problems}
    used = reached([paths, responses], schemas)
    operations = [operation for methods in paths.values() for operation in methods.values()]
    _share([operation.get("parameters", []) for operation in operations], "parameters", parameters)
    _share([operation["responses"] for operation in operations], "responses", responses)
    document["paths"], document["security"] = paths, [{KEY: []}]
    document["components"] = {
        "schemas": {name: schemas[name] for name in sorted(used)},
        "parameters": parameters,
        "responses": responses,
        "headers": {"ETag": ETAG, **LIMIT_HEADERS},
        "securitySchemes": PARTS["securitySchemes"],
    }
    return document


def _complete_operation(path: str, method: str, operation: Schema) -> None:
    """Add what holds for operations of a kind to what a route declares."""
    name = operation["operationId"]
    for response in operation["responses"].values():
        if response.get("description") == "Successful Response":
            response["description"] = "The answer."
        media = response.pop("content", {})
        described = {media_type: content for media_type, content in media.items() if content.get("schema")}
        response.update({"content": described} if described else {})
    bodies = operation.get("requestBody", {}).get("content", {})
    if MERGE_PATCH in bodies:
        bodies[MERGE_PATCH].setdefault("schema", bodies[JSON]["schema"])
    operation.setdefault("description", f"{operation['summary']}.")
    if "parameters" in operation:
        named = {one.get("$ref", (one.get("in"), one.get("name"))): one for one in operation["parameters"]}
        operation["parameters"] = [_parameter(one) for one in named.values()]  # the route's own comes last
    operation.update(deprecation_of(name))
    operation.update({key: operation.pop(key) for key in ("security", SCOPE) if key in operation})  # in this order
    created = {"201", "202"} & operation["responses"].keys()
    if method == "post" and created:
        operation["parameters"] = [*operation.get("parameters", ()), PARTS["idempotencyKey"]]
        for status in [one for one in operation["responses"] if one.startswith("2")]:
            headers = operation["responses"][status].get("headers", {})
            operation["responses"][status]["headers"] = headers | {REPLAYED: PARTS["replayed"]}
    if method == "get":
        operation["responses"]["200"].setdefault("headers", {}).setdefault("ETag", ETAG_REFERENCE)
        operation["responses"]["304"] = {"$ref": "#/components/responses/NotModified"}
    operation["responses"].pop("422", None)  # FastAPI's own
    refusals = _refusals(path, method, operation)
    operation["responses"] |= {status: {"$ref": f"{COMPONENTS}responses/{RESPONSES[status]}"} for status in refusals}
    add_examples(operation)


def _refusals(path: str, method: str, operation: Schema) -> tuple[str, ...]:
    """Statuses of refusals that callers plan for; what may happen to every request is under `default`."""
    if path == NEVER_REFUSED:
        return ("4XX", "default")
    (family,) = operation["tags"]
    is_change = family in CHANGED and method in {"put", "patch", "delete"}
    conflicts = (
        operation["operationId"] in CONTRADICTED
        or path.startswith(OF_A_LEASE)
        or (family == "catalogue" and method != "get")
    )
    named = {one.get("name", one.get("$ref", "").rpartition("/")[2]) for one in operation.get("parameters", ())}
    earlier = EARLIER if "{" in path else {REV}
    is_from_the_database = is_change or (conflicts and method != "get") or path.startswith(STORED) or named & earlier
    return (
        *(("404",) if ("{" in path and not path.startswith(OF_A_LEASE)) or REV in named else ()),
        *(("409",) if conflicts else ()),
        *(("412", "428") if is_change else ()),
        *(("503",) if is_from_the_database else ()),
        "422",
        "default",
    )


def _parameter(parameter: Schema) -> Schema:
    """A parameter with its example beside its schema, and without what goes without saying."""
    schema = dict(parameter.get("schema", {}))
    examples = schema.pop("examples", ())
    if schema.get("description") == parameter.get("description"):
        schema.pop("description", None)
    named = {key: value for key, value in parameter.items() if (key, value) != ("required", False)}
    return named | ({"schema": schema} if schema else {}) | ({"example": examples[0]} if examples else {})
