"""What should the reader of a run's totals know: what was assumed of failures, power and money, and what is missing?"""

from service.estimator.answer import Totals
from service.estimator.filled import filled
from service.estimator.losses import checkpointing_of, interruption_inputs
from service.estimator.price import OwnedPrice, Price
from service.estimator.resolve import Resolved
from service.estimator.run_constants import CHECKPOINT_SECONDS
from service.estimator.totals import spares_of

LEAST_GOODPUT_FRACTION = 0.5
"""Goodput below which the waste is too large for formulas of first order. Source: an assumption; a round figure."""

NO_ELECTRICITY = "cost_usd holds no electricity: give price.usd_per_kwh"
"""Warning that only an answer with totals needs."""


def run_assumptions(resolved: Resolved) -> list[str]:
    """What the totals take for granted.

    Args:
        resolved: the question, defaults filled

    Returns:
        one sentence each; none without training_tokens
    """
    if resolved.question.recipe.training_tokens is None:
        return []
    return [*_failures(resolved), *_power(resolved), *_money(resolved)]


def run_warnings(resolved: Resolved) -> list[str]:
    """What of the totals the asker should look at.

    Args:
        resolved: the question, defaults filled

    Returns:
        one sentence each; none without training_tokens
    """
    full = resolved.question
    if full.recipe.training_tokens is None:
        return []
    is_without = isinstance(full.price, OwnedPrice) and full.price.usd_per_kwh is None
    return [NO_ELECTRICITY] if is_without else []


def lost_time_warnings(resolved: Resolved, totals: Totals | None) -> list[str]:
    """What of the lost time the asker should look at.

    Args:
        resolved: the question, defaults filled
        totals: the whole run; none without training_tokens

    Returns:
        one sentence each
    """
    if totals is None:
        return []
    told, kept, said = checkpointing_of(resolved.job).interval_seconds, totals.goodput, []
    if told is not None and kept.checkpoint_interval_seconds > told:
        said.append(
            f"checkpoints are taken every {kept.checkpoint_interval_seconds:.3g} seconds, not every {told:g}: a step, "
            "or writing the one before, takes that long"
        )
    if totals.goodput_fraction < LEAST_GOODPUT_FRACTION:
        said.append(
            f"interruptions and checkpoints take more time than training (goodput {totals.goodput_fraction:.2f}), and "
            "more than these first-order formulas say: restart sooner, write checkpoints faster, or use fewer GPUs"
        )
    return said


def _failures(resolved: Resolved) -> list[str]:
    cluster, told = resolved.question.cluster, checkpointing_of(resolved.job)
    rates = interruption_inputs(resolved.question)
    once, restart = 1 / filled(cluster.failures_per_gpu_hour), filled(cluster.restart_seconds)
    said = f"one interruption for {once:,.0f} GPU-hours, {restart / 60:.3g} minutes to restart"
    if told.stall_seconds is None and told.write_bytes_per_s is None:
        said += f", {CHECKPOINT_SECONDS:.0f} seconds for a checkpoint"
    spares, preempted = spares_of(cluster), rates["preemptions_per_instance_hour"]
    lines = [said]
    if preempted:
        lines.append(
            f"each of {rates['instances']} machine(s) is taken back {preempted:.3g} times an hour, which differs "
            "widely between spot markets, and another one is there at once"
        )
    if spares:
        lines.append(f"{spares} spare GPUs wait, are paid for, and are counted in billed_gpu_hours, cost and energy")
    return lines


def _power(resolved: Resolved) -> list[str]:
    cluster = resolved.question.cluster
    busy, idle = filled(cluster.busy_power_fraction), filled(cluster.idle_power_fraction)
    host, pue = filled(cluster.host_power_fraction), filled(cluster.pue)
    said = [
        f"nodes at work draw {busy:.3g} and waiting ones {idle:.3g} of their rated power, hosts and network are rated "
        f"at {host:.3g} of the GPU boards, and pue is {pue:.3g}"
    ]
    if cluster.grid_kg_co2e_per_kwh is None:
        said.append("carbon is not estimated: neither cluster.grid_region nor cluster.grid_kg_co2e_per_kwh is given")
    return said


def _money(resolved: Resolved) -> list[str]:
    price = resolved.question.price
    if isinstance(price, OwnedPrice):
        return [
            f"own hardware of {filled(price.purchase_usd):,.0f} USD a GPU is written off over "
            f"{price.amortisation_years:g} years in which it works {price.utilisation_fraction:.0%} of the time"
        ]
    if isinstance(price, Price) and price.discount_fraction:
        return [f"the price of a GPU-hour is reduced by {price.discount_fraction:.3%}"]
    return []
