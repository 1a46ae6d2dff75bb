"""Requests for a sweep: each distinct item of its lists, parsed once."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, ClassVar, TypeVar

from annotated_types import Len

from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused, refuse
from service.estimator.constants import calibration_id
from service.estimator.question import STRICT, Layout, Name, Recipe
from service.features.compare.schemas import ANY, SPREAD
from service.features.estimates.answers import versions_of
from service.features.estimates.metrics import named_metrics
from service.features.plans.schemas import OpenLayout, OpenRecipe, ranking_problems, refuse_empty_range
from service.features.sweeps.rows import (
    DEFAULT_COLUMNS,
    LISTS,
    MOST_ITEMS,
    MOST_ROWS,
    PLAN,
    ROWS,
    Axes,
    PriceOfGpu,
    Sweep,
    SweepKind,
    SweepPlan,
    SweptCluster,
    SweptLayout,
    SweptModel,
    SweptPrice,
    SweptRecipe,
    reserved_names,
)
from service.validation import question_parts
from service.validation.forms import DescribedAs
from service.validation.json_text import checked_texts
from service.validation.open_fields import NOT_PLANNED, constraints_of
from service.validation.problems import not_an_object, refused_at, unknown_field
from service.validation.questions import EXAMPLES
from service.validation.reading import field_names, read_spec

Part = TypeVar("Part")


class ItemReader:
    """Parser of the items of a sweep; clusters before prices, which are looked up for each GPU of the sweep."""

    def __init__(self, catalogue: Catalogue, kind: SweepKind, plan: SweepPlan, prices: Sequence[Any]) -> None:
        self._catalogue = catalogue
        self._is_open = kind == "plan"
        self._plan = plan
        self._places: dict[str | None, Any] = {None: None}
        """A price at each place."""
        for price in prices:
            self._places.setdefault(question_parts.region_of_price(price, catalogue), price)
        self._gpus: dict[str, None] = {}

    def model(self, item: Any) -> SweptModel:
        """An item of the list of models."""
        preset = item.get("preset") if isinstance(item, Mapping) else item
        found = question_parts.read_model(item, self._catalogue)
        name = self._catalogue.find_model(preset).row.slug if isinstance(preset, str) else None
        return SweptModel(name=name, model=found.spec)

    def cluster(self, item: Any) -> SweptCluster:
        """An item of the list of clusters."""
        preset = item.get("preset") if isinstance(item, Mapping) else item
        machine = question_parts.read_cluster(item, self._catalogue).spec
        name = self._catalogue.find_cluster(preset).row.slug if isinstance(preset, str) else None
        self._gpus[machine.gpu.slug] = None
        at = tuple(
            question_parts.with_region(machine.cluster, price, self._catalogue).spec for price in self._places.values()
        )
        return SweptCluster(name=name, gpu=machine.gpu, at=at)

    def layout(self, item: Any) -> SweptLayout:
        """An item of the list of layouts."""
        if isinstance(item, Mapping) and item.get("auto") is not None:
            raise Refused(NOT_PLANNED)
        layout, opened = self._pinned("layout", Layout, item)
        return SweptLayout(layout=layout, open=opened)

    def recipe(self, item: Any) -> SweptRecipe:
        """An item of the list of recipes."""
        recipe, opened = self._pinned("recipe", Recipe, item)
        # each row without a price has its own problem
        problems = ranking_problems(recipe, self._plan.limits, is_priced=True) if self._is_open else []
        refuse(problems)
        return SweptRecipe(recipe=recipe, open=opened)

    def _pinned(self, part: str, spec: type[Part], item: Any) -> tuple[Part, dict[str, Any]]:
        """The pinned fields of an item, and those that a search may choose."""
        if not self._is_open:
            return read_spec(spec, item, part), {}
        pinned = constraints_of({part: item})[1][part]
        return read_spec(spec, pinned, part), {name: item[name] for name in item if name not in pinned}

    def price(self, item: Any) -> SweptPrice:
        """An item of the list of prices."""
        if isinstance(item, Mapping) and any(item.get(name) == ANY for name in SPREAD):
            message = f"{ANY} stands for several prices, and each row of a sweep has one"
            raise Refused(Problem(field="price", code="several_prices", message=message, fix="list them one by one"))
        question_parts.read_price(item, None, self._catalogue)
        place = list(self._places).index(question_parts.region_of_price(item, self._catalogue))
        return SweptPrice(place=place, of_gpu={gpu: self._of_gpu(item, gpu) for gpu in self._gpus})

    def _of_gpu(self, item: Any, gpu: str) -> PriceOfGpu:
        try:
            return PriceOfGpu(price=question_parts.read_price(item, gpu, self._catalogue).spec)
        except Refused as refused:
            return PriceOfGpu(price=None, problems=tuple(refused.problems))


def _list_of(item: Any) -> Any:
    return DescribedAs(Annotated[tuple[item, ...], Len(1, MOST_ITEMS)] | None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """Lists to cross, or questions one by one."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT | {
        "json_schema_extra": {
            "description": f"Lists to cross, {MOST_ROWS['estimate']:,} estimates or {MOST_ROWS['plan']:,} plans at "
            f"most; or {ROWS}, questions one by one."
        }
    }

    kind: SweepKind = "estimate"
    """estimate: each row is an answer of POST /v1/estimates. plan: the best plan of POST /v1/plans."""
    name: Annotated[str, Len(1, 200)] | None = None
    """What the team calls it."""
    columns: Annotated[tuple[Name, ...], Len(1, 64)] | None = None
    """Numbers of each row, by the names that cells give them; those that most callers want where absent."""
    models: Annotated[Any, _list_of(question_parts.ModelForm)] = None
    """What is trained."""
    clusters: Annotated[Any, _list_of(question_parts.ClusterForm)] = None
    """What it runs on."""
    layouts: Annotated[Any, _list_of(Layout | OpenLayout)] = None
    """How it is divided; of plans what is pinned or restricted; defaults alone where absent."""
    recipes: Annotated[Any, _list_of(Recipe | OpenRecipe)] = None
    """How it is trained; of plans micro_batch and recompute may be lists."""
    prices: Annotated[Any, _list_of(question_parts.PriceForm)] = None
    """What it costs; null in the list, or no list, for no price."""
    rows: Annotated[Any, _list_of(question_parts.QuestionRequest)] = None
    """Questions one by one, in place of the lists."""
    plan: Annotated[Any, DescribedAs(SweepPlan | None)] = None
    """How plans are ranked."""


