"""OpenAPI of the worker protocol."""

import re
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from service.answers.workers import HeartbeatAnswer, JobClaim, WorkerList
from service.api.openapi import (
    Schema,
    json_content,
    json_response,
    path_parameter,
    ref,
    request_body,
    undefaulted,
    untitled,
)
from service.features.catalogue.list_openapi import one_example
from service.features.workers.schemas import ClaimRequest, FinishRequest, HeartbeatRequest

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""What a file of a job may be called."""

LEASE_HEADER = "Traincost-Lease"
"""Header that carries the lease where a request has no JSON body."""

WORKER, JOB_ID = "gpu-node-7", "lch_3b1f0c7e9a5d42688c0e5f7a1d2b4c6e"
LEASE = "EXAMPLE-LEASE-aQ3vX9mZ2kT7rW5yB8nC4dF6gH1jL0"
_LEASE: Schema = {"lease": LEASE}

CLAIM_EXAMPLE: Schema = {
    "worker": WORKER,
    "kinds": ["launch-check"],
    "capabilities": {
        "devices": [{"name": "NVIDIA H100 80GB HBM3", "count": 8, "memory_bytes": 85_520_809_984}],
        "cpu_threads": 192,
        "labels": {"rack": "7"},
        "measures": True,
    },
    "wait_seconds": 20,
}
PROGRESS_EXAMPLE: Schema = {"probes": [{"probe": "gemm", "status": "running", "reason": None, "done_fraction": 0.5}]}
RESULT_EXAMPLE: Schema = {"records": [{"probe": "context", "status": "succeeded", "seconds": 1.25}]}

_ID = path_parameter("job_id", "Id of the job.", JOB_ID)
_DONE: Schema = {"204": {"description": "It is written."}}


def lease_parameter() -> Schema:
    """The header with the lease."""
    return {
        "name": LEASE_HEADER,
        "in": "header",
        "required": True,
        "description": "The lease that the job was claimed with.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 100},
        "example": LEASE,
    }


def worker_schemas() -> dict[str, Schema]:
    """The schemas that the routes of workers refer to."""
    modes: dict[JsonSchemaMode, tuple[type, ...]] = {
        "validation": (ClaimRequest, HeartbeatRequest, FinishRequest),
        "serialization": (JobClaim, HeartbeatAnswer, WorkerList),
    }
    _, document = TypeAdapter.json_schemas(
        [(kind, mode, TypeAdapter(kind)) for mode, kinds in modes.items() for kind in kinds],
        schema_generator=AnswerSchema,
        ref_template="#/components/schemas/{model}",
    )
    return {name: _bare(schema) for name, schema in document["$defs"].items()}


class AnswerSchema(GenerateJsonSchema):
    """JSON schema in which every field of an answer is there."""

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: FBT001 - pydantic calls it so
        """Every field of an answer is always there."""
        return self.mode == "serialization" or super().field_is_required(field, total)


def _bare(schema: Schema) -> Schema:
    properties = {name: undefaulted(untitled(field)) for name, field in schema["properties"].items()}
    return untitled(schema) | {"properties": properties, "additionalProperties": False}


CLAIM: Schema = {
    "description": "Waits for a job that the worker can do, for wait_seconds at most.",
    "requestBody": request_body(ref("ClaimRequest"), one_example("A node with eight GPUs", CLAIM_EXAMPLE)),
    "responses": {
        "200": {"description": "A job, under a lease.", "content": json_content(ref("JobClaim"))},
        "204": {"description": "There is none for this worker; it may ask again at once."},
    },
}
HEARTBEAT: Schema = {
    "description": "Renews the lease. 409: no job is held under it, so what runs is to be stopped. At most 16 KB.",
    "parameters": [_ID],
    "requestBody": request_body(
        ref("HeartbeatRequest"), one_example("Half of a probe is done", {**_LEASE, "progress": PROGRESS_EXAMPLE})
    ),
    "responses": json_response(ref("HeartbeatAnswer"), "What to do."),
}
KEEP_FILE: Schema = {
    "description": "In the place of one of the same name. Files of an attempt go when another one begins.",
    "parameters": [
        _ID,
        path_parameter("file_name", "What it is called.", "trace.json.gz"),
        lease_parameter(),
    ],
    "requestBody": {
        "required": True,
        "description": "The file, of at most 64 MiB, under its own media type.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    "responses": _DONE,
}
FINISH: Schema = {
    "description": "Hands in the outcome of the attempt. Sent again, it is taken once; another outcome is 409.",
    "parameters": [_ID],
    "requestBody": request_body(
        ref("FinishRequest"),
        one_example("What was found", {**_LEASE, "outcome": "succeeded", "result": RESULT_EXAMPLE}),
    ),
    "responses": _DONE,
}
