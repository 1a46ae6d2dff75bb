"""The chosen cluster is the cheapest: every offered one at every price is asked again in full."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from service.catalogue import Catalogue, shipped_catalogue
from service.errors import Refused
from service.estimator import Estimate, estimate
from service.features.solve.solve import solve
from service.validation.questions import read_question
from service.validation.reading import to_wire

GPUS = ("h100-sxm5-80gb", "a100-sxm4-80gb", "a100-sxm4-40gb", "h200-sxm5-141gb", "b200-sxm-180gb")
LIMITS = ("days", "cost_usd", "gpu_hours")
"""What a run may be limited in."""


@dataclass(frozen=True)
class Offers:
    """A body whose cluster is open."""

    body: dict[str, Any]


@dataclass(frozen=True)
class Offer:
    """One cluster at one price, asked alone."""

    gpu: str
    gpus: int
    usd_per_gpu_hour: float
    cost_usd: float
    taken: dict[str, float]
    will_do: bool


@st.composite
def offers(draw: st.DrawFn) -> Offers:
    """Some clusters, some with a price or a layout of their own, and up to three prices for the others."""
    batch = draw(st.sampled_from((64, 96, 512, 1024)))
    recipe = {
        "sequence_length": draw(st.sampled_from((2048, 4096))),
        "micro_batch": draw(st.sampled_from((1, 2, 4))),
        "recompute": draw(st.sampled_from(("none", "selective", "full", "full"))),
        "global_batch": batch,
        "training_tokens": draw(st.sampled_from((1e10, 1e11))),
    }
    question = {
        "model": draw(st.sampled_from(("qwen3-0.6b", "llama-3.1-8b", "llama-3.1-8b", "llama-3.1-70b"))),
        "recipe": recipe,
        "layout": {"tensor": draw(st.sampled_from((1, 2, 4))), "pipeline": draw(st.sampled_from((1, 2)))},
    }
    clusters = [draw(clusters_offered()) for _ in range(draw(st.integers(2, 8)))]
    prices = [{"usd_per_gpu_hour": draw(st.floats(0.5, 12))} for _ in range(draw(st.integers(1, 3)))]
    body = {"unknown": "cluster", "question": question, "clusters": clusters, "limits": {"headroom_fraction": 0.0}}
    body |= {} if all("price" in each for each in clusters) else {"prices": prices}
    body["limits"] = draw(limits_near(asked_alone(Offers(body), shipped_catalogue())))
    return Offers(body)


@st.composite
def limits_near(draw: st.DrawFn, every: list[Offer]) -> dict[str, Any]:
    """Limits of a run near what one of the offers takes, so that some keep them and some do not."""
    names = draw(st.sampled_from((("days",), ("days",), ("gpu_hours",), ("days", "cost_usd"))))
    fitting = [offer for offer in every if offer.will_do] or every
    taken = draw(st.sampled_from([offer.taken for offer in fitting])) if fitting else dict.fromkeys(LIMITS, 1.0)
    limits: dict[str, Any] = {name: taken[name] * draw(st.floats(0.5, 3.0)) for name in names}
    headroom, end = draw(st.sampled_from((0.0, 0.1))), draw(st.sampled_from(("value", "high")))
    return {**limits, "headroom_fraction": headroom, "end": end}


@st.composite
def clusters_offered(draw: st.DrawFn) -> dict[str, Any]:
    """An item of the list of clusters."""
    size = draw(st.sampled_from((4, 8, 16, 24, 32, 64, 128, 256)))
    cluster: dict[str, Any] = {"cluster": {"gpu": draw(st.sampled_from(GPUS)), "gpus": size}}
    if draw(st.integers(0, 3)) == 0:
        cluster["price"] = {"usd_per_gpu_hour": draw(st.floats(0.5, 12))}
    if draw(st.integers(0, 3)) == 0:
        cluster["layout"] = {"tensor": draw(st.sampled_from((1, 8)))}
    return cluster


def asked_cluster(case: Offers, catalogue: Catalogue) -> dict[str, Any] | None:
    """The answer, as it stands on the wire; None where no cluster can be answered."""
    try:
        found = to_wire(solve(case.body, catalogue))
    except Refused:
        return None
    if not isinstance(found, dict):
        raise TypeError("no object")
    return found


def wrong_cluster(case: Offers, found: dict[str, Any] | None, catalogue: Catalogue) -> list[str]:
    """What is wrong with a choice; empty where nothing is."""
    every = asked_alone(case, catalogue)
    if found is None:
        return ["clusters can be answered, and the request is refused"] if every else []
    will_do, will_not = ([offer for offer in every if offer.will_do is does] for does in (True, False))
    value, beyond = found["value"], found["next"]
    if value is None:
        told = [f"{offer} will do" for offer in will_do]
        return told if beyond is not None and _is_among(will_not, beyond["value"]) else [*told, "no reason"]
    told = [] if _is_among(will_do, value) else [f"{value} will not do"]
    cost = found["evidence"]["value"]["cost_usd"]["value"]
    told += [f"{offer} is cheaper" for offer in will_do if offer.cost_usd < cost * (1 - 1e-9)]
    cheaper = [offer for offer in every if offer.cost_usd < cost * (1 - 1e-9)]
    if beyond is None:
        return [*told, *(f"{offer} is cheaper, and nothing is next" for offer in cheaper)]
    nearest = max((offer.cost_usd for offer in will_not if offer.cost_usd <= cost * (1 + 1e-9)), default=0.0)
    shown = found["evidence"]["next"]["cost_usd"]["value"]
    told += [] if abs(shown - nearest) <= 1e-9 * shown else ["another cheaper one is nearer"]
    return told if _is_among(will_not, beyond["value"]) else [*told, "the next one will do"]


def _is_among(some: list[Offer], chosen: dict[str, Any]) -> bool:
    names = ("gpu", "gpus", "usd_per_gpu_hour")
    return any(all(getattr(offer, name) == chosen[name] for name in names) for offer in some)


def asked_alone(case: Offers, catalogue: Catalogue) -> list[Offer]:
    """Every cluster at every price that it is offered at; those that a rule refuses are left out."""
    body, found = case.body, []
    for item in body["clusters"]:
        for price in [item["price"]] if "price" in item else body["prices"]:
            layout = {**body["question"]["layout"], **item.get("layout", {})}
            question = {**body["question"], "layout": layout, "cluster": item["cluster"], "price": price}
            try:
                answer = estimate(read_question(question, catalogue).question)
            except Refused:
                continue
            found.append(_offer(answer, price["usd_per_gpu_hour"], body["limits"]))
    return found


def _offer(answer: Estimate, usd_per_gpu_hour: float, limits: dict[str, Any]) -> Offer:
    memory, totals, cluster = answer.memory, answer.totals, answer.resolved.cluster
    if totals is None or totals.cost_usd is None:
        raise TypeError("an offer has tokens and a price")
    room = memory.usable_bytes * (1 - limits["headroom_fraction"])
    fits = answer.verdict == "fits" and memory.device_peak_bytes.value <= room
    taken = {"days": totals.days, "cost_usd": totals.cost_usd, "gpu_hours": totals.gpu_hours}
    keeps = all(getattr(taken[name], limits["end"]) <= limits[name] for name in LIMITS if name in limits)
    values = {name: interval.value for name, interval in taken.items()}
    return Offer(cluster.gpu, cluster.gpus, usd_per_gpu_hour, totals.cost_usd.value, values, fits and keeps)
