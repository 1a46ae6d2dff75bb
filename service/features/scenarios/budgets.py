"""Budgets: a saved question with its answer, what its cost is made of, and other ways to run the same job."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

from service.answers.estimates import Answer
from service.catalogue import Catalogue
from service.errors import Problem, Refused, UnknownRevision
from service.estimator.answer import Interval
from service.estimator.complete import CompletePrice
from service.estimator.question import Model, Price, Question
from service.estimator.resolve import resolve
from service.estimator.run.cost import Charge, Usage, charges_of
from service.features.estimates.answers import answer
from service.features.estimates.metrics import FITS, fits, whole_of
from service.features.estimates.store import stored_answer
from service.features.scenarios.scenarios import find_scenario
from service.store import Engine
from service.store.history import History
from service.store.keys import Caller
from service.tabular.csv_text import exact_text
from service.validation.flat import LIST_MARK, MEMBER_MARK, NAMING, FlatField, body_of_flat, flat_fields
from service.validation.question_parts import read_model
from service.validation.questions import ParsedQuestion, read_question
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


METRICS = (
    "fits", "memory.oom_probability_fraction", "device_peak_bytes", "memory.usable_bytes", "parameters.total",
    "total_flop", "step_seconds", "tokens_per_s_per_gpu", "mfu_fraction", "gpu_hours", "billed_gpu_hours", "days",
    "cost_usd", "energy_kwh", "carbon_kg_co2e",
)  # fmt: skip

EXAMPLE = (
    ("model", "llama-3.1-8b"), ("sequence_length", "8192"), ("global_batch", "512"), ("training_tokens", "2e11"),
    ("tensor", "2"), ("gpu", "h100-sxm5-80gb"), ("gpus", "8"), ("grid_region", "DEU"), ("usd_per_gpu_hour", "2.5"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another way to run the same job."""

    name: str
    gpus: int
    verdict: str
    gpu_hours: float
    billed_gpu_hours: float
    days: float
    usd_per_gpu_hour: float
    """Price of a GPU-hour that is billed; of owned hardware what it costs beside storage and egress."""
    discount_fraction: float
    other_usd: float
    """Storage and egress."""


@dataclass(frozen=True, slots=True)
class _Saved:
    """What a budget is made of."""

    title: str
    address: str
    """Address of the service, as `http://host:port`."""
    saved_on: str
    """Date of the answer; of an example that of the newest price."""
    revision: str | None
    """Catalogue revision of its numbers; None for the newest."""
    fields: Mapping[str, FlatValue]
    """The question, by the names of its parameters."""
    whole: Mapping[str, Any]
    """The answer when the budget was made, by metric path."""
    links: Mapping[str, str]
    """Addresses of what the budget rests on, by name."""


@dataclass(frozen=True, slots=True)
class Budget(_Saved):
    """A saved question with what its cost is made of."""

    charges: Sequence[Charge]
    """Lines of the cost; a rent of next to nothing without a price."""
    alternatives: Sequence[Alternative]
    """Other ways to run the job, at most four; none without training tokens or a price."""


def example_budget(address: str, catalogue: Catalogue) -> Budget:
    given: dict[str, FlatValue] = {name: _typed(name, text) for name, text in EXAMPLE}
    parsed = read_question(body_of_flat(EXAMPLE), catalogue)
    whole = whole_of(answer(parsed, catalogue))
    title, saved_on = "Llama 3.1 8B on one node", f"{catalogue.price_index.newest_as_of}-01"[:10]
    links = {"Question": f"{address}/v1/estimates?{urlencode(EXAMPLE)}"}
    saved = _Saved(title, address, saved_on, catalogue.revision, given, whole, links)
    return _budget(saved, parsed, catalogue)


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
    given, parsed = flat_question(question, catalogue), read_question(question, catalogue)
    whole = {**stored, FITS: fits(stored["verdict"])}
    path = f"{address}/v1/scenarios/{scenario.id}?revision={scenario.revision}"
    links = {"Scenario": path, "Stored answer": f"{address}/v1/estimates/{scenario.estimate_id}"}
    saved = _Saved(scenario.name, address, scenario.changed_at[:10], pinned, given, whole, links)
    return _budget(saved, parsed, catalogue)


def _budget(saved: _Saved, parsed: ParsedQuestion, catalogue: Catalogue) -> Budget:
    priced = parsed.question if parsed.question.price else replace(parsed.question, price=FREE)
    nothing, some = Interval(0.0, 0.0, 0.0, "exact"), Interval(1.0, 1.0, 1.0, "exact")
    spare = some if (saved.whole["totals"] or {}).get("spare_gpus") else nothing
    used = Usage(gpu_hours=nothing, spare_gpu_hours=spare, billed_gpu_hours=nothing, days=nothing, energy_kwh=nothing)
    return Budget(
        **{field.name: getattr(saved, field.name) for field in fields(_Saved)},
        charges=charges_of(resolve(priced), used),
        alternatives=tuple(_alternatives(parsed, catalogue)),
    )


FREE = Price(usd_per_gpu_hour=1e-4)
"""Price that stands in a budget until its reader types one."""


def _alternatives(parsed: ParsedQuestion, catalogue: Catalogue) -> Iterator[Alternative]:
    question = parsed.question
    if question.recipe.training_tokens is None or question.price is None:
        return
    gpus, gpu = question.cluster.gpus, question.gpu.slug
    variants: list[tuple[str, Question]] = []
    for name, count in (("Twice the GPUs", gpus * 2), ("Half the GPUs", gpus // 2)):
        batch = resolve(question).question.recipe.global_batch
        recipe = replace(question.recipe, global_batch=batch, global_batch_tokens=None)
        cluster, layout = replace(question.cluster, gpus=count), replace(question.layout, data=None)
        variants.append((name, replace(question, recipe=recipe, cluster=cluster, layout=layout)))
    for model in ("on-demand", "spot"):
        rows = [row for row in catalogue.price_index.of_gpu(gpu) if row.price_model == model]
        if rows:
            row = min(rows, key=lambda one: one.usd_per_gpu_hour)
            price = Price(usd_per_gpu_hour=row.usd_per_gpu_hour, price_model=row.price_model, as_of=row.as_of)
            variants.append((f"{row.provider}, {model}", replace(question, price=price)))
    for name, variant in variants:
        with suppress(Refused):
            yield _alternative(name, answer(replace(parsed, question=variant), catalogue, advise=False))


def _alternative(name: str, found: Answer) -> Alternative:
    totals, price = found.totals, found.resolved.price
    if totals is None or totals.cost is None:
        raise Refused
    other = sum(line.usd.value for line in totals.cost if line.kind in ("storage", "egress"))
    owned = sum(line.usd.value for line in totals.cost) - other
    rent = price.usd_per_gpu_hour if isinstance(price, CompletePrice) else owned / totals.billed_gpu_hours.value
    return Alternative(
        name=name,
        gpus=found.resolved.cluster.gpus,
        verdict=found.verdict,
        gpu_hours=totals.gpu_hours.value,
        billed_gpu_hours=totals.billed_gpu_hours.value,
        days=totals.days.value,
        usd_per_gpu_hour=rent,
        discount_fraction=price.discount_fraction if isinstance(price, CompletePrice) else 0.0,
        other_usd=other,
    )


def _typed(name: str, text: str) -> FlatValue:
    form = flat_fields()[name].form
    return float(text) if form == "number" else int(float(text)) if form == "integer" else text
