"""Questions: a request body, with names and presets, becomes a `Question` of plain facts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from service.answers.estimates import Source
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.estimator.question import Layout, Question, Recipe
from service.validation.open_fields import NOT_PLANNED, PLANNED_FIELDS, split_layout
from service.validation.problems import Collector, not_an_object, unknown_field
from service.validation.question_parts import PARTS, read_cluster, read_model, read_price, with_region
from service.validation.reading import Parsed, read_spec
from service.validation.understanding import at_home, understood

EXAMPLES = {
    "model": '"llama-3.1-8b"',
    "cluster": '{"gpu": "h100-sxm5-80gb", "gpus": 8}',
}

Spec = TypeVar("Spec")


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """A question with its assumptions, warnings and sources."""

    question: Question
    """The question with names replaced by facts; defaults that depend on other fields are still unset."""
    assumptions: tuple[str, ...]
    """Assumptions made while reading it."""
    warnings: tuple[str, ...]
    """Warnings for the caller."""
    sources: tuple[Source, ...] = ()
    """Catalogue rows that it uses."""


Planner = Callable[[ParsedQuestion, Mapping[str, tuple[Any, ...]]], ParsedQuestion]
"""Fills the open fields of a question, given the values that some of them may take."""


def read_question(
    body: Mapping[str, Any], catalogue: Catalogue, *, beside: tuple[str, ...] = (), planner: Planner | None = None
) -> ParsedQuestion:
    """Read a question; where plain JSON of it is refused, what it means by other names, quantities and spellings.

    Without a planner, a question whose layout is to be planned is refused.
    """
    try:
        read, allowed = _read(body, catalogue, beside)
    except Refused as refused:
        if not isinstance(body, Mapping):
            raise
        meant = understood(body)
        if meant is None:
            raise at_home(refused.problems) from None
        try:
            read, allowed = _read(meant.body, catalogue, beside)
        except Refused as again:
            raise meant.refused(again.problems) from None
        if meant.problems:
            raise meant.refused() from None
        read = replace(read, assumptions=(*meant.notes, *read.assumptions))
    if allowed is None:
        return read
    if planner is None:
        raise Refused(NOT_PLANNED)
    return planner(read, allowed)


def _read(
    body: Mapping[str, Any], catalogue: Catalogue, beside: tuple[str, ...]
) -> tuple[ParsedQuestion, Mapping[str, tuple[Any, ...]] | None]:
    """A question without its open fields, and the values that these may take; None where its layout is given."""
    if not isinstance(body, Mapping):
        raise Refused(not_an_object("", PARTS))
    unknown = [name for name in body if name not in PARTS]
    collected = _PartCollector()
    collected.add(*(unknown_field("", name, {*PARTS, *beside}) for name in unknown[:MOST_PROBLEMS]))
    allowed, body = collected.read(split_layout, body) or (None, {**body, "layout": None})
    model = collected.spec(lambda: read_model(_required(body, "model"), catalogue))
    recipe = collected.read(read_spec, Recipe, _or_empty(body.get("recipe")), "recipe")
    layout = collected.read(partial(read_spec, beside=PLANNED_FIELDS), Layout, _or_empty(body.get("layout")), "layout")
    machine = collected.spec(lambda: read_cluster(_required(body, "cluster"), catalogue))
    gpu = None if machine is None else machine.gpu.slug
    price = collected.spec(read_price, body.get("price"), gpu, catalogue)
    place = None if machine is None else machine.cluster
    cluster = None if place is None else collected.spec(with_region, place, body.get("price"), catalogue)
    if model is None or recipe is None or layout is None or machine is None or cluster is None or collected.problems:
        raise Refused(*collected.problems)
    parsed = ParsedQuestion(
        Question(model=model, recipe=recipe, layout=layout, cluster=cluster, gpu=machine.gpu, price=price),
        tuple(collected.assumptions),
        tuple(collected.warnings),
        tuple(collected.sources),
    )
    return parsed, allowed


class _PartCollector(Collector):
    """Problems, assumptions, warnings and sources of the parts read so far."""

    def __init__(self) -> None:
        super().__init__()
        self.assumptions: list[str] = []
        self.warnings: list[str] = []
        self.sources: list[Source] = []

    def spec(self, reader: Callable[..., Parsed[Spec]], *arguments: Any) -> Spec | None:
        """The object of one part, or None where it is refused."""
        parsed = self.read(reader, *arguments)
        if parsed is None:
            return None
        self.assumptions.extend(parsed.assumptions)
        self.warnings.extend(parsed.warnings)
        self.sources.extend(parsed.sources)
        return parsed.spec


def _or_empty(part: object) -> object:
    """A part, or an empty object for an absent one, so that its problem names the missing field."""
    return {} if part is None else part


def _required(body: Mapping[str, Any], name: str) -> object:
    if body.get(name) is not None:
        return body[name]
    message = f"{name} is missing; it has no default, because every number depends on it"
    raise Refused(Problem(field=name, code="required", message=message, fix=f"give {name}, e.g. {EXAMPLES[name]}"))
