"""Requests for a check: a question or a launcher's command, with limits, free GPUs and a deadline."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from annotated_types import Ge, Gt, Le, Lt, MaxLen

from service.answers.checks import MOST_FREE
from service.answers.exports import Imported
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.estimator.question import STRICT
from service.features.exports.exports import import_file
from service.formats.program import SCRIPT_FORMAT, training_in
from service.formats.text import LONGEST_FILE_BYTES
from service.validation.clusters import read_cluster
from service.validation.merge_patch import apply_merge_patch
from service.validation.specs import field_names, read_spec
from service.validation.text import single_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the run may take at most."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    days: Annotated[float, Gt(0), Lt(1e6)] | None = None
    """Wall time of the whole run."""
    cost_usd: Annotated[float, Ge(0), Lt(1e15)] | None = None
    """Cost of the whole run."""


MOST_UNKNOWN = 8
"""Most unknown settings that a check names."""

FormatName = Literal["script", "megatron-lm", "nanotron", "torchtitan", "deepspeed", "accelerate"]
"""A shell script that starts training, or the kind of file that says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The launcher's own words for a job."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    format: FormatName
    """Kind of file; script is a shell script, with the files that it writes and the command that reads them."""
    content: Annotated[str, MaxLen(LONGEST_FILE_BYTES)]
    """The file, or the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How long the caller waits."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    deadline_seconds: Annotated[float, Ge(0), Le(60)] = 0.005
    """Seconds until the verdict has to come; alternatives are tried while they last."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A job that wants to start, as it was asked for."""

    question: Mapping[str, Any]
    """What POST /v1/estimates takes."""
    limits: Limits
    """What the run may take."""
    free_pool: tuple[Any, ...]
    """Clusters of free GPUs, each as a question takes one."""
    deadline_seconds: float
    """Seconds until the verdict has to come."""
    warnings: tuple[str, ...]
    """What was not understood of the launcher's words."""


BESIDE = ("limits", "launch", "free_pool", "deadline_seconds")
"""Fields beside the question."""

FIELDS_BESIDE = (*BESIDE, *(f"limits.{name}" for name in field_names(Limits)))
"""Fields beside the question, nested ones included."""

Part = TypeVar("Part")


class Problems:
    """Collected problems of the parts of a body."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def read(self, part: Callable[[], Part]) -> Part | None:
        """Parse a part; None if refused."""
        try:
            return part()
        except Refused as refused:
            self.found.extend(refused.problems)
            return None


def read_check(body: Mapping[str, Any], catalogue: Catalogue, problems: Problems) -> CheckRequest:
    """Parse a request body; problems are collected."""
    question = {name: value for name, value in body.items() if name not in BESIDE}
    warnings: tuple[str, ...] = ()
    imported = None if body.get("launch") is None else problems.read(lambda: read_launch(body["launch"]))
    if imported is not None:
        question = with_launch(question, imported)
        warnings = _unknown_settings(imported)
    free_pool = problems.read(lambda: _free_pool(body.get("free_pool"), catalogue)) or ()
    if free_pool and question.get("cluster") is None:
        question["cluster"], *others = free_pool
        free_pool = tuple(others)
    limits = problems.read(lambda: _limits(body.get("limits")))
    given = {} if body.get("deadline_seconds") is None else {"deadline_seconds": body["deadline_seconds"]}
    waiting = problems.read(lambda: read_spec(Waiting, given, "")) or Waiting()
    return CheckRequest(question, limits or Limits(), free_pool, waiting.deadline_seconds, warnings)


def read_launch(value: object) -> Imported:
    """Import a launch file or script."""
    launch = read_spec(Launch, value, "launch")
    name, text = training_in(launch.content) if launch.format == SCRIPT_FORMAT else (launch.format, launch.content)
    try:
        return import_file(name, text)
    except Refused as refused:
        raise Refused(*(_placed(problem, f"launch.{problem.field}") for problem in refused.problems)) from None


def with_launch(question: Mapping[str, Any], imported: Imported) -> dict[str, Any]:
    """A question with its gaps filled from an import."""
    parts = {"model": imported.model, "recipe": dict(imported.recipe), "layout": dict(imported.layout)}
    filled = {
        name: apply_merge_patch(value, question[name]) if name in question else value for name, value in parts.items()
    }
    return {**question, **{name: value for name, value in filled.items() if value is not None}}


def _unknown_settings(imported: Imported) -> tuple[str, ...]:
    named = ", ".join(one.name for one in imported.unknown[:MOST_UNKNOWN])
    return (single_line(f"settings that were not understood count for nothing: {named}"),) if named else ()


def _limits(value: object) -> Limits:
    return Limits() if value is None else read_spec(Limits, value, "limits")


def _free_pool(value: object, catalogue: Catalogue) -> tuple[Any, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MOST_FREE:
        message = f"free_pool is not a list of at most {MOST_FREE} clusters"
        fix = 'give what cluster takes, such as [{"gpu": "h100-sxm5-80gb", "gpus": 64}]'
        raise Refused(Problem(field="free_pool", code="not_a_list", message=message, fix=fix))
    problems: list[Problem] = []
    for place, cluster in enumerate(value):
        try:
            read_cluster(cluster, catalogue)
        except Refused as refused:
            problems += [_placed(problem, f"free_pool[{place}]{problem.field[7:]}") for problem in refused.problems]
    if problems:
        raise Refused(*problems[:MOST_PROBLEMS])
    return tuple(value)


def _placed(problem: Problem, field: str) -> Problem:
    return Problem(field=field, code=problem.code, message=problem.message, fix=problem.fix)
