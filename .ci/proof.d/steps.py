"""Predicted against published steps and runs: constants fitted anew, and every bar by rows that they never saw."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from math import expm1, log
from statistics import fmean, median
from types import ModuleType
from typing import Any
from unittest.mock import patch

from service.answers.accuracy import Group
from service.calibration.scores import Comparison
from service.calibration.steps import (
    DENSE,
    NEWER,
    SPARSE,
    FittedSteps,
    HeldOutStep,
    StepRow,
    held_out_seconds,
    held_out_steps,
    rounded,
    shipped_held_out,
)
from service.calibration.tables import shipped_rows
from service.catalogue import shipped_catalogue
from service.estimator.constants import STEP_CONSTANTS
from service.estimator.time import collectives, communication, host, kernels, step
from service.evaluation.scoring import APART, Evaluation, evaluate_rows, step_row_of, step_rows_of
from service.evaluation.shipped import shipped_accuracy
from service.evaluation.totals import totals_accuracy
from tests.published.test_steps import MOST_WITHOUT_SCALAR, TABLES, mean_error

DIGITS = 4
"""Significant digits of a shipped constant."""

ROWS_OF_A_SOURCE = 8
LEAST_COVERED_OF_A_SOURCE = 0.65
COVERED_OVERALL = (0.75, 0.85)
MOST_HALF_WIDTH = {"known": 0.15, "other": 0.25}
LEAST_RUNS_INSIDE = 0.7
MOST_SECONDS = 5.0
"""Longest time of `traincost accuracy`."""

WHY = {
    "nanotron": "two rows of its 20: ZeRO-1 sends over 512 replicas, and 80B on 32 GPUs, take twice what links carry",
    "torchtitan": "the fit without it has never seen its stack; what overlapped tensor ranks and a limit of power do "
    "was read off its own pairs of rows all the same; four rows of B200 held to an untold power are counted apart",
    "mbridge_skills": "Moonlight: an untrained router deals tokens unevenly, which the row does not state",
    "dlperf": "V100 with the software of 2020; nothing is fitted on it, and its products are not in any benchmark",
}
"""What is known of sources whose held-out error is beyond the bar of their class."""


CROSSING = collectives.crossing_share

PARTS: dict[str, list[tuple[ModuleType, str, Any]]] = {
    "nothing": [],
    "the host's time of layers": [(step, "host_seconds", lambda *_: 0.0)],
    "the host's time of updates": [(step, "update_host_seconds", lambda *_: 0.0)],
    "the host's time of each local expert": [(host, "expert_host_seconds", lambda _: 0.0)],
    "the last tile of each expert": [(kernels, "GROUP_TOKENS", 0.0)],
    "exchange beside compute": [(communication, "_hidden_experts", lambda *_: 0.0)],
    "micro-batches without another": [(communication, "paired_fraction", lambda _: 1.0)],
    "processors of exchange": [(communication, "lost_fraction", lambda found: found.constants.contention_fraction)],
    "one copy to each rank and domain": [(collectives, "crossing_share", lambda *_: 1.0)],
    "the limit of nodes": [(collectives, "crossing_share", lambda *given: CROSSING(*given[:2]))],
    "the pace of permutations": [
        (kernels, "SHUFFLE_FRACTION", 1.0),
        (kernels, "SHUFFLE_PASSES", dict.fromkeys(kernels.SHUFFLE_PASSES, 1)),
    ],
}
"""Parts of the time of experts, each by what removes it."""


@dataclass(frozen=True)
class Promise:
    """One figure of a group of steps, and the most that it may be."""

    group: str
    figure: str
    most: float


PROMISES = (
    Promise("dense, fitted GPU", "in_sample_mape", 0.05),
    Promise("dense, fitted GPU", "mape", 0.10),
    Promise("dense, fitted GPU", "median", 0.06),
    Promise("new GPU", "mape", 0.10),
    Promise("MoE", "mape", 0.20),
)


def checked(*, kept: bool, said: str) -> Iterator[str]:
    """Print a bar with its figure; yield it where it is not kept."""
    print(f"{'' if kept else 'NOT '}kept: {said}")
    if not kept:
        yield said


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def figures_of(group: Group) -> dict[str, float]:
    """In-sample and held-out errors of a group of steps."""
    if group.step is None:
        return {}
    held_out = group.step.held_out
    named = {"in_sample_mape": group.full_config.mape_fraction, "mape": held_out.mape_fraction}
    return {name: found for name, found in {**named, "median": held_out.median_fraction}.items() if found is not None}


def promised(groups: Sequence[Group]) -> Iterator[str]:
    """The bars of classes, with baselines beside; then every class and source."""
    by_class = {group.memory_class: group for group in groups}
    for one in PROMISES:
        value = figures_of(by_class[one.group]).get(one.figure, 1.0)
        yield from checked(
            kept=value <= one.most,
            said=f"{one.group}, {one.figure} {percent(value)}, at most {percent(one.most)}",
        )
    for name, group in by_class.items():
        if group.step is not None:
            beside = f"constant MFU {percent(group.step.constant_mfu.mape_fraction)}"
            beside += f", 6PD {percent(group.step.six_pd.mape_fraction)}"
            said = ", ".join(f"{figure} {percent(value)}" for figure, value in figures_of(group).items())
            print(f"  {name}, {group.full_config.scored} rows: {said}; {beside}")


def sources(found: Sequence[HeldOutStep]) -> Iterator[str]:
    """Coverage of each source with rows enough, and what is known of those that are far off."""
    for name in sorted({one.row.source_key for one in found}):
        own = [one for one in found if one.row.source_key == name]
        error = fmean(abs(one.comparison.error_fraction) for one in own)
        inside = fmean(one.comparison.is_covered for one in own)
        said = f"{name}, {len(own)} rows: {percent(inside)} inside, held-out MAPE {percent(error)}"
        if len(own) >= ROWS_OF_A_SOURCE:
            yield from checked(kept=inside >= LEAST_COVERED_OF_A_SOURCE, said=said)
        if name in WHY:
            print(f"  {name}: {WHY[name]}")


def beside(found: Sequence[HeldOutStep]) -> None:
    """What is counted apart, by source."""
    for name in sorted({one.row.source_key for one in found}):
        own = [one.comparison.error_fraction for one in found if one.row.source_key == name]
        print(f"  apart: {name}, {len(own)} rows: held-out MAPE {percent(fmean(map(abs, own)))}")


def coverage(found: Sequence[HeldOutStep], answered: Sequence[Comparison]) -> Iterator[str]:
    """Coverage of all, and how wide intervals are."""
    least, most = COVERED_OVERALL
    inside = fmean(one.comparison.is_covered for one in found)
    yield from checked(
        kept=least <= inside <= most, said=f"{percent(inside)} of {len(found)} steps inside held-out intervals"
    )
    served = fmean(one.is_covered for one in answered)
    yield from checked(kept=served >= least, said=f"{percent(served)} of them inside the intervals that callers get")
    for kind, most in MOST_HALF_WIDTH.items():
        widths = [expm1(one.spread_fraction or 0.0) for one in found if one.step_class == f"{kind} stack"]
        yield from checked(
            kept=median(widths) <= most, said=f"dense, {kind} stack: median half-width {percent(median(widths))}"
        )


def constants(rows: Sequence[StepRow], steps: FittedSteps) -> Iterator[str]:
    """Shipped constants and held-out predictions are those of today's fit, inside their bounds."""
    fitted = steps.fit(rows)
    off = [
        one.name for one in fields(fitted) if not _same(getattr(fitted, one.name), getattr(STEP_CONSTANTS, one.name))
    ]
    yield from checked(kept=not off, said=f"constants fitted anew are the shipped ones {off or ''}")
    out = [one.field for one in (*DENSE, *NEWER, *SPARSE) if not one.low <= one.of(STEP_CONSTANTS) <= one.high]
    yield from checked(
        kept=not out, said=f"every one of {len((*DENSE, *NEWER, *SPARSE))} constants is inside its bounds {out or ''}"
    )
    whole = shipped_held_out()
    shipped = {False: whole.predicted_seconds, True: whole.withheld_seconds}
    far = 0.0
    for withholds, seconds in shipped.items():
        found = rounded(held_out_seconds(rows, steps, withholds=withholds))
        far = max(far, *(abs(log(found[name] / seconds[name])) for name in seconds))
    yield from checked(
        kept=far < 1e-3, said=f"held-out predictions fitted anew are the shipped ones, at most {far:.1e} apart"
    )


