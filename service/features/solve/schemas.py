"""Requests for solve: a question with one open field."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, TypeVar

from annotated_types import Ge, Gt, Interval, Le, Lt

from service.answers.solutions import UnknownName
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused, did_you_mean, nearest
from service.estimator.question import STRICT, Name
from service.features.compare.schemas import CLUSTERS, PRICES, QUESTION
from service.planner.feasibility import UNKNOWNS, SolveLimits
from service.planner.sizing import SERVING_MFU_FRACTION
from service.validation.problems import not_an_object, unknown_field
from service.validation.questions import ParsedQuestion, read_question
from service.validation.specs import field_names, read_spec, schema_of

LIMITS, SERVING = "limits", "serving"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOptions:
    """The open field, and a constraint on its value."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    unknown: UnknownName
    """The open field: the largest micro_batch, sequence_length, training_tokens, num_hidden_layers or hidden_size, the
    fewest gpus, the plan of a global_batch, the cheapest cluster, or (model) the size that makes most of a budget."""
    multiple_of: Annotated[int, Interval(ge=1, le=1 << 20)] = 1
    """What the value has to be a multiple of; read where it is one number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What the trained model is used on, where a limit says what its tokens may cost."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    gpu: Name | None = None
    """Catalogue name of the GPU; the question's where absent. Its dense bf16 peak counts."""
    usd_per_gpu_hour: Annotated[float, Ge(1e-4), Lt(1e6)] | None = None
    """What it costs; the question's price where absent."""
    mfu_fraction: Annotated[float, Gt(0), Le(1)] = SERVING_MFU_FRACTION
    """Share of that peak that tokens in use keep busy."""


SOLVE_FIELDS = (*field_names(SolveOptions), QUESTION, LIMITS, SERVING, CLUSTERS, PRICES)
"""Fields of the body."""


Part = TypeVar("Part")

OWN = (LIMITS, SERVING, "multiple_of", "unknown", CLUSTERS, PRICES, QUESTION)
"""Fields of the body itself; the fields of all other problems are those of the question."""


@dataclass(frozen=True, slots=True)
class SolveRequest:
    """What a request body asks for."""

    options: SolveOptions
    """Which field is open."""
    limits: SolveLimits
    """Limits of the job."""
    question: Mapping[str, Any] | None
    """The unparsed question; None without one."""
    lists: Mapping[str, Any]
    """The unparsed lists of clusters and prices."""
    serving: Serving
    """What the trained model is used on."""


def read_request(body: Mapping[str, Any]) -> SolveRequest:
    """Parse a request body, except for its question and its lists."""
    unknown = [name for name in body if name not in SOLVE_FIELDS][:MOST_PROBLEMS]
    problems = [unknown_field("", name, {*SOLVE_FIELDS}, "the body") for name in unknown]
    options = collected(lambda: _options(body), problems)
    limits = collected(lambda: _limits(body.get(LIMITS)), problems)
    serving = collected(lambda: _serving(body.get(SERVING)), problems)
    question = body.get(QUESTION)
    if question is not None and not isinstance(question, Mapping):
        problems.append(not_an_object(QUESTION, ["model", "recipe", "layout", "cluster", "price"]))
    if problems or options is None or limits is None or serving is None:
        raise Refused(*problems)
    lists = {name: body[name] for name in (CLUSTERS, PRICES) if body.get(name) is not None}
    idle = [_idle(name, options.unknown) for name in lists if options.unknown != "cluster"]
    if options.multiple_of > 1 and options.unknown not in UNKNOWNS:
        idle.append(_idle("multiple_of", options.unknown))
    if body.get(SERVING) is not None and limits.inference_usd_per_million_tokens is None:
        message = "serving would change nothing, because no limit says what tokens may cost"
        fix = "give limits.inference_usd_per_million_tokens, or leave it out"
        idle.append(Problem(field=SERVING, code="not_read", message=message, fix=fix))
    if idle:
        raise Refused(*idle)
    return SolveRequest(options, limits, question, lists, serving)


def read_open_question(request: SolveRequest, catalogue: Catalogue) -> ParsedQuestion:
    """Parse the question; the value of its open field only has to be legal."""
    if request.question is None:
        message = "question is missing; it says everything but the open field"
        fix = "give what POST /v1/estimates takes"
        raise Refused(Problem(field=QUESTION, code="required", message=message, fix=fix))
    try:
        return read_question(_with_open_field(request.question, request.options.unknown), catalogue)
    except Refused as refused:
        raise Refused(*map(in_question, refused.problems)) from None


def in_question(problem: Problem) -> Problem:
    """A problem of the question, by its field in the request."""
    if problem.field.partition(".")[0] in OWN:
        return problem
    return replace(problem, field=f"{QUESTION}.{problem.field}".removesuffix("."))


def collected(part: Callable[[], Part], problems: list[Problem]) -> Part | None:
    """Parse a part of a request; None if refused, with its problems collected."""
    try:
        return part()
    except Refused as refused:
        problems.extend(refused.problems)
        return None


def _options(body: Mapping[str, Any]) -> SolveOptions:
    given = {name: body[name] for name in field_names(SolveOptions) if body.get(name) is not None}
    names: Sequence[str] = schema_of(SolveOptions)["properties"]["unknown"]["enum"]
    name = given.get("unknown")
    if isinstance(name, str) and name not in names:
        likely = [known for known in names if known.rpartition(".")[2] == name.lower()] or nearest(name, names)
        fix = did_you_mean(likely) or f"give one of {', '.join(names)}"
        message = "unknown names no field that can be left open"
        raise Refused(Problem(field="unknown", code="not_a_choice", message=message, fix=fix))
    return read_spec(SolveOptions, given, "", beside=SOLVE_FIELDS)


def _limits(value: object) -> SolveLimits:
    return SolveLimits() if value is None else read_spec(SolveLimits, value, LIMITS)


def _serving(value: object) -> Serving:
    return Serving() if value is None else read_spec(Serving, value, SERVING)


def _idle(name: str, unknown: str) -> Problem:
    message = f"{name} would change nothing where {unknown} is open, so it is refused"
    return Problem(field=name, code="not_read", message=message, fix="leave it out")


def _with_open_field(question: Mapping[str, Any], unknown: str) -> Mapping[str, Any]:
    """The question with its required open field filled if omitted."""
    if unknown == "recipe.sequence_length":
        recipe = question.get("recipe")
        if recipe is None or isinstance(recipe, Mapping):
            return {**question, "recipe": {"sequence_length": 1, **(recipe or {})}}
    cluster = question.get("cluster")
    if unknown == "cluster.gpus" and isinstance(cluster, Mapping) and not {"preset", "nodes", "gpus"} & cluster.keys():
        return {**question, "cluster": {**cluster, "gpus": 1}}
    return question
