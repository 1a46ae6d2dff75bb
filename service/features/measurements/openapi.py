"""OpenAPI of measurements and calibrations."""

from pydantic import TypeAdapter

from service.api.openapi import (
    TEXT_BODY,
    Schema,
    json_content,
    json_response,
    path_parameter,
    query_parameter,
    ref,
    request_body,
)
from service.features.catalogue.list_openapi import one_example
from service.features.measurements.file_formats import FORMATS, Beside

SHAPES = (
    (8192, 6144, 4096, 0.0007315),
    (8192, 4096, 4096, 0.0004694),
    (8192, 28672, 4096, 0.003276),
    (8192, 4096, 14336, 0.00161),
    (4096, 6144, 4096, 0.0003624),
    (2048, 4096, 14336, 0.0003997),
)
"""Rows, columns, inner sizes and seconds of products of one GPU that is slower than others of its kind."""


def _product(rows: int, columns: int, inner: int, seconds: float) -> Schema:
    shape = {"rows": rows, "columns": columns, "inner": inner, "dtype": "bf16", "copies": 1}
    return {
        "operation": "forward",
        "shape": shape,
        "quantity": "seconds",
        "value": seconds,
        "low": round(seconds * 0.99, 9),
        "high": round(seconds * 1.02, 9),
        "repeats": 20,
    }


RECORDS: Schema = {
    "source": "gemm probe on node 7",
    "run": "node-7",
    "measured_at": "2026-11-23T08:00:00Z",
    "records": [
        {
            "probe": "gemm",
            "status": "succeeded",
            "seconds": 2.5,
            "environment": {
                "kind": "cuda",
                "device": "NVIDIA H100 80GB HBM3",
                "devices": 8,
                "memory_bytes": 85_520_809_984,
                "compute_capability": "9.0",
                "driver": "580.95",
                "runtime": "13.0",
                "torch": "2.9.1",
            },
            "measurements": [_product(*shape) for shape in SHAPES],
        }
    ],
}
"""What POST /v1/measurements takes: the record of a probe, as a worker writes it."""

_DEVICE = "#  Rank  {0} Group  0 Pid 1623025 on    host device  {0} [0x1b] NVIDIA H100 80GB HBM3\n"

NCCL_TESTS = f"""# nThread 1 nGpus 8 minBytes 268435456 maxBytes 2147483648 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
{"".join(map(_DEVICE.format, range(8)))}#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   268435456      67108864     float     sum      -1   1119.8  239.71  419.49      0   1117.4  240.24  420.42      0
  1073741824     268435456     float     sum      -1   4027.3  266.61  466.57      0   4029.1  266.50  466.37      0
"""
"""What POST /v1/measurements/imports/nccl-tests takes."""

MEASUREMENT_ID = "msr_9bec5fed2aa72e8fd124217153ba1408"
"""Id of the first of RECORDS, determined by its values."""

DOUBTED: Schema = {"ids": [MEASUREMENT_ID], "reason": "the fan of this node was broken"}
"""What POST /v1/measurements/quarantine takes."""

RELEASED: Schema = {"ids": [MEASUREMENT_ID]}
"""What POST /v1/measurements/release takes."""

PROMOTION: Schema = {"scope": "everyone"}
CHOSEN: Schema = {"gpu": "h100-sxm5-80gb", "runs": ["node-7"], "probes": ["gemm"], "note": "node 7, November"}
"""What POST /v1/calibrations takes."""


MEASUREMENT = path_parameter("measurement_id", "Id of the measurement.", MEASUREMENT_ID)
CALIBRATION = path_parameter("calibration_id", "Id of the calibration.", "cal_5d3f0c6a1b2e4f708192a3b4c5d6e7f8")
FORMAT = path_parameter(
    "format", "; ".join(f"{name}: {one.meaning}" for name, one in FORMATS.items()), "nccl-tests", tuple(FORMATS)
)
_LOCATION: Schema = {"description": "Where it is read.", "schema": {"type": "string"}}