def _same(fitted: Any, shipped: Any) -> bool:
    if isinstance(fitted, dict):
        return all(_same(value, shipped[name]) for name, value in fitted.items())
    return isinstance(fitted, str) or abs(fitted - shipped) <= 10**-DIGITS * 5 * max(abs(shipped), 1e-12)


def ablated(rows: Sequence[StepRow], steps: FittedSteps) -> None:
    """Print held-out errors of models with experts, fitted anew without each part of their time."""
    sparse = [row for row in rows if row.question.model.num_experts]
    for said, removed in PARTS.items():
        with ExitStack() as stack:
            for module, name, instead in removed:
                stack.enter_context(patch.object(module, name, instead))
            model = steps.prepared_anew()
            errors: dict[str, float] = {}
            for source in dict.fromkeys(row.left_out_with for row in sparse):
                fitted = model.fit([row for row in rows if row.left_out_with != source])
                own = [row for row in sparse if row.left_out_with == source]
                errors |= {row.id: model.step_seconds(row.question, fitted) / row.measured_seconds - 1 for row in own}
        stated = [abs(errors[row.id]) for row in sparse if row.states_dispatcher]
        every = [abs(error) for error in errors.values()]
        shown = f"{percent(fmean(every))} (median {percent(median(every))})"
        shown += f", dispatcher stated {percent(fmean(stated))} ({percent(median(stated))})"
        print(f"  experts, {said} removed: held-out MAPE {shown}")


