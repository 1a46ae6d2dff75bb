"""What do bodies and answers look like that no dataclass holds? Those of Kubernetes, the choices, health, files."""

from service.api.json_schema import Schema, described, object_schema, ref
from service.estimator import choices
from service.exports.back.entries import LONGEST_FILE_BYTES
from service.text_bounds import FIELD
from service.workflows.admission import FORBIDDEN, KIND, VERSION

_TEXT: Schema = {"type": "string"}

HEALTH = {"HealthAnswer": "ok", "ReadinessAnswer": "ready"}
"""The status that each answer about the process itself tells."""


def plain_schemas() -> dict[str, Schema]:
    """The schemas of bodies and answers that no dataclass holds.

    Returns:
        JSON schemas by component name
    """
    health = {
        name: object_schema("How the process is.", ["status"], {"status": {"const": word, "description": "Always so."}})
        for name, word in HEALTH.items()
    }
    tools: Schema = {"type": "array", "description": "The tools.", "items": ref("ExportTarget")}
    file = _TEXT | {"maxLength": LONGEST_FILE_BYTES, "description": "The file."}
    return {
        "Choice": _CHOICE,
        "Choices": _choices(),
        "ExportTargets": object_schema("Tools that a question can be written for.", ["items"], {"items": tools}),
        "ImportRequest": object_schema("The file of a training framework.", [FIELD], {FIELD: file}),
        "SacctDocument": _sacct(),
        **health,
        **_kubernetes(),
    }


_CHOICE = object_schema(
    "A name that a field takes.",
    ["name", "meaning", "source"],
    {
        "name": _TEXT | {"description": "The name, as written in a question."},
        "meaning": _TEXT | {"description": "What it stands for."},
        "source": _TEXT | {"description": "Who says so."},
    },
)


def _choices() -> Schema:
    fields = {
        name: {"type": "array", "description": f"Names that {name} takes.", "items": ref("Choice")}
        for name in choices()
    }
    return object_schema("Choices by field.", list(fields), fields)


def _sacct() -> Schema:
    """As much of the document as every version has; sacct prints much more, which is passed over."""
    open_object: Schema = {"type": "object", "additionalProperties": True}
    jobs = {"type": "array", "description": "The jobs.", "items": open_object}
    meta = open_object | {"description": "Says the version of the schema."}
    fields = {"jobs": jobs, "meta": meta}
    return object_schema("What sacct --json prints.", list(fields), fields) | {"additionalProperties": True}


def _kubernetes() -> dict[str, Schema]:
    kind = {
        "apiVersion": _TEXT | {"description": "Group and version."},
        "kind": _TEXT | {"description": "Kind of object."},
    }
    version = {
        "apiVersion": {"const": VERSION, "description": "Group and version."},
        "kind": {"const": KIND, "description": "Kind of object."},
    }
    uid = _TEXT | {"description": "The request's own name."}
    asked = {"uid": uid, "object": described("What is created.", ref("KubernetesObject"))}
    request = object_schema("What is to be admitted.", ["uid"], asked) | {"additionalProperties": True}
    status = {
        "code": {"const": FORBIDDEN, "description": "HTTP status."},
        "message": _TEXT | {"description": "Why."},
    }
    noted = {"estimate": _TEXT | {"description": "Id of the estimate."}}
    response = {
        "uid": uid,
        "allowed": {"type": "boolean", "description": "False only for what runs out of memory."},
        "status": object_schema("Why not.", list(status), status),
        "warnings": {"type": "array", "description": "For whoever created it.", "items": _TEXT},
        "auditAnnotations": object_schema("For the audit log.", [], noted),
    }
    inner = object_schema("Whether it is admitted.", ["uid", "allowed"], response)
    return {
        "KubernetesObject": object_schema("An object of Kubernetes.", [], kind) | {"additionalProperties": True},
        "AdmissionReview": _review("A review that asks.", {**version, "request": request}),
        "AdmissionAnswer": _review("The same review, answered.", {**version, "response": inner}),
    }


def _review(description: str, fields: Schema) -> Schema:
    return object_schema(description, list(fields), fields)
