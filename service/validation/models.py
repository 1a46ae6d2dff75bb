"""Models: a preset, a preset with changes, a Hugging Face config, or an inline model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.estimator.question import Model
from service.estimator.rules.training import problems_of_model
from service.validation.problems import not_an_object, unknown_field
from service.validation.reading import Parsed, assumptions_of, field_names, fields_of, read_name, read_spec, with_rows

MODEL_FIELDS = field_names(Model)

CONFIG_PATH = "model.hf_config"
"""Field of a question that takes a config.json."""


def read_model(value: object, catalogue: Catalogue) -> Parsed[Model]:
    """The model of a request."""
    if isinstance(value, str):
        return _preset(value, catalogue, "model")
    if not isinstance(value, Mapping):
        raise Refused(not_an_object("model", ["preset", "hf_config", *MODEL_FIELDS]))
    if "hf_config" in value:
        return _imported(value)
    if "preset" in value:
        preset = _preset(read_name(value["preset"], "model.preset"), catalogue, "model.preset")
        changes = {name: item for name, item in value.items() if name != "preset"}
        changed = {**fields_of(preset.spec), **changes}
        return replace(preset, spec=read_spec(Model, changed, "model", beside=("preset",)))
    return Parsed(read_spec(Model, value, "model", beside=("preset", "hf_config")))


def _preset(name: str, catalogue: Catalogue, field: str) -> Parsed[Model]:
    found = catalogue.find_model(name, field)
    if found.row.model is None:
        message = f"this model cannot be estimated: {found.row.not_estimated}"
        fix = "choose another preset (GET /v1/models), or give the model inline"
        raise Refused(Problem(field=field, code="not_estimable", message=message, fix=fix))
    return with_rows(Parsed(found.row.model, assumptions_of(found)), catalogue, found.row)


def _imported(value: Mapping[str, Any]) -> Parsed[Model]:
    if len(value) > 1:
        beside = next(name for name in value if name != "hf_config")
        raise Refused(unknown_field("model", beside, {"hf_config"}))
    return read_config(value["hf_config"])


def read_config(config: object, path: str = CONFIG_PATH) -> Parsed[Model]:
    """The model of a config.json."""
    try:
        return _config(config)
    except Refused as refused:
        fields = (f"{path}{problem.field.removeprefix(CONFIG_PATH)}".lstrip(".") for problem in refused.problems)
        moved = (replace(problem, field=field) for problem, field in zip(refused.problems, fields, strict=True))
        raise Refused(*moved) from None


def _config(config: object) -> Parsed[Model]:
    if not isinstance(config, Mapping):
        raise Refused(not_an_object(CONFIG_PATH, ["model_type", "hidden_size", "num_hidden_layers"]))
    from service.catalogue.huggingface import import_config

    imported = import_config(config)
    checked = read_spec(Model, fields_of(imported.model), CONFIG_PATH)
    problems = problems_of_model(checked)
    if problems:
        raise Refused(*(replace(problem, field=CONFIG_PATH) for problem in problems))
    return Parsed(checked, imported.assumptions, imported.warnings)
