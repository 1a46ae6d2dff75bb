"""Published layouts and runs beside the best that a search finds; order of speeds beside the predicted one."""

import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import exp, sqrt
from pathlib import Path
from statistics import median
from typing import Any

from service.calibration.tables import shipped_rows, shipped_totals
from service.catalogue import shipped_catalogue
from service.estimator import Estimate
from service.estimator.question import Layout, Question
from service.evaluation.planned import held_out_planned_interval, planned_runs
from service.evaluation.scoring import Evaluation, evaluate_rows
from service.planner.plans import search
from service.planner.space import WITHIN_DOMAIN, Constraints, pipelines_of, plain_workload, search_space

LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
"""Which rows are layouts that somebody chose, from what, and why some are not among the best."""

MOST_SLOWER = 1.10
LEAST_GOOD_FRACTION = 0.80
LEAST_ROWS = 30
LEAST_TAU = 0.6
LEAST_INSIDE_FRACTION = 0.8
"""Share of published runs inside intervals of their best plans that never saw them."""
LEAST_LAYOUTS = 3
"""Layouts of one model and machine whose order is compared."""

SAME_FRACTION = 0.02
"""Speeds that differ by less are as good as equal: what rows that repeat a configuration differ by."""

AXES = ("tensor", "context", "pipeline", "virtual_pipeline", "expert", "zero_stage", "sequence_parallel", "schedule")
"""Fields of a layout that a search goes through one by one."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Rows of one source whose layouts somebody chose."""

    source_key: str
    why: str
    able: Mapping[str, Sequence[Any]]
    """Values that the software of the time could take, by axis."""
    since: str
    """Who says so."""
    zero_stage: int | None = None
    """Only its rows of this ZeRO stage."""
    tried: bool = False
    """Only jobs of which several layouts were tried."""
    one_axis: bool = False
    """The stack can choose of how to shard, and of nothing else."""

    def has(self, one: Evaluation) -> bool:
        """Whether a row is one of them."""
        is_of_stage = self.zero_stage is None or self.zero_stage == answer_of(one).resolved.layout.zero_stage
        return one.row.text("source_key") == self.source_key and is_of_stage

    def space(self, answer: Estimate) -> Constraints:
        """What a search may change of a row: its layout, as far as the software of the time could."""
        recipe, layout = answer.resolved.recipe, answer.resolved.layout
        same = {"micro_batch": recipe.micro_batch, "recompute": recipe.recompute, "offload": layout.offload}
        given = {name: (value,) for name, value in same.items()}
        return Constraints({name: tuple(values) for name, values in self.able.items()} | given)


def answer_of(one: Evaluation) -> Estimate:
    """What is predicted of a row that can be asked."""
    if one.predicted is None:
        raise ValueError(one.reason)
    return one.predicted.estimate


def seconds(one: Evaluation) -> tuple[float, float]:
    """Measured and predicted seconds of a row's step."""
    if one.comparison is None:
        raise ValueError(one.reason)
    return one.comparison.measured, one.comparison.value


def machine_of(one: Evaluation) -> tuple[str, ...]:
    """The model of a row, and what it ran on."""
    recipe = answer_of(one).resolved.recipe
    named = ("source_key", "model", "layers", "framework", "gpu", "n_gpus")
    return (*map(one.row.text, named), str(recipe.sequence_length), str(recipe.precision))


def job_of(one: Evaluation) -> tuple[str, ...]:
    """The same, and its batch."""
    return (*machine_of(one), str(answer_of(one).resolved.recipe.global_batch))


def grouped(rows: Sequence[Evaluation], key: Any) -> list[list[Evaluation]]:
    """Rows of one kind each."""
    groups: dict[Any, list[Evaluation]] = defaultdict(list)
    for one in rows:
        groups[key(one)].append(one)
    return list(groups.values())


def fastest(rows: Sequence[Evaluation], chosen: Chosen) -> list[Evaluation]:
    """The row of each job that was measured to be the fastest."""
    jobs = grouped([one for one in rows if chosen.has(one)], job_of)
    told = [job for job in jobs if not chosen.tried or len({answer_of(one).resolved.layout for one in job}) > 1]
    return [min(job, key=lambda one: seconds(one)[0]) for job in told]


