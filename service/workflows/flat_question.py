"""How is a question that came as a body asked in its flat form? Field by field, and then compared."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.estimator.model import Model
from service.workflows.flat import NAMING, FlatField, body_of_flat, flat_fields
from service.workflows.flat_values import LIST_MARK, MEMBER_MARK
from service.workflows.models import read_model
from service.workflows.nouns import spelled
from service.workflows.number_text import exact_text
from service.workflows.questions import read_question

FlatValue = str | int | float
"""A number or a truth as it is, anything else as the text that spells it."""


def flat_question(body: Mapping[str, Any], catalogue: Catalogue) -> dict[str, FlatValue]:
    """A question in its flat form.

    Args:
        body: what POST /v1/estimates takes
        catalogue: the facts that it refers to

    Returns:
        values by the name of their parameter, in the order of the nouns

    Raises:
        Refused: the question cannot be read, or says something that the flat form has no parameter for
    """
    told = {**body, "model": _model(body["model"], catalogue)} if "model" in body else body
    found = {name: _value(field, told) for name, field in flat_fields().items()}
    values = {name: value for name, value in found.items() if value is not None}
    asked = read_question(body, catalogue).question
    texts = [(name, flat_text(value)) for name, value in values.items()]
    if read_question(body_of_flat(texts), catalogue).question != asked:
        message = "the question says something that has no parameter of its own, so no cell can ask it"
        fix = "keep the model or the cluster as a row of your own (POST /v1/models, /v1/clusters), and name it"
        raise Refused(Problem(field="question", code="not_flat", message=message, fix=fix))
    return values


def flat_text(value: FlatValue) -> str:
    """A value as a query spells it.

    Args:
        value: the value

    Returns:
        its text
    """
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else exact_text(value)


def _model(model: Any, catalogue: Catalogue) -> Any:
    """A model as its own fields where it came as a config, which has no parameter."""
    if not (isinstance(model, Mapping) and "hf_config" in model):
        return model
    read = spelled(read_model(model, catalogue).noun)
    defaults = {field.name: field.default for field in fields(Model) if field.default is not MISSING}
    return {name: value for name, value in read.items() if name not in defaults or value != defaults[name]}


def _value(field: FlatField, body: Mapping[str, Any]) -> FlatValue | None:
    value = _at(field.path, body)
    if isinstance(value, (list, tuple)):
        return LIST_MARK.join(_item(field, item) for item in value) if field.is_list else None
    return value if isinstance(value, str | int | float) else None


def _at(path: Sequence[str], body: Mapping[str, Any]) -> Any:
    """What a body holds at a path; a name may stand instead of an object that holds nothing else."""
    value: Any = body
    for place, step in enumerate(path, start=1):
        if isinstance(value, str) and step in NAMING and place == len(path):
            return value
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _item(field: FlatField, item: Any) -> str:
    """One value of a list; a small noun is its numbers with colons between them, none where it has none."""
    if isinstance(item, Mapping):
        numbers = [item.get(member) for member in field.members]
        return MEMBER_MARK.join("" if number is None else flat_text(number) for number in numbers)
    return flat_text(item)
