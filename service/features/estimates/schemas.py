"""Answers of the estimating routes that no dataclass spells."""

from typing import Annotated, Any

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from service.answers.names import COMPONENT
from service.catalogue.choices import Choice, choices
from service.validation.forms import ReadElsewhere, described_as


class _Choices(ReadElsewhere):
    """Choices by field."""

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        names = described_as(tuple[Choice, ...], handler)
        fields = {name: {"description": f"Names that {name} takes.", **names} for name in choices()}
        return {
            COMPONENT: "Choices",
            "type": "object",
            "description": "Choices by field.",
            "additionalProperties": False,
            "required": list(fields),
            "properties": fields,
        }


Choices = Annotated[Any, _Choices()]