def dealing(layout: Layout, layers: int) -> tuple[int, ...]:
    """Layers of each chunk."""
    chunks = layout.pipeline * layout.virtual_pipeline
    return layout.stage_layers or (layers // chunks,) * chunks


def lies_in(layout: Layout, question: Question, space: Constraints) -> bool:
    """Whether a search of a space works a layout out."""
    plain = plain_workload(question)
    axes = search_space(plain, space)
    values = {name: getattr(layout, name) for name in AXES}
    replicas = layout.data * layout.context  # type: ignore[operator]  # filled
    group = None if layout.shard_group == replicas else WITHIN_DOMAIN
    if group not in axes.shard_group or any(value not in getattr(axes, name) for name, value in values.items()):
        return False
    layers = plain.model.num_hidden_layers
    deals = [dealing(one.layout, layers) for one in pipelines_of(plain, axes)[0]]
    values |= {"shard_group": group, "expert_tensor": layout.expert_tensor}
    pinned = {name: (value,) for name, value in values.items()}
    *_, found = search(question, Constraints({**space.allowed, **pinned}), 1)
    return dealing(layout, layers) in deals and found.scored > 0


def in_words(layout: Layout) -> str:
    """The degrees of a layout."""
    named = {"t": "tensor", "c": "context", "p": "pipeline", "v": "virtual_pipeline", "d": "data", "e": "expert"}
    degrees = " ".join(f"{short}{getattr(layout, name)}" for short, name in named.items())
    return f"{degrees} zero {layout.zero_stage}{' sp' if layout.sequence_parallel else ''}"


def faults_of(one: Evaluation, chosen: Chosen) -> list[str]:
    """What keeps a published layout from being among the best; prints it beside the best."""
    answer, (_, own) = answer_of(one), seconds(one)
    question = one.predicted.question if one.predicted else answer.resolved
    free, space = replace(question, layout=Layout()), chosen.space(answer)
    *_, found = search(free, space, 1)
    best = found.best[0] if found.best else None
    faults = [] if lies_in(answer.resolved.layout, free, space) else ["not in the space"]
    if answer.verdict == "out_of_memory":
        faults.append("does not fit")
    slower = own / best.step_seconds if best else 1.0
    if slower > MOST_SLOWER:
        faults.append(f"{slower:.2f} of the best")
    said = "none fits" if best is None else in_words(best.layout)
    print(
        f"  {one.row.text('id')} {one.row.text('model')} on {answer.resolved.cluster.gpus} {one.row.text('gpu')}: "
        f"{in_words(answer.resolved.layout)}, {answer.verdict}, {slower:.3f} of {said} ({found.scored:,} scored)"
        + "".join(f"; {fault}" for fault in faults)
    )
    return faults


def unexplained(name: str) -> bool:
    """Print why a row is not among the best; whether nobody knows."""
    why = next((one["why"] for one in LISTS["missed"] if re.fullmatch(one["ids"], name)), None)
    print(f"    {name}: {why or 'NOT EXPLAINED'}")
    return why is None


def quality(rows: Sequence[Evaluation]) -> list[str]:
    """The published layouts of every source beside the best; what is not kept."""
    missed: list[str] = []
    totals = {True: 0, False: 0}
    for chosen in (Chosen(**one) for one in LISTS["chosen"]):
        print(f"{chosen.source_key}: {chosen.why}; searched with {dict(chosen.able) or 'every axis'} ({chosen.since})")
        own = fastest(rows, chosen)
        names = [one.row.text("id") for one in own if faults_of(one, chosen)]
        totals[chosen.one_axis] += len(own)
        missed += names
        print(f"  {len(own) - len(names)} of {len(own)} lie in the space, fit and are within {MOST_SLOWER} of the best")
    total = sum(totals.values())
    good = 1 - len(missed) / total
    print(
        f"published layouts: {total - len(missed)} of {total} ({good:.1%}) among the best, of stacks with several axes "
        f"{1 - len(missed) / totals[False]:.1%} of {totals[False]}; the others:"
    )
    unknown = [name for name in missed if unexplained(name)]
    bars = {"rows": total >= LEAST_ROWS, "quality": good >= LEAST_GOOD_FRACTION, "explanations": not unknown}
    return [name for name, kept in bars.items() if not kept]


def kendall(pairs: Sequence[tuple[float, float]], same: float = 0.0) -> float:
    """Kendall's tau-b of pairs of numbers; those that differ by no more than a share are ties; 0 where all are."""

    def order(one: float, other: float) -> int:
        return 0 if abs(one / other - 1) <= same else (1 if one > other else -1)

    signs = [(order(a[0], b[0]), order(a[1], b[1])) for a, b in combinations(pairs, 2)]
    own = sqrt(sum(abs(x) for x, _ in signs) * sum(abs(y) for _, y in signs))
    return sum(x * y for x, y in signs) / own if own else 0.0


def speeds(rows: Sequence[Evaluation]) -> list[tuple[float, float]]:
    """Measured and predicted tokens a second of each configuration; the median of rows that repeat one."""
    found: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    for one in rows:
        asked = answer_of(one).resolved
        tokens = float(asked.recipe.sequence_length * (asked.recipe.global_batch or 1))
        measured, predicted = seconds(one)
        configuration = (asked.layout, asked.recipe.micro_batch, str(asked.recipe.recompute))
        found[configuration].append((tokens / measured, tokens / predicted))
    return [(median(m for m, _ in own), median(p for _, p in own)) for own in found.values()]


def order(rows: Sequence[Evaluation]) -> list[str]:
    """The order of speeds of each model and machine; what is not kept."""
    layouts: list[float] = []
    configurations: list[float] = []
    for own in grouped(rows, machine_of):
        pairs = speeds(own)
        if len(pairs) < LEAST_LAYOUTS:
            continue
        tau, apart = kendall(pairs), kendall(pairs, SAME_FRACTION)
        different = len({answer_of(one).resolved.layout for one in own})
        configurations.append(tau)
        layouts += [tau] if different >= LEAST_LAYOUTS else []
        print(
            f"  {' '.join(machine_of(own[0]))}: {len(pairs)} configurations of {different} layouts, tau {tau:.2f}, "
            f"{apart:.2f} where speeds within {SAME_FRACTION:.0%} count as equal"
        )
    found = median(layouts)
    print(
        f"order of speeds: {len(layouts)} models and machines with {LEAST_LAYOUTS} layouts or more, median Kendall tau "
        f"{found:.2f} (at least {LEAST_TAU}); {median(configurations):.2f} of the {len(configurations)} with as many "
        "configurations, most of them one layout with other micro-batches or recompute"
    )
    return [] if found >= LEAST_TAU else ["order"]


def plans() -> list[str]:
    """The best plans of published runs beside their GPU-hours; what is not kept."""
    runs = planned_runs(shipped_totals(), shipped_catalogue())
    given = inside = 0
    for run in runs:
        own, wide, hours = run.gpu_hours, held_out_planned_interval(run, runs), run.published_gpu_hours
        is_given, is_inside = own.low <= hours <= own.high, wide is not None and wide.low <= hours <= wide.high
        given, inside = given + is_given, inside + is_inside
        beside = "inside" if is_inside else "outside"
        print(
            f"  {run.row.text('model')}: {in_words(run.layout)}, {exp(-run.residual_nats):.2f} of published; {beside}"
        )
    shares = [exp(-run.residual_nats) for run in runs]
    print(
        f"best plans of {len(runs)} published runs take {min(shares):.2f} to {max(shares):.2f} of their GPU-hours, "
        f"median {median(shares):.2f}; {inside} inside the interval of plans that the others give, {given} inside that "
        "of a given layout"
    )
    return [] if inside >= LEAST_INSIDE_FRACTION * len(runs) else ["plans"]


def main() -> None:
    rows = [one for one in evaluate_rows(shipped_rows("throughput"), shipped_catalogue()) if one.comparison]
    broken = quality(rows) + order(rows) + plans()
    if broken:
        sys.exit(f"not kept: {', '.join(broken)}")


if __name__ == "__main__":
    main()