FIELDS = field_names(SweepRequest)

PARTS = tuple(name.removesuffix("s") for name in LISTS)

REQUIRED_LISTS = {"models": EXAMPLES["model"], "clusters": EXAMPLES["cluster"], "recipes": '{"sequence_length": 4096}'}
"""Required lists, with an example item."""

DEFAULT_ITEMS: Mapping[str, Any] = {"layouts": {}, "prices": None}

Items = Mapping[str, Sequence[tuple[str, Any]]]
"""Distinct items of each list with their dotted paths."""

Picked = tuple[tuple[int, int, int, int, int], ...]
"""Positions in the lists of each row that is given one by one."""


def read_sweep(body: Mapping[str, Any], catalogue: Catalogue) -> Sweep:
    """Parse a request body."""
    if not isinstance(body, Mapping):
        raise Refused(not_an_object("", FIELDS))
    given = {name: value for name, value in body.items() if name not in {*LISTS, ROWS, PLAN}}
    options = read_spec(SweepRequest, checked_texts(given), "", whole="the sweep")
    metrics = named_metrics("columns", options.columns or DEFAULT_COLUMNS[options.kind], reserved_names(options.kind))
    plan = _plan(body, options)
    items, picked = (_crossed(body), None) if body.get(ROWS) is None else _rows(body)
    rows, most = prod(map(len, items.values())) if picked is None else len(picked), MOST_ROWS[options.kind]
    if rows > most:
        message = f"the lists make {rows:,} rows together, and a sweep of kind {options.kind} takes {most:,}"
        fix = "give fewer items, or several sweeps"
        raise Refused(Problem(field="", code="too_many_rows", message=message, fix=fix))
    reader = ItemReader(catalogue, options.kind, plan, [price for _, price in items["prices"]])
    axes = _axes(items, picked, reader)
    return Sweep(
        kind=options.kind,
        name=options.name,
        columns=tuple(metrics),
        plan=plan,
        axes=axes,
        versions=versions_of(catalogue, [calibration_id(cluster.gpu) for cluster in axes.clusters]),
    )


