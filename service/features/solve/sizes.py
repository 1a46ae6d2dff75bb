"""The best model size for a budget, with or without the cost of inference."""

from dataclasses import replace

from service.answers.plans import Evidence, NextValue, OptimalSize, Solution, WhyNot
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.estimator.question import Gpu, Price
from service.estimator.run.cost import rent_usd
from service.features.estimates.answers import answer, versions_of
from service.features.solve.schemas import SERVING, SolveRequest, read_open_question
from service.features.solve.thresholds import solution_of
from service.planner.feasibility import RUN_LIMITS, limits_given
from service.planner.sizing import Server, affordable_inference_flop, inference_usd_per_million_tokens, optimal_size
from service.planner.solve import Threshold, solve_steps
from service.planner.steps import Steps
from service.units import readable
from service.validation.questions import ParsedQuestion
from service.validation.reading import Parsed, assumptions_of, with_rows

SIX_FLOP = "a run takes 6 FLOP for each parameter and token; attention is left out"
LEAST_INFERENCE_FLOP = 2.0
"""Operations of a token in a model of one parameter."""


def solve_size(request: SolveRequest, catalogue: Catalogue) -> Steps[Solution]:
    """The best size for a FLOP budget, or for the FLOP that the model of the question gets within time and money."""
    limits = request.limits
    _refuse_two_budgets(request)
    parsed = None if limits.total_flop is not None else read_open_question(request, catalogue)
    server = _server(request, parsed, catalogue)
    cap = _inference_cap(request, None if server is None else server.spec)
    if parsed is None:
        total_flop, solution = float(limits.total_flop or 0), _without_question(request, catalogue)
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
    """Put the size into a solution; if inference caps it, the uncapped size is the next one."""
    size, free = (_priced(optimal_size(total_flop, most), server) for most in (cap, None))
    beyond = NextValue(value=free.parameters, why_not=_too_dear(size, free)) if size.is_capped else None
    fit_warnings = tuple(f"{fit.fit}: {fit.caution}" for fit in size.fits if fit.caution)
    return replace(bare, value=size, next=beyond, warnings=(*bare.warnings, *fit_warnings))


def _priced(size: OptimalSize, server: Server | None) -> OptimalSize:
    if server is None:
        return size
    usd = inference_usd_per_million_tokens(size.inference_per_token_flop, server)
    return replace(size, inference_usd_per_million_tokens=usd)


def _too_dear(size: OptimalSize, free: OptimalSize) -> WhyNot:
    message = (
        f"{free.parameters:.4g} parameters take {free.inference_per_token_flop:.4g} FLOP a token in use, and "
        f"{size.inference_per_token_flop:.4g} are allowed"
    )
    if size.inference_usd_per_million_tokens is not None and free.inference_usd_per_million_tokens is not None:
        dear, allowed = free.inference_usd_per_million_tokens, size.inference_usd_per_million_tokens
        message += f"; a million tokens cost {readable(dear)} dollars in place of {readable(allowed)}"
    return WhyNot(code="inference_limit_exceeded", message=message)


def _server(request: SolveRequest, parsed: ParsedQuestion | None, catalogue: Catalogue) -> Parsed[Server] | None:
    """Inference hardware, if a limit bounds the cost of its tokens."""
    if request.limits.inference_usd_per_million_tokens is None:
        return None
    serving, problems = request.serving, []
    match = None if serving.gpu is None else catalogue.find_gpu(serving.gpu, f"{SERVING}.gpu")
    gpu = match.row.gpu if match is not None else None if parsed is None else parsed.question.gpu
    usd = serving.usd_per_gpu_hour if serving.usd_per_gpu_hour is not None else _rent(parsed)
    if gpu is None:
        problems.append(_unpriced("gpu", "GPU"))
    if usd is None:
        problems.append(_unpriced("usd_per_gpu_hour", "price of a GPU-hour"))
    if problems or gpu is None or usd is None:
        raise Refused(*problems)
    server = Server(usd_per_gpu_hour=usd, flop_per_s=_bf16_peak(gpu), mfu_fraction=serving.mfu_fraction)
    assumption = (
        f"a token in use takes 2 FLOP for each parameter, at {serving.mfu_fraction:.0%} of the bf16 peak of {gpu.slug} "
        f"for {readable(usd)} dollars a GPU-hour; attention to its context is left out"
    )
    read = Parsed(server, (*(() if match is None else assumptions_of(match)), assumption))
    return read if match is None else with_rows(read, catalogue, match.row)


def _rent(parsed: ParsedQuestion | None) -> float | None:
    """Cost of a GPU-hour of the question after its discount; None if not rented."""
    price = None if parsed is None else parsed.question.price
    return float(rent_usd(1.0, price.usd_per_gpu_hour, price.discount_fraction)) if isinstance(price, Price) else None


def _bf16_peak(gpu: Gpu) -> float:
    if gpu.bf16_flop_per_s is not None:
        return gpu.bf16_flop_per_s
    message = f"no bf16 peak of {gpu.slug} is known, so what a token costs on it is not"
    raise Refused(Problem(field=f"{SERVING}.gpu", code="no_peak_known", message=message, fix="name another GPU"))


def _unpriced(name: str, what: str) -> Problem:
    message = f"what a token in use costs is not known without the {what}"
    fix = f"give {SERVING}.{name}"
    return Problem(field=f"{SERVING}.{name}", code="required", message=message, fix=fix)


def _inference_cap(request: SolveRequest, server: Server | None) -> float | None:
    """Operations that inference may take for a token; None without a limit."""
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
    if problems:
        raise Refused(*problems)
    return min(given.values(), default=None)


def _affordable_flop(
    request: SolveRequest, parsed: ParsedQuestion, threshold: Threshold, catalogue: Catalogue
) -> tuple[float, Solution]:
    """FLOP that a budget buys, and the solution without its value."""
    solution = solution_of(request, parsed, threshold, None, catalogue)
    question = parsed.question if threshold.found is None else threshold.found.question
    flop = answer(replace(parsed, question=question), catalogue, advise=False).flop.total_flop or 0
    notes = (
        f"the budget buys {float(flop):.3g} FLOP at the speed of the question's own model and layout; another size may "
        "be faster or slower",
        SIX_FLOP,
    )
    return float(flop), replace(solution, next=None, changes={}, assumptions=(*solution.assumptions, *notes))


def _without_question(request: SolveRequest, catalogue: Catalogue) -> Solution:
    """A solution without a question."""
    return Solution(
        unknown=request.unknown,
        value=None,
        next=None,
        changes={},
        evidence=Evidence(value=None, next=None, tried=0),
        assumptions=(SIX_FLOP,),
        warnings=(),
        versions=versions_of(catalogue, ()),
    )


def _refuse_two_budgets(request: SolveRequest) -> None:
    limits, problems = request.limits, []
    given = [f"limits.{name}" for name in limits_given(limits)]
    if limits.total_flop is not None:
        given += ["question"] if request.question is not None else []
        message = "limits.total_flop is the whole budget, and what stands beside it would change nothing"
        problems = [
            Problem(field=name, code="told_twice", message=message, fix="leave one of them out") for name in given
        ]
    elif not given:
        message = "no budget is given, and a larger model is always better"
        fix = f"give limits.total_flop, or a question and one of {', '.join(f'limits.{name}' for name in RUN_LIMITS)}"
        problems = [Problem(field="limits", code="required", message=message, fix=fix)]
    if problems:
        raise Refused(*problems)
