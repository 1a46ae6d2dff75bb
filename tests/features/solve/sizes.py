"""The size for a budget is the best one: its neighbours by the published fits, and the budget asked again."""

from dataclasses import dataclass
from math import pow as power
from typing import Any

from hypothesis import strategies as st

from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator import Estimate, estimate
from service.features.solve.solve import solve
from service.validation.questions import read_question
from service.validation.reading import to_wire

FITS = {
    "besiroglu-2024": (1.8172, 482.01, 2085.43, 0.3478, 0.3658),
    "hoffmann-2022": (1.69, 406.4, 410.7, 0.34, 0.28),
}
"""Coefficients E, A, B, alpha, beta, as in print.
Source: Besiroglu et al. 2024, arXiv:2404.10102, table 1; Hoffmann et al. 2022, arXiv:2203.15556, equation 10."""

BIASED = "hoffmann-2022"
NEAR = (0.2, 0.5, 0.9, 0.99, 0.999, 1.001, 1.01, 1.1, 2.0, 5.0)
"""Other sizes that are tried, over the one that is told."""
BF16_FLOP_PER_S = {"h100-sxm5-80gb": 989.4e12, "a100-sxm4-80gb": 312e12, "h200-sxm5-141gb": 989.4e12}
"""Dense peaks of the data sheets."""
ALIKE = 1e-9
"""Share by which equal numbers may differ."""


@dataclass(frozen=True)
class SizeCase:
    """A body whose model is open."""

    body: dict[str, Any]


@st.composite
def size_cases(draw: st.DrawFn) -> SizeCase:
    """A budget in operations, days, dollars or GPU-hours, half of them with a limit of what use may cost."""
    limits: dict[str, Any] = {}
    body: dict[str, Any] = {"unknown": "model", "limits": limits}
    if draw(st.booleans()):
        limits["total_flop"] = 10 ** draw(st.floats(17, 27))
    else:
        body["question"] = draw(jobs())
        name = draw(st.sampled_from(("days", "cost_usd", "gpu_hours")))
        limits[name] = 10 ** draw(st.floats(*{"days": (-1, 3), "cost_usd": (2, 7), "gpu_hours": (2, 6)}[name]))
        limits["end"] = draw(st.sampled_from(("value", "high")))
    kind = draw(st.sampled_from(("none", "flop", "usd", "both")))
    if kind in ("flop", "both"):
        limits["inference_per_token_flop"] = 10 ** draw(st.floats(7, 13))
    if kind in ("usd", "both"):
        limits["inference_usd_per_million_tokens"] = 10 ** draw(st.floats(-5, 1))
        if "question" not in body or draw(st.booleans()):
            gpu = draw(st.sampled_from(sorted(BF16_FLOP_PER_S)))
            serving = {
                "gpu": gpu,
                "usd_per_gpu_hour": draw(st.floats(0.5, 12)),
                "mfu_fraction": draw(st.floats(0.05, 1)),
            }
            body["serving"] = serving
    return SizeCase(body)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """A question without a length of the run."""
    return {
        "model": draw(st.sampled_from(("qwen3-0.6b", "llama-3.1-8b", "llama-3.1-70b"))),
        "recipe": {"sequence_length": draw(st.sampled_from((2048, 4096, 8192))), "recompute": "full"},
        "layout": {"tensor": draw(st.sampled_from((1, 2)))},
        "cluster": {"gpu": draw(st.sampled_from(sorted(BF16_FLOP_PER_S))), "gpus": draw(st.sampled_from((8, 64, 512)))},
        "price": {
            "usd_per_gpu_hour": draw(st.floats(0.5, 12)),
            "discount_fraction": draw(st.sampled_from((0.0, 0.25))),
        },
    }


def asked_size(case: SizeCase, catalogue: Catalogue) -> dict[str, Any]:
    """The answer, as it stands on the wire."""
    found = to_wire(solve(case.body, catalogue))
    if not isinstance(found, dict):
        raise TypeError("no object")
    return found


def wrong_size(case: SizeCase, found: dict[str, Any], catalogue: Catalogue) -> list[str]:
    """What is wrong with a size; empty where nothing is."""
    value, question = found["value"], case.body.get("question")
    if value is None:
        return _wrong_refusal(case, found, catalogue)
    told = [] if question is None else _wrong_budget(case, value["total_flop"], catalogue)
    if question is None and value["total_flop"] != case.body["limits"]["total_flop"]:
        told.append("another budget")
    caps = _caps_parameters(case)
    most = min(caps) if caps else float("inf")
    for fit in value["fits"]:
        told += _wrong_fit(fit, value["total_flop"], most)
    return [*told, *_wrong_next(value, found["next"], most)]


