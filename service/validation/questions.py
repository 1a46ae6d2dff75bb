"""Questions: a request body, with names and presets, becomes a `Question` of plain facts.

Every part of the body is read before anything is refused, so one answer names all that is to be mended.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from service.answers.estimates import Source
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.estimator.question import Layout, Question, Recipe
from service.validation.clusters import placed, read_cluster
from service.validation.models import read_model
from service.validation.prices import read_price
from service.validation.problems import not_an_object, unknown_field
from service.validation.question_parts import PARTS
from service.validation.reading import Read
from service.validation.specs import read_spec

EXAMPLES = {
    "model": '"llama-3.1-8b"',
    "cluster": '{"gpu": "h100-sxm5-80gb", "gpus": 8}',
}
"""What the parts without a default may look like."""

Spec = TypeVar("Spec")


@dataclass(frozen=True, slots=True)
class ReadQuestion:
    """A question as understood, and what had to be assumed to understand it."""

    question: Question
    """The question, names replaced by facts; defaults that depend on other fields are still open."""
    assumptions: tuple[str, ...]
    """What was assumed while reading it."""
    warnings: tuple[str, ...]
    """What the caller should look at."""
    sources: tuple[Source, ...] = ()
    """Rows that it rests on, as answers name them."""


def read_question(body: Mapping[str, Any], catalogue: Catalogue, *, beside: tuple[str, ...] = ()) -> ReadQuestion:
    """The question that a request body asks."""
    if not isinstance(body, Mapping):
        raise Refused(not_an_object("", PARTS))
    unknown = [name for name in body if name not in PARTS]
    collected = _Collected([unknown_field("", name, {*PARTS, *beside}) for name in unknown[:MOST_PROBLEMS]])
    model = collected.read(lambda: read_model(_needed(body, "model"), catalogue))
    recipe = collected.read(lambda: Read(read_spec(Recipe, _or_empty(body.get("recipe")), "recipe")))
    layout = collected.read(lambda: Read(read_spec(Layout, _or_empty(body.get("layout")), "layout")))
    machine = collected.read(lambda: read_cluster(_needed(body, "cluster"), catalogue))
    gpu = None if machine is None else machine.gpu.slug
    price = collected.read(lambda: read_price(body.get("price"), gpu, catalogue))
    place = None if machine is None else machine.cluster
    cluster = None if place is None else collected.read(lambda: placed(place, body.get("price"), catalogue))
    if model is None or recipe is None or layout is None or machine is None or cluster is None or collected.problems:
        raise Refused(*collected.problems)
    return ReadQuestion(
        Question(model=model, recipe=recipe, layout=layout, cluster=cluster, gpu=machine.gpu, price=price),
        tuple(collected.assumptions),
        tuple(collected.warnings),
        tuple(collected.sources),
    )


class _Collected:
    """What the parts of a body yield while they are read one after another."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.assumptions: list[str] = []
        self.warnings: list[str] = []
        self.sources: list[Source] = []

    def read(self, part: Callable[[], Read[Spec]]) -> Spec | None:
        """The object of one part, or None where it is refused."""
        try:
            found = part()
        except Refused as refused:
            self.problems.extend(refused.problems)
            return None
        self.assumptions.extend(found.assumptions)
        self.warnings.extend(found.warnings)
        self.sources.extend(found.sources)
        return found.spec


def _or_empty(part: object) -> object:
    """An absent recipe or layout is one without fields: the refusal then names the field that is missing."""
    return {} if part is None else part


def _needed(body: Mapping[str, Any], name: str) -> object:
    if body.get(name) is not None:
        return body[name]
    message = f"{name} is missing; it has no default, because every number depends on it"
    raise Refused(Problem(field=name, code="required", message=message, fix=f"give {name}, e.g. {EXAMPLES[name]}"))