def tables(rows: Sequence[StepRow]) -> Iterator[str]:
    """Two tables of one stack, with one scalar fitted on their other rows and without."""
    for name, bar in TABLES.items():
        own = [row for row in rows if row.source_key == name]
        for most, said, scaled in ((bar, "with one scalar", True), (MOST_WITHOUT_SCALAR, "without", False)):
            error = mean_error(own, scaled=scaled)
            yield from checked(kept=error <= most, said=f"{name}, {said}: MAPE {percent(error)}")


def runs() -> Iterator[str]:
    """Count the whole runs inside intervals that were fitted without their source."""
    main = totals_accuracy().main_runs
    inside = main.held_out_inside_fraction or 0.0
    said = f"{main.held_out_inside} of {main.scored} main runs inside ({percent(inside)})"
    said += f", MAPE {percent(main.mape_fraction)}"
    yield from checked(kept=inside >= LEAST_RUNS_INSIDE, said=said)


def command() -> Iterator[str]:
    """Time the command from nothing."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "service", "accuracy"], stdout=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - started
    yield from checked(kept=seconds <= MOST_SECONDS, said=f"traincost accuracy answers in {seconds:.1f} s")


def benchmarks() -> None:
    """Print how near GPU-hours of MLPerf Training are predicted, by benchmark."""
    board = shipped_accuracy().held_out.mlperf
    for score in board.scores if board else ():
        said = f"{score.scored} of {score.runs} submissions, MAPE {percent(score.mape_fraction)}, median "
        said += f"{percent(score.median_fraction)}, bias {percent(score.bias_fraction)}, "
        print(f"  GPU-hours of MLPerf, {score.benchmark}: {said}{percent(score.coverage80_fraction)} inside")


def _is_judged(one: Evaluation) -> bool:
    return one.figure_class != APART and step_row_of(one) is not None


def main() -> None:
    judged = evaluate_rows(shipped_rows("throughput"), shipped_catalogue())
    rows = step_rows_of(judged)
    shipped = shipped_held_out()
    every = held_out_steps(rows, shipped.predicted_seconds, shipped.withheld_seconds)
    found = [one for one in every if not one.row.is_scored_apart]
    beside([one for one in every if one.row.is_scored_apart])
    benchmarks()
    steps = FittedSteps()
    broken = [
        *promised(shipped_accuracy().steps),
        *coverage(found, [one.comparison for one in judged if _is_judged(one) and one.comparison]),
        *sources(found),
        *tables(rows),
        *runs(),
        *command(),
        *constants(rows, steps),
    ]
    ablated(rows, steps)
    if broken:
        sys.exit(f"{len(broken)} not kept")


if __name__ == "__main__":
    main()
