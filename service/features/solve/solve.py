"""Solve for one open field: the best value within the limits, the next value that fails, and why."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from service.answers.estimates import Answer
from service.answers.plans import Evidence, KeyNumbers, NextValue, OptimalSize, Solution, WhyNot
from service.answers.rows import ChosenCluster, ComparedRow
from service.catalogue import Catalogue
from service.errors import Problem, Refused, refuse
from service.estimator.answer import Interval
from service.estimator.constants import calibration_id
from service.estimator.question import Gpu, Price, Question
from service.estimator.run.cost import rent_usd
from service.features.compare.compare import ANSWERED, compare_steps
from service.features.compare.schemas import CLUSTERS, PRICES, QUESTION
from service.features.estimates.answers import answer, versions_of
from service.features.estimates.metrics import COLUMNS
from service.features.solve.schemas import SERVING, SolveRequest, in_question, read_open_question, read_request
from service.planner import feasibility
from service.planner.sizing import Server, affordable_inference_flop, inference_usd_per_million_tokens, optimal_size
from service.planner.solve import Threshold, plan_batch, solve_steps
from service.planner.steps import Steps, outcome
from service.units import readable
from service.validation.questions import ParsedQuestion
from service.validation.reading import Parsed, assumptions_of, field_names, to_bytes, to_wire, with_rows

CHANGING = ("model", "recipe", "layout", "cluster")
"""Parts of a question that a value may change."""

NUMBERS = tuple(name for name in field_names(KeyNumbers) if name not in {"id", "verdict"})


def solution_of(
    request: SolveRequest,
    parsed: ParsedQuestion,
    threshold: Threshold,
    value: Any,
    catalogue: Catalogue,
    warnings: tuple[str, ...] = (),
) -> Solution:
    """The solution for a threshold, with the numbers of both values."""
    found, beyond = threshold.found, threshold.beyond
    of_value = None if found is None else _answered(parsed, found.question, catalogue)
    of_next = _answered(parsed, beyond.question, catalogue) if beyond is not None and beyond.is_legal else None
    first_answer = of_value or of_next
    unknown = feasibility.UNKNOWNS.get(request.unknown)
    why_not = None if beyond is None else beyond.why_not
    gap = None if threshold.gap is None else threshold.gap.why_not
    gap_warnings = () if threshold.gap is None or gap is None else (
        f"not every smaller value meets the limits ({threshold.gap.value}: {gap.message})",
    )  # fmt: skip
    return Solution(
        unknown=request.unknown,
        value=value,
        next=None if beyond is None or why_not is None else NextValue(value=beyond.value, why_not=why_not),
        changes={} if found is None else changed_fields(parsed.question, found.question),
        evidence=Evidence(value=_numbers(of_value), next=_numbers(of_next), tried=threshold.tried),
        assumptions=(
            *(unknown.assumptions if unknown else ()),
            *(first_answer.assumptions if first_answer else parsed.assumptions),
        ),
        warnings=(*warnings, *gap_warnings, *(first_answer.warnings if first_answer else parsed.warnings)),
        versions=versions_of(catalogue, [calibration_id(parsed.question.gpu)]),
    )


def changed_fields(before: Question, after: Question) -> dict[str, Any]:
    parts = [(part, getattr(before, part), getattr(after, part)) for part in CHANGING]
    return {
        f"{part}.{field.name}": to_wire(getattr(new, field.name))
        for part, old, new in parts
        for field in fields(new)
        if getattr(old, field.name) != getattr(new, field.name)
    }


def _answered(parsed: ParsedQuestion, question: Question, catalogue: Catalogue) -> Answer:
    return answer(replace(parsed, question=question), catalogue, advise=False)


def _numbers(found: Answer | None) -> KeyNumbers | None:
    """Key numbers of an answer; those of the whole run are null without its tokens."""
    if found is None:
        return None
    parts = {name: getattr(found, COLUMNS[name].partition(".")[0]) for name in NUMBERS}
    values: dict[str, Any] = {name: getattr(part, name, None) for name, part in parts.items()}
    return KeyNumbers(id=found.id, verdict=found.verdict, **values)


def solve_cluster(request: SolveRequest, catalogue: Catalogue) -> Steps[Solution]:
    """The cheapest of the listed clusters and prices."""
    problems = [
        Problem(
            field=f"limits.{name}",
            code="limit_not_read",
            message=f"{name} does not limit the choice of a cluster",
            fix=f"leave it out; it takes {', '.join(('headroom_fraction', *feasibility.RUN_LIMITS))}",
        )
        for name in feasibility.SIZE_LIMITS
        if getattr(request.limits, name) is not None
    ]
    refuse(problems)
    lists = {CLUSTERS: request.clusters, PRICES: request.prices}
    body = {QUESTION: request.question, **lists, "sort_by": "cost_usd", "columns": [*NUMBERS]}
    compared = (yield from compare_steps(body, catalogue)).answer
    priced = [row for row in compared.rows if row.status == ANSWERED and row.numbers["cost_usd"] is not None]
    if not priced:
        reasons = [row.reason for row in compared.rows if row.reason]
        all_are_refused = len(reasons) == len(compared.rows) and reasons
        message = reasons[0] if all_are_refused else "no cost is known on any of the clusters"
        fix = "give question.recipe.training_tokens, and prices of the clusters' GPUs"
        raise Refused(Problem(field=CLUSTERS, code="no_cost_known", message=message, fix=fix))
    by_cost = sorted(priced, key=lambda row: row.numbers["cost_usd"]["value"])
    checked = [(row, _why_not(row, request.limits)) for row in by_cost]
    place = next((place for place, (_, why_not) in enumerate(checked) if why_not is None), None)
    best = None if place is None else checked[place][0]
    beyond = checked[_nearest(checked) if place is None else place - 1] if place != 0 else None
    return Solution(
        unknown=request.unknown,
        value=None if best is None else _chosen(best),
        next=None if beyond is None or beyond[1] is None else NextValue(value=_chosen(beyond[0]), why_not=beyond[1]),
        changes={},
        evidence=Evidence(
            value=None if best is None else _numbers_of_row(best),
            next=None if beyond is None else _numbers_of_row(beyond[0]),
            tried=len(compared.rows),
        ),
        assumptions=() if best is None else best.assumptions,
        warnings=_warnings(compared.rows, best),
        versions=compared.versions,
    )


def _why_not(row: ComparedRow, limits: feasibility.SolveLimits) -> WhyNot | None:
    numbers = _numbers_of_row(row)
    if numbers.device_peak_bytes is None or numbers.usable_bytes is None or numbers.oom_probability_fraction is None:
        return None
    missing = feasibility.memory_missing(
        numbers.device_peak_bytes, numbers.usable_bytes, numbers.oom_probability_fraction, limits
    )
    return missing or feasibility.limits_missed(
        {name: getattr(numbers, name) for name in feasibility.RUN_LIMITS}, limits
    )


def _nearest(checked: list[tuple[ComparedRow, WhyNot | None]]) -> int:
    """Nearest row if none is within the limits: one that fits before one that does not, then the cheapest."""
    lacks = [0.0 if why_not is None else why_not.missing_bytes or 0.0 for _, why_not in checked]
    return lacks.index(min(lacks))


def _numbers_of_row(row: ComparedRow) -> KeyNumbers:
    values: dict[str, Any] = {
        name: Interval(**number) if isinstance(number, Mapping) else number for name, number in row.numbers.items()
    }
    return KeyNumbers(id=row.id, verdict=row.verdict, **values)


def _chosen(row: ComparedRow) -> ChosenCluster:
    return ChosenCluster(**{name: getattr(row, name) for name in field_names(ChosenCluster)})


def _warnings(rows: Any, found: ComparedRow | None) -> tuple[str, ...]:
    refused = sum(row.status != ANSWERED for row in rows)
    refusals = (f"{refused} of {len(rows)} rows are refused; POST /v1/compare gives the reasons",) if refused else ()
    return (*refusals, *(found.warnings if found is not None else ()))


SIX_FLOP = "a run takes 6 FLOP for each parameter and token; attention is left out"
LEAST_INFERENCE_FLOP = 2.0
"""FLOP of one token at inference in a model of one parameter."""


def solve_size(request: SolveRequest, catalogue: Catalogue) -> Steps[Solution]:
    """The best size for a FLOP budget, or for the FLOP that the model of the question gets within time and money."""
    limits = request.limits
    _refuse_two_budgets(request)
    parsed = None if limits.total_flop is not None else read_open_question(request, catalogue)
    server = _server(request, parsed, catalogue)
    cap = _inference_cap(request, None if server is None else server.spec)
    if parsed is None:
        total_flop = float(limits.total_flop or 0)
        solution = Solution(
            unknown=request.unknown,
            value=None,
            next=None,
            changes={},
            evidence=Evidence(value=None, next=None, tried=0),
            assumptions=(SIX_FLOP,),
            warnings=(),
            versions=versions_of(catalogue, ()),
        )
    else:
        run = replace(limits, inference_per_token_flop=None, inference_usd_per_million_tokens=None)
        threshold = yield from solve_steps(parsed.question, "recipe.training_tokens", run)
        if threshold.found is None:
            return solution_of(request, parsed, threshold, None, catalogue)
        total_flop, solution = _affordable_flop(request, parsed, threshold, catalogue)
    if server is not None:
        solution = replace(solution, assumptions=(*solution.assumptions, *server.assumptions))
    return _with_size(solution, total_flop, cap, None if server is None else server.spec)


def _with_size(bare: Solution, total_flop: float, cap: float | None, server: Server | None) -> Solution:
    """Put the size into a solution; if a limit on inference caps it, `next` is the uncapped size."""
    size, free = (_priced(optimal_size(total_flop, most), server) for most in (cap, None))
    beyond = None
    if size.is_capped:
        message = (
            f"{free.parameters:.4g} parameters take {free.inference_per_token_flop:.4g} FLOP a token at inference, and "
            f"{size.inference_per_token_flop:.4g} are allowed"
        )
        dear, allowed = free.inference_usd_per_million_tokens, size.inference_usd_per_million_tokens
        if dear is not None and allowed is not None:
            message += f"; a million tokens cost {readable(dear)} dollars in place of {readable(allowed)}"
        beyond = NextValue(value=free.parameters, why_not=WhyNot(code="inference_limit_exceeded", message=message))
    fit_warnings = tuple(f"{fit.fit}: {fit.caution}" for fit in size.fits if fit.caution)
    return replace(bare, value=size, next=beyond, warnings=(*bare.warnings, *fit_warnings))


def _priced(size: OptimalSize, server: Server | None) -> OptimalSize:
    if server is None:
        return size
    usd = inference_usd_per_million_tokens(size.inference_per_token_flop, server)
    return replace(size, inference_usd_per_million_tokens=usd)


def _server(request: SolveRequest, parsed: ParsedQuestion | None, catalogue: Catalogue) -> Parsed[Server] | None:
    """Inference hardware, if a limit bounds the cost of its tokens."""
    if request.limits.inference_usd_per_million_tokens is None:
        return None
    serving, problems = request.serving, []
    match = None if serving.gpu is None else catalogue.find_gpu(serving.gpu, f"{SERVING}.gpu")
    gpu = match.row.gpu if match is not None else None if parsed is None else parsed.question.gpu
    price = None if parsed is None else parsed.question.price
    usd = serving.usd_per_gpu_hour
    if usd is None and isinstance(price, Price):  # a GPU-hour of the question after its discount
        usd = float(rent_usd(1.0, price.usd_per_gpu_hour, price.discount_fraction))
    if gpu is None:
        problems.append(_unpriced("gpu", "GPU"))
    if usd is None:
        problems.append(_unpriced("usd_per_gpu_hour", "price of a GPU-hour"))
    if problems or gpu is None or usd is None:
        raise Refused(*problems)
    server = Server(usd_per_gpu_hour=usd, flop_per_s=_bf16_peak(gpu), mfu_fraction=serving.mfu_fraction)
    assumption = (
        f"inference takes 2 FLOP a parameter and token, at {serving.mfu_fraction:.0%} of the bf16 peak of {gpu.slug} "
        f"for {readable(usd)} dollars a GPU-hour; attention to the context is left out"
    )
    read = Parsed(server, (*(() if match is None else assumptions_of(match)), assumption))
    return read if match is None else with_rows(read, catalogue, match.row)


def _bf16_peak(gpu: Gpu) -> float:
    if gpu.bf16_flop_per_s is not None:
        return gpu.bf16_flop_per_s
    message = f"no bf16 peak of {gpu.slug} is known, so the cost of a token on it is not either"
    raise Refused(Problem(field=f"{SERVING}.gpu", code="no_peak_known", message=message, fix="name another GPU"))


def _unpriced(name: str, what: str) -> Problem:
    message = f"the inference cost of a token is unknown without the {what}"
    fix = f"give {SERVING}.{name}"
    return Problem(field=f"{SERVING}.{name}", code="required", message=message, fix=fix)


def _inference_cap(request: SolveRequest, server: Server | None) -> float | None:
    """Most FLOP that inference may take for a token; None without a limit."""
    limits = request.limits
    caps = {"inference_per_token_flop": limits.inference_per_token_flop}
    if server is not None and limits.inference_usd_per_million_tokens is not None:
        affordable = affordable_inference_flop(limits.inference_usd_per_million_tokens, server)
        caps["inference_usd_per_million_tokens"] = affordable
    given = {name: cap for name, cap in caps.items() if cap is not None}
    problems = [
        Problem(
            field=f"limits.{name}",
            code="no_legal_value",
            message=f"it allows {readable(cap)} FLOP a token, and one parameter alone takes {LEAST_INFERENCE_FLOP:g}",
            fix="allow more",
        )
        for name, cap in given.items()
        if cap < LEAST_INFERENCE_FLOP
    ]
    refuse(problems)
    return min(given.values(), default=None)


def _affordable_flop(
    request: SolveRequest, parsed: ParsedQuestion, threshold: Threshold, catalogue: Catalogue
) -> tuple[float, Solution]:
    """FLOP that a budget pays for, and the solution without its value."""
    solution = solution_of(request, parsed, threshold, None, catalogue)
    question = parsed.question if threshold.found is None else threshold.found.question
    flop = answer(replace(parsed, question=question), catalogue, advise=False).flop.total_flop or 0
    notes = (
        f"the budget buys {float(flop):.3g} FLOP at the speed of the question's own model and layout; another size may "
        "be faster or slower",
        SIX_FLOP,
    )
    return float(flop), replace(solution, next=None, changes={}, assumptions=(*solution.assumptions, *notes))


def _refuse_two_budgets(request: SolveRequest) -> None:
    limits, problems = request.limits, []
    given = [f"limits.{name}" for name in feasibility.limits_given(limits)]
    if limits.total_flop is not None:
        given += ["question"] if request.question is not None else []
        message = "limits.total_flop is the whole budget, so this field would have no effect"
        problems = [Problem(name, "told_twice", message, "leave one of them out") for name in given]
    elif not given:
        message = "no budget is given, and a larger model is always better"
        named = ", ".join(f"limits.{name}" for name in feasibility.RUN_LIMITS)
        fix = f"give limits.total_flop, or a question and one of {named}"
        problems = [Problem(field="limits", code="required", message=message, fix=fix)]
    refuse(problems)


def solve(body: Mapping[str, Any], catalogue: Catalogue) -> Solution:
    """The value of the open field."""
    return outcome(solution_steps(body, catalogue))


def solution_steps(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[Solution]:
    """Solve, with one attempt for each step."""
    request = read_request(body)
    solver = SPECIAL.get(request.unknown, _solve_field)
    try:
        return (yield from solver(request, catalogue))
    except Refused as refused:
        raise Refused(*map(in_question, refused.problems)) from None


def solution_json(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[bytes]:
    return to_bytes((yield from solution_steps(body, catalogue)))


def _solve_field(request: SolveRequest, catalogue: Catalogue) -> Steps[Solution]:
    name = request.unknown
    parsed = read_open_question(request, catalogue)
    threshold = yield from solve_steps(parsed.question, name, request.limits, request.multiple_of)
    value = None if threshold.found is None else threshold.found.value
    return solution_of(request, parsed, threshold, value, catalogue)


def _solve_batch(request: SolveRequest, catalogue: Catalogue) -> Steps[Solution]:
    parsed = read_open_question(request, catalogue)
    batch_plan = yield from plan_batch(parsed.question, request.limits)
    return solution_of(request, parsed, batch_plan.threshold, batch_plan.plan, catalogue, batch_plan.warnings)


SPECIAL: Mapping[str, Callable[[SolveRequest, Catalogue], Steps[Solution]]] = {
    "recipe.global_batch": _solve_batch,
    "model": solve_size,
    "cluster": solve_cluster,
}
