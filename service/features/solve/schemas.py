"""Requests for solve: a question with one open field."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args

from annotated_types import Ge, Gt, Interval, Le, Lt

from service.answers.plans import UnknownName
from service.catalogue import Catalogue
from service.errors import Problem, Refused, did_you_mean, nearest, quoted
from service.estimator.question import Name, Strict
from service.features.compare.schemas import CLUSTERS, PRICES, QUESTION, ClusterList, PriceList
from service.planner.feasibility import UNKNOWNS, SolveLimits
from service.planner.sizing import SERVING_MFU_FRACTION
from service.validation.forms import DescribedAs
from service.validation.problems import Collector, not_an_object
from service.validation.question_parts import PARTS, JobQuestion
from service.validation.questions import ParsedQuestion, read_question
from service.validation.reading import field_names, read_spec

LIMITS, SERVING = "limits", "serving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving(Strict):
    """Hardware that serves the trained model, for a limit on the cost of its tokens."""

    gpu: Name | None = None
    """Catalogue name of the GPU; the question's where absent. Its dense bf16 peak counts."""
    usd_per_gpu_hour: Annotated[float, Ge(1e-4), Lt(1e6)] | None = None
    """Price of the GPU; the question's where absent."""
    mfu_fraction: Annotated[float, Gt(0), Le(1)] = SERVING_MFU_FRACTION
    """Share of that peak that serving reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveRequest(Strict):
    """A question with one open field, and what the answer has to meet."""

    unknown: UnknownName
    """The open field: the largest micro_batch, sequence_length, training_tokens, num_hidden_layers or hidden_size, the
    fewest gpus, the plan of a global_batch, the cheapest cluster, or (model) the size that makes most of a budget."""
    multiple_of: Annotated[int, Interval(ge=1, le=1 << 20)] = 1
    """The value is a multiple of this; read where the open field is one number."""
    question: Annotated[Any, DescribedAs(JobQuestion | None)] = None
    """What POST /v1/estimates takes; the open field may be any legal value, or absent where it has a default."""
    limits: Annotated[Any, DescribedAs(SolveLimits | None)] = None
    """Limits beside fitting into memory; null for none."""
    serving: Annotated[Any, DescribedAs(Serving | None)] = None
    """Hardware that serves the trained model; read with limits.inference_usd_per_million_tokens."""
    clusters: ClusterList = None
    """Clusters to compare the job on; null for the cluster of the question alone."""
    prices: PriceList = None
    """Prices for clusters that give none themselves; null for the question's price, if it has one."""


SOLVE_FIELDS = field_names(SolveRequest)


def read_request(body: Mapping[str, Any]) -> SolveRequest:
    """Parse a request body, except for its question and its lists."""
    problems = Collector()
    request = problems.read(_request, body)
    limits = problems.read(read_spec, SolveLimits, {} if body.get(LIMITS) is None else body[LIMITS], LIMITS)
    serving = problems.read(read_spec, Serving, {} if body.get(SERVING) is None else body[SERVING], SERVING)
    question = body.get(QUESTION)
    if question is not None and not isinstance(question, Mapping):
        problems.add(not_an_object(QUESTION, PARTS))
    problems.refuse()
    if request is None or limits is None:
        raise Refused
    unused = [name for name in (CLUSTERS, PRICES) if body.get(name) is not None and request.unknown != "cluster"]
    if request.multiple_of > 1 and request.unknown not in UNKNOWNS:
        unused.append("multiple_of")
    for name in unused:
        message = f"{name} would change nothing where {request.unknown} is open, so it is refused"
        problems.add(Problem(field=name, code="not_read", message=message, fix="leave it out"))
    if body.get(SERVING) is not None and limits.inference_usd_per_million_tokens is None:
        message = "serving would change nothing, because no limit bounds the cost of tokens"
        fix = "give limits.inference_usd_per_million_tokens, or leave it out"
        problems.add(Problem(field=SERVING, code="not_read", message=message, fix=fix))
    problems.refuse()
    return replace(request, limits=limits, serving=serving)


def _request(body: Mapping[str, Any]) -> SolveRequest:
    given = {name: value for name, value in body.items() if value is not None or name not in SOLVE_FIELDS}
    try:
        return read_spec(SolveRequest, given, "", whole="the body")
    except Refused as refused:
        problems, name, names = refused.problems, given.get("unknown"), get_args(UnknownName)
        if isinstance(name, str):
            likely = [known for known in names if known.rpartition(".")[2] == name.lower()] or nearest(name, names)
            fix = did_you_mean(likely) or f"give one of {', '.join(names)}"
            message = f"unknown names {quoted(name)}, no field that can be left open"
            problems = tuple(replace(p, message=message, fix=fix) if p.field == "unknown" else p for p in problems)
        raise Refused(*problems) from None


def read_open_question(request: SolveRequest, catalogue: Catalogue) -> ParsedQuestion:
    """Parse the question; the value of its open field only has to be legal."""
    if request.question is None:
        message = "question is missing; it gives everything but the open field"
        fix = "give a body of POST /v1/estimates"
        raise Refused(Problem(field=QUESTION, code="required", message=message, fix=fix))
    try:
        return read_question(_with_open_field(request.question, request.unknown), catalogue)
    except Refused as refused:
        raise Refused(*map(in_question, refused.problems)) from None


def in_question(problem: Problem) -> Problem:
    """A problem of the question, by its field in the request."""
    if problem.field.partition(".")[0] in SOLVE_FIELDS:
        return problem
    return replace(problem, field=f"{QUESTION}.{problem.field}".removesuffix("."))


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
