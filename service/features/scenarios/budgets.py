"""Budget workbooks: the fields of a question on one sheet, its numbers as live formulas on another."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from typing import Any

from service.catalogue import Catalogue
from service.errors import Problem, Refused, UnknownRevision
from service.estimator.question import Model
from service.features.cells.cells import REFRESH, REV
from service.features.estimates.answers import answer
from service.features.estimates.metrics import FITS, fits, metric_named, whole_of
from service.features.estimates.store import stored_answer
from service.features.scenarios.scenarios import find_scenario
from service.store import Engine
from service.store.history import History
from service.store.keys import Caller
from service.tabular.csv_text import exact_text
from service.tabular.sheets import Formula, Heading, Sheet, SheetCell
from service.units import dimension_of
from service.validation.flat import LIST_MARK, MEMBER_MARK, NAMING, FlatField, body_of_flat, flat_fields
from service.validation.question_parts import read_model
from service.validation.questions import read_question
from service.validation.reading import fields_of

FlatValue = str | int | float
"""A number or a boolean, or any other value as text."""


def flat_question(body: Mapping[str, Any], catalogue: Catalogue) -> dict[str, FlatValue]:
    parts = {**body, "model": _model(body["model"], catalogue)} if "model" in body else body
    values_by_name = {name: _value_text(field, parts) for name, field in flat_fields().items()}
    values = {name: value for name, value in values_by_name.items() if value is not None}
    question = read_question(body, catalogue).question
    texts = [(name, flat_text(value)) for name, value in values.items()]
    if read_question(body_of_flat(texts), catalogue).question != question:
        message = "the question says something that has no parameter of its own, so no cell can ask it"
        fix = "keep the model or the cluster as a row of your own (POST /v1/models, /v1/clusters), and name it"
        raise Refused(Problem(field="question", code="not_flat", message=message, fix=fix))
    return values


def flat_text(value: FlatValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else exact_text(value)


def _model(model: Any, catalogue: Catalogue) -> Any:
    """Fields of a model that was given as a Hugging Face config, which the flat form cannot hold."""
    if not (isinstance(model, Mapping) and "hf_config" in model):
        return model
    read = fields_of(read_model(model, catalogue).spec)
    defaults = {field.name: field.default for field in fields(Model) if field.default is not MISSING}
    return {name: value for name, value in read.items() if name not in defaults or value != defaults[name]}


def _value_text(field: FlatField, body: Mapping[str, Any]) -> FlatValue | None:
    value = _at(field.path, body)
    if isinstance(value, (list, tuple)):  # of an object its numbers joined by colons, an absent one as an empty text
        items = [[one.get(name) for name in field.members] if isinstance(one, Mapping) else [one] for one in value]
        texts = (MEMBER_MARK.join("" if one is None else flat_text(one) for one in numbers) for numbers in items)
        return LIST_MARK.join(texts) if field.is_list else None
    return value if isinstance(value, str | int | float) else None


def _at(path: Sequence[str], body: Mapping[str, Any]) -> Any:
    """Value of a body at a path; a name may stand in place of an object that holds only the name."""
    value: Any = body
    for depth, name in enumerate(path, start=1):
        if isinstance(value, str) and name in NAMING and depth == len(path):
            return value
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


INPUTS, RESULTS = "Inputs", "Results"
SERVICE, QUERY = f"{INPUTS}!$B$4", f"{INPUTS}!$B$5"
"""Cells with the address of the service and the query."""
FIRST_FIELD = 8
KEY = "key"
FREE_ROWS = 6
"""Empty rows for fields that the user adds."""

METRICS = (
    "fits", "memory.oom_probability_fraction", "device_peak_bytes", "memory.usable_bytes", "parameters.total",
    "total_flop", "step_seconds", "tokens_per_s_per_gpu", "mfu_fraction", "gpu_hours", "days", "cost_usd",
    "energy_kwh", "carbon_kg_co2e",
)  # fmt: skip

EXAMPLE = (
    ("model", "llama-3.1-8b"), ("sequence_length", "8192"), ("global_batch", "512"), ("training_tokens", "2e11"),
    ("tensor", "2"), ("gpu", "h100-sxm5-80gb"), ("gpus", "8"), ("grid_region", "DEU"), ("usd_per_gpu_hour", "2.5"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Budget:
    title: str
    address: str
    """Address of the service, as `http://host:port`."""
    fields: Mapping[str, FlatValue]
    """The question, by the names of its parameters."""
    revision: str | None
    """Catalogue revision of its numbers; None for the newest."""
    whole: Mapping[str, Any]
    """The answer when the budget was made, by metric path."""


def example_budget(address: str, catalogue: Catalogue) -> Budget:
    example = answer(read_question(body_of_flat(EXAMPLE), catalogue), catalogue)
    fields: dict[str, FlatValue] = {name: _typed(name, text) for name, text in EXAMPLE}
    return Budget("Llama 3.1 8B on one node", address, fields, catalogue.revision, whole_of(example))


def budget_sheets(budget: Budget) -> tuple[Sheet, Sheet]:
    return _inputs(budget), _results(budget)


def _inputs(budget: Budget) -> Sheet:
    options: dict[str, tuple[FlatValue | None, str]] = {
        REV: (budget.revision, "Catalogue that the numbers rest on; the newest where empty."),
        KEY: (None, "A sheet key, where the service asks for one; a reader of the file has the key then."),
        REFRESH: (None, "Write anything new here to have every number asked again."),
    }
    question_rows = {name: (value, flat_fields()[name].meaning) for name, value in budget.fields.items()}
    rows_by_name = list({**options, **question_rows}.items())
    fields: list[list[SheetCell]] = [
        [name, value, meaning, _query_part(row)]
        for row, (name, (value, meaning)) in enumerate(rows_by_name, start=FIRST_FIELD)
    ]
    last = FIRST_FIELD + len(fields) + FREE_ROWS
    fields += [[None, None, None, _query_part(row)] for row in range(FIRST_FIELD + len(fields), last)]
    pieces = "&".join(f"D{row}" for row in range(FIRST_FIELD, last))
    rows: list[list[SheetCell]] = [
        [Heading(budget.title)],
        [f"Change column B, and the sheet {RESULTS} asks the service. An empty cell takes the default."],
        ["More fields go into the empty rows below, by the names that the service lists at /v1/choices and /docs."],
        ["service", budget.address, "Where the service is."],
        ["query", Formula(f'"on_error=text"&{pieces}'), "What the fields ask; it is made from column D."],
        [],
        [Heading("field"), Heading("value"), Heading("meaning"), Heading("part of the query")],
        *fields,
    ]
    return Sheet(INPUTS, rows, (24, 28, 60, 30))


def _query_part(row: int) -> Formula:
    """Part of the query for a field, in no locale: booleans become 1 and 0, a decimal comma a point."""
    number = f'IF(ISNUMBER(B{row}),SUBSTITUTE(B{row},",","."),B{row})'
    text = f'"&"&A{row}&"="&ENCODEURL(IF(ISLOGICAL(B{row}),IF(B{row},1,0),{number}))'
    return Formula(f'IF(OR(A{row}="",B{row}=""),"",{text})')


def _results(budget: Budget) -> Sheet:
    names = ("number", "value", "low", "high", "unit", "when saved")
    first = 5
    rows: list[list[SheetCell]] = [
        [Heading(budget.title)],
        ["reason", Formula(f'WEBSERVICE({SERVICE}&"/v1/cell/why?"&{QUERY})', "ok"), "ok, or what is to be mended"],
        [],
        [Heading(name) for name in names],
        *(_result_row(row, name, budget.whole) for row, name in enumerate(METRICS, start=first)),
    ]
    return Sheet(RESULTS, rows, (32, 22, 22, 22, 12, 22))


def _result_row(row: int, name: str, whole: Mapping[str, Any]) -> list[SheetCell]:
    metric = metric_named(name)
    number = metric.read(whole)
    ends = number if isinstance(number, Mapping) else {"value": number}
    value = _cell_value(ends.get("value"))
    low, high = (
        _cell_formula(row, f".{end}", _cell_value(ends.get(end))) if metric.is_interval else None
        for end in ("low", "high")
    )
    return [name, _cell_formula(row, "", value), low, high, dimension_of(metric.path).base, value]


def _cell_formula(row: int, end: str, value: float | None) -> Formula:
    """Formula that shows a number, or the reason why there is none."""
    text = f'WEBSERVICE({SERVICE}&"/v1/cell/"&$A{row}&"{end}?"&{QUERY})'
    return Formula(f'IFERROR(NUMBERVALUE({text},".",","),{text})', "" if value is None else value)


def _cell_value(value: float | None) -> float | None:
    return int(value) if isinstance(value, bool) else value


def _typed(name: str, text: str) -> FlatValue:
    form = flat_fields()[name].form
    return float(text) if form == "number" else int(float(text)) if form == "integer" else text


def scenario_budget(
    engine: Engine, history: History, caller: Caller, scenario_id: str, revision: int | None, address: str
) -> Budget:
    """The budget of a scenario, under the catalogue that it was answered from."""
    scenario, question = find_scenario(engine, caller, scenario_id, revision)
    catalogue_at = partial(history.at, owner=scenario.owner)
    stored = json.loads(stored_answer(engine, None, scenario.estimate_id, catalogue_at))
    pinned: str | None = scenario.catalogue
    try:
        catalogue = catalogue_at(scenario.catalogue)
    except UnknownRevision:
        catalogue, pinned = history.view(scenario.owner), None
    fields = flat_question(question, catalogue)
    return Budget(scenario.name, address, fields, pinned, {**stored, FITS: fits(stored["verdict"])})