def import_operation() -> Schema:
    """OpenAPI of importing records."""
    return {
        "description": "Records of probes, as a worker's record.json holds them. Runs on shared, divided or throttled "
        "devices and outliers among others of their kind go into quarantine, where nothing is fitted on them. What is "
        "there already is not kept twice.",
        "requestBody": request_body(ref("MeasurementsRequest"), one_example("The products of one GPU", RECORDS)),
        "responses": json_response(ref("KeptMeasurements"), "What came in."),
    }


def file_operation() -> Schema:
    """OpenAPI of importing another tool's file."""
    fields: Schema = TypeAdapter(Beside).json_schema()["properties"]
    asked = [query_parameter(name, one["description"], _of_query(one)) for name, one in fields.items()]
    content = {TEXT_BODY: {"schema": {"type": "string"}, "examples": one_example("Two sizes", NCCL_TESTS)}}
    return {
        "description": "A file that is not of its format is refused with the column, the unit or the line that is "
        "wrong. A pickle is refused before anything reads it.",
        "parameters": [FORMAT, *asked],
        "requestBody": {"required": True, "content": content},
        "responses": json_response(ref("KeptMeasurements"), "What came in."),
    }


def measurement_operation() -> Schema:
    """OpenAPI of reading a measurement."""
    return {
        "description": "One measurement, with its shape and what it was measured on.",
        "parameters": [MEASUREMENT],
        "responses": json_response(ref("MeasuredQuantity"), "The measurement."),
    }


def quarantine_operation() -> Schema:
    """OpenAPI of quarantining measurements."""
    return {
        "description": "They stay, and nothing is fitted on them any more.",
        "requestBody": request_body(ref("QuarantineRequest"), one_example("A reason", DOUBTED)),
        "responses": json_response(ref("MeasurementItems"), "The measurements as they are then."),
    }


def release_operation() -> Schema:
    """OpenAPI of releasing measurements."""
    return {
        "description": "What took them out was looked at, and is no reason to doubt them.",
        "requestBody": request_body(ref("ReleaseRequest"), one_example("Some of them", RELEASED)),
        "responses": json_response(ref("MeasurementItems"), "The measurements as they are then."),
    }


def fit_operation() -> Schema:
    """OpenAPI of creating a calibration."""
    content = json_content(ref("Calibration"))
    answered = {"description": "The calibration, a draft.", "headers": {"Location": _LOCATION}, "content": content}
    return {
        "description": "Constants of one device, fitted on measurements of it that are not in quarantine. Errors are "
        "those of predictions by constants that never saw the run, or where there is one run, the shape; beside them "
        "those of before.",
        "requestBody": request_body(ref("CalibrationRequest"), one_example("The products of one run", CHOSEN)),
        "responses": {"201": answered},
    }


def calibration_operation(description: str) -> Schema:
    """OpenAPI of operations that answer with a calibration."""
    return {
        "description": description,
        "parameters": [CALIBRATION],
        "responses": json_response(ref("Calibration"), "The calibration."),
    }


def promote_operation() -> Schema:
    """OpenAPI of promoting a calibration."""
    body = request_body(ref("PromotionRequest"), one_example("For everyone, by an admin", PROMOTION))
    described = calibration_operation(
        "From then on its owner's answers about its GPU rest on it and name it; with scope everyone, which only an "
        "admin may give, every caller's do. Refused unless predictions of what it never saw are nearer than before, "
        "probe by probe and in the mean, and near enough by themselves."
    )
    return {**described, "requestBody": {**body, "required": False}}


def drift_operation() -> Schema:
    """OpenAPI of the drift report."""
    return {
        "description": "Its predictions beside what was measured of its device since it was fitted.",
        "parameters": [CALIBRATION],
        "responses": json_response(ref("CalibrationDrift"), "Whether it still holds."),
    }


def _of_query(schema: Schema) -> Schema:
    """Schema of a query parameter, which may be absent but not null."""
    options = [one for one in schema.get("anyOf", (schema,)) if one != {"type": "null"}]
    return {key: value for key, value in options[0].items() if key not in {"title", "default", "description"}}