def _wrong_fit(fit: dict[str, Any], total_flop: float, most: float) -> list[str]:
    """The budget is spent, the limit kept, and no other size that keeps it has less loss."""
    parameters, tokens, name = fit["parameters"], fit["training_tokens"], fit["fit"]
    told = [] if abs(6 * parameters * tokens / total_flop - 1) < ALIKE else [f"{name} does not spend the budget"]
    told += [] if parameters <= most * (1 + ALIKE) else [f"{name} is larger than its use allows"]
    told += [] if (fit["caution"] is not None) == (name == BIASED) else [f"{name} is flagged wrongly"]
    if name not in FITS:
        is_rule = abs(tokens / parameters / 20 - 1) < 1e-3 or parameters >= most * (1 - 1e-3)
        return told if is_rule else [*told, f"{name} is not 20 tokens for each parameter"]
    least = _loss(name, parameters, total_flop)
    told += [] if abs(fit["loss_nats"] / least - 1) < ALIKE else [f"{name} tells another loss"]
    others = [parameters * factor for factor in NEAR] + [parameters - 1, parameters + 1]
    return told + [
        f"{name}: {other:.6g} parameters have less loss than {parameters}"
        for other in others
        if 1 <= other <= most and _loss(name, other, total_flop) < least * (1 - 1e-12)
    ]


def _loss(name: str, parameters: float, total_flop: float) -> float:
    irreducible, a, b, alpha, beta = FITS[name]
    return irreducible + a / power(parameters, alpha) + b / power(total_flop / 6 / parameters, beta)


def _wrong_next(value: dict[str, Any], beyond: dict[str, Any] | None, most: float) -> list[str]:
    """A capped size is the largest that its use allows; the next one, best without the cap, costs more."""
    if beyond is None:
        return ["it is capped, and nothing is next"] if value["is_capped"] else []
    told = [] if value["is_capped"] and beyond["value"] > most else ["the next one would be allowed"]
    told += [] if value["parameters"] + 1 > most else ["a larger one would be allowed"]
    free, own = (_loss("besiroglu-2024", one, value["total_flop"]) for one in (beyond["value"], value["parameters"]))
    return told if free <= own else [*told, "the next one has more loss"]


def _caps_parameters(case: SizeCase) -> list[float]:
    """Parameters that each limit of use allows, worked out from the price, the data sheet and 2 N."""
    limits = case.body["limits"]
    caps = [limits["inference_per_token_flop"] / 2] if "inference_per_token_flop" in limits else []
    if "inference_usd_per_million_tokens" in limits:
        question, serving = case.body.get("question"), case.body.get("serving", {})
        gpu = serving.get("gpu") or (question or {})["cluster"]["gpu"]
        price = (question or {}).get("price", {})
        rate = price.get("usd_per_gpu_hour", 0) * (1 - price.get("discount_fraction", 0))
        rate = serving.get("usd_per_gpu_hour", rate)
        tokens_per_usd_of_one_parameter = 3600 * BF16_FLOP_PER_S[gpu] * serving.get("mfu_fraction", 0.33) / 2 / rate
        caps.append(limits["inference_usd_per_million_tokens"] / 1e6 * tokens_per_usd_of_one_parameter)
    return caps


def _wrong_budget(case: SizeCase, total_flop: float, catalogue: Catalogue) -> list[str]:
    """The question's own model does so many FLOP within the limits, and not those of one step more."""
    step = _run(case, 1.0, catalogue)
    batch = step.resolved.recipe.global_batch_tokens or 0
    per_step = float(_run(case, float(batch), catalogue).flop.total_flop or 0)
    steps = round(total_flop / per_step)
    within, beyond = (_run(case, float(batch * count), catalogue) for count in (steps, steps + 1))
    told = [] if abs(float(within.flop.total_flop or 0) / total_flop - 1) < ALIKE else ["no whole number of steps"]
    told += [] if _spent(case, within) <= 1 else ["the budget is exceeded"]
    return told if _spent(case, beyond) > 1 else [*told, "one step more would be affordable"]


def _wrong_refusal(case: SizeCase, found: dict[str, Any], catalogue: Catalogue) -> list[str]:
    """No size: the own model does not fit, or not even one step is affordable."""
    step = _run(case, 1.0, catalogue)
    batch = float(step.resolved.recipe.global_batch_tokens or 0)
    is_right = step.verdict != "fits" or _spent(case, _run(case, batch, catalogue)) > 1
    return [] if is_right and found["next"] is not None else ["a size could have been told"]


def _run(case: SizeCase, tokens: float, catalogue: Catalogue) -> Estimate:
    asked = case.body["question"]
    recipe = {**asked["recipe"], "training_tokens": tokens}
    return estimate(read_question({**asked, "recipe": recipe}, catalogue).question)


def _spent(case: SizeCase, run: Estimate) -> float:
    """What a run takes over what it may."""
    limits, totals = case.body["limits"], run.totals
    if totals is None:
        raise Refused
    taken = {"days": totals.days, "cost_usd": totals.cost_usd, "gpu_hours": totals.gpu_hours}
    (name,) = taken.keys() & limits.keys()
    interval = taken[name]
    return 0.0 if interval is None else getattr(interval, limits["end"]) / limits[name]
