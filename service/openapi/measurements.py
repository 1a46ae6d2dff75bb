"""Component schemas of measurements and calibrations."""

import json
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from service.api.openapi import Schema, described, list_schemas, object_schema, ref, undefaulted, untitled
from service.calibration.records import Environment
from service.calibration.scoring import PartError
from service.estimator.constants import DeviceCalibration
from service.features.calibrations import lists as calibrations
from service.features.calibrations.drift import Drift
from service.features.calibrations.requests import Chosen, Promotion
from service.features.measurements import lists as measurements
from service.features.measurements.importing import KeptMeasurements, RecordsBody
from service.features.measurements.lists import Doubt, Named

RENAMED = {
    "validation": {
        "Chosen": "CalibrationRequest",
        "Doubt": "QuarantineRequest",
        "Environment": "ProbeEnvironment",
        "Measurement": "ProbeMeasurement",
        "Named": "ReleaseRequest",
        "Promotion": "PromotionRequest",
        "RecordsBody": "MeasurementsRequest",
    },
    "serialization": {
        "DeviceCalibration": "CalibrationConstants",
        "Drift": "CalibrationDrift",
        "DriftPart": "CalibrationDriftPart",
        "PartError": "CalibrationError",
    },
}
"""Classes whose own name says enough only where they stand."""

DESCRIBED_ELSEWHERE = frozenset({"MeasuredStep"})
"""Classes whose schemas questions bring."""

_EXPLAINED = ConfigDict(use_attribute_docstrings=True)
_SHAPE: Schema = {
    "type": "object",
    "description": "Sizes, number format and kernel: what tells it from other measurements of its probe.",
    "additionalProperties": {"type": ["integer", "number", "string", "boolean"]},
}


class _EveryField(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic calls it so
        """No titles: they would only repeat the field names."""
        return False


def measurement_schemas() -> dict[str, Schema]:
    """The schemas that the routes of measurements and calibrations refer to."""
    asked = _generated("validation", RecordsBody, Chosen, Doubt, Named, Promotion)
    components = _generated("serialization", KeptMeasurements, Drift, PartError, Environment, DeviceCalibration)
    asked["ProbeMeasurement"]["properties"]["shape"] = _SHAPE
    constants = components["CalibrationConstants"]
    constants["properties"].pop("id")
    constants["required"].remove("id")
    rows: Schema = {"type": "array", "description": "The measurements.", "items": ref("MeasurementRow")}
    return {
        **asked,
        **components,
        **list_schemas("Measurement", "One of the measurements", measurements.COLUMNS),
        **list_schemas("Calibration", "One of the calibrations", calibrations.COLUMNS),
        "MeasurementItems": object_schema("Some measurements.", ["items"], {"items": rows}),
        "Measured": _measured(),
        "Calibration": _calibration(),
    }


def _generated(mode: Any, *kinds: type) -> dict[str, Schema]:
    """Schemas of classes and of all that they hold, under their published names."""
    names: dict[str, str] = RENAMED[mode]
    listed: Any = list
    _, document = TypeAdapter.json_schemas(
        [(kind, mode, TypeAdapter(listed[kind], config=_EXPLAINED)) for kind in kinds],
        schema_generator=_EveryField,
        ref_template="#/components/schemas/{model}",
    )
    text = json.dumps(document["$defs"])
    for name, published in names.items():
        text = text.replace(f'"#/components/schemas/{name}"', f'"#/components/schemas/{published}"')
    found = {names.get(name, name): one for name, one in json.loads(text).items() if name not in DESCRIBED_ELSEWHERE}
    return {name: _closed(one, every=mode == "serialization") for name, one in found.items()}


def _closed(schema: Schema, *, every: bool) -> Schema:
    """A schema that takes no other field; of an answer every field is there."""
    properties = {name: undefaulted(untitled(field)) for name, field in schema["properties"].items()}
    required = list(properties) if every else schema.get("required", [])
    mandatory = {"required": required} if required else {}
    return {**untitled(schema), "properties": properties, **mandatory, "additionalProperties": False}


def _measured() -> Schema:
    columns = {column.name: dict(column.schema) for column in measurements.COLUMNS}
    properties = {**columns, "shape": _SHAPE, "environment": described("What it was measured on.", ref("Environment"))}
    return object_schema("One measurement.", list(properties), properties)


def _calibration() -> Schema:
    columns = {column.name: dict(column.schema) for column in calibrations.COLUMNS}
    properties = {
        **columns,
        "parts": {"type": "array", "description": "The errors by probe.", "items": ref("CalibrationError")},
        "constants": described("What stands in the place of published rates.", ref("CalibrationConstants")),
        "fitted_on": {
            "type": "array",
            "description": "Ids of the measurements that it was fitted on.",
            "items": {"type": "string"},
        },
    }
    return object_schema("A calibration of one device.", list(properties), properties)