def _plan(body: Mapping[str, Any], options: SweepRequest) -> SweepPlan:
    plan_fields = body.get(PLAN)
    if plan_fields is None:
        return SweepPlan()
    if options.kind != "plan":
        message = "plan says how plans are ranked, and the rows of this sweep are estimates"
        raise Refused(Problem(PLAN, "not_planned", message, 'give "kind": "plan", or leave it out'))
    plan = read_spec(SweepPlan, plan_fields, PLAN)
    try:
        refuse_empty_range(plan.limits)
    except Refused as refused:
        raise refused_at(PLAN, refused) from None
    return plan


def _crossed(body: Mapping[str, Any]) -> Items:
    problems: list[Problem] = []
    items: dict[str, Sequence[tuple[str, Any]]] = {}
    for name in LISTS:
        given = body.get(name)
        if given is None and name in DEFAULT_ITEMS:
            items[name] = [(name, DEFAULT_ITEMS[name])]
        elif given is None:
            message = f"{name} is missing; it has no default, because every row depends on it"
            fix = f"give a list, e.g. [{REQUIRED_LISTS[name]}], or give {ROWS}"
            problems.append(Problem(field=name, code="required", message=message, fix=fix))
        elif not isinstance(given, list) or not 1 <= len(given) <= MOST_ITEMS:
            message = f"{name} is not a list of 1 to {MOST_ITEMS:,} {name}"
            problems.append(Problem(field=name, code="not_a_list", message=message, fix="give a list"))
        else:
            items[name] = [(f"{name}.{place}", item) for place, item in enumerate(given)]
    refuse(problems)
    return items


def _rows(body: Mapping[str, Any]) -> tuple[Items, Picked]:
    rows, beside = body[ROWS], [name for name in LISTS if body.get(name) is not None]
    if beside:
        message = f"{beside[0]} would change nothing, because {ROWS} tells every combination"
        raise Refused(Problem(field=beside[0], code="told_twice", message=message, fix=f"leave it or {ROWS} out"))
    if not isinstance(rows, list) or not rows:
        raise Refused(Problem(ROWS, "not_a_list", f"{ROWS} is not a list of questions", "give one"))
    problems = [problem for place, row in enumerate(rows) for problem in _row_problems(place, row)]
    refuse(problems[:MOST_PROBLEMS])
    known_items: dict[str, dict[str, tuple[int, str, Any]]] = {name: {} for name in LISTS}
    picked = []
    for place, row in enumerate(rows):
        positions = []
        for name, part in zip(LISTS, PARTS, strict=True):
            item = DEFAULT_ITEMS[name] if row.get(part) is None and name in DEFAULT_ITEMS else row[part]
            known = known_items[name]
            positions.append(
                known.setdefault(json.dumps(item, sort_keys=True), (len(known), f"{ROWS}.{place}.{part}", item))[0]
            )
        picked.append((positions[0], positions[1], positions[2], positions[3], positions[4]))
    items = {name: [(where, item) for _, where, item in known.values()] for name, known in known_items.items()}
    return items, tuple(picked)


def _row_problems(place: int, row: Any) -> list[Problem]:
    where = f"{ROWS}.{place}"
    if not isinstance(row, Mapping):
        return [not_an_object(where, PARTS)]
    unknown = [name for name in row if name not in PARTS][:MOST_PROBLEMS]
    problems = [unknown_field(where, name, {*PARTS}) for name in unknown]
    for name, example in REQUIRED_LISTS.items():
        part = name.removesuffix("s")
        if row.get(part) is None:
            message = f"{part} is missing; it has no default, because every number depends on it"
            fix = f"give {part}, e.g. {example}"
            problems.append(Problem(field=f"{where}.{part}", code="required", message=message, fix=fix))
    return problems


def _axes(items: Items, picked: Picked | None, reader: ItemReader) -> Axes:
    problems: list[Problem] = []

    def read(name: str, part: Callable[[Any], Part]) -> tuple[Part, ...]:
        found: list[Part] = []
        for where, item in items[name]:
            if len(problems) >= MOST_PROBLEMS:
                break
            try:
                found.append(part(item))
            except Refused as refused:
                problems.extend(refused_at(where, refused, name.removesuffix("s")).problems)
        return tuple(found)

    axes = Axes(
        models=read("models", reader.model),
        clusters=read("clusters", reader.cluster),
        layouts=read("layouts", reader.layout),
        recipes=read("recipes", reader.recipe),
        prices=read("prices", reader.price),
        picked=picked,
    )
    refuse(problems[:MOST_PROBLEMS])
    return axes
