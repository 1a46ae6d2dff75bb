"""Values of open fields on random questions, their neighbours asked again by estimates alone; seconds of one core."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from service.catalogue import shipped_catalogue
from service.planner.solve import PlannedBatch, Threshold
from tests.features.solve.offers import asked_cluster, offers, wrong_cluster
from tests.features.solve.sizes import asked_size, size_cases, wrong_size
from tests.planner.solutions import BOUNDS, asked, asked_batch, batch_cases, cases, wrong, wrong_batch

QUESTIONS = 200
NEAR = 200
"""Values beside each border that are asked again."""
MOST_P95_SECONDS = 0.5
"""Of one core."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One open field: random questions of it, its answer, and what its neighbours say against that."""

    name: str
    cases: SearchStrategy[Any]
    asked: Callable[[Any], Any]
    wrong: Callable[[Any, Any], list[str]]
    kind: Callable[[Any], str]


def fields() -> Iterator[Field]:
    """Every field that may be left open; those that a limit of the run bounds, too, with it and without."""
    for name, bounds in BOUNDS.items():
        for is_limited in bounds:
            yield Field(
                name=f"{name} under limits of the run" if is_limited else name,
                cases=cases(name, is_limited=is_limited),
                asked=asked,
                wrong=wrong_border,
                kind=kind_of_border,
            )
    catalogue = shipped_catalogue()
    yield Field(
        name="recipe.global_batch",
        cases=batch_cases(),
        asked=asked_batch,
        wrong=wrong_batch,
        kind=kind_of_batch,
    )
    yield Field(
        name="model",
        cases=size_cases(),
        asked=partial(asked_size, catalogue=catalogue),
        wrong=partial(wrong_size, catalogue=catalogue),
        kind=kind_of_size,
    )
    yield Field(
        name="cluster",
        cases=offers(),
        asked=partial(asked_cluster, catalogue=catalogue),
        wrong=partial(wrong_cluster, catalogue=catalogue),
        kind=kind_of_cluster,
    )


def wrong_border(case: Any, found: Threshold | None) -> list[str]:
    """What is wrong with a border; where there is none at all, its tests ask."""
    return [] if found is None else wrong(case, found, NEAR)


def kind_of_border(found: Threshold | None) -> str:
    """What kind of answer it is."""
    if found is None:
        return "no legal value"
    if found.found is None:
        return "none will do"
    return "no end" if found.beyond is None else "border"


def kind_of_batch(found: PlannedBatch | None) -> str:
    """What kind of answer it is."""
    if found is None:
        return "no legal value"
    if found.plan is None:
        return "none will do"
    return "accumulated" if found.plan.accumulation > 1 else "in one micro-batch"


def kind_of_size(found: dict[str, Any]) -> str:
    """What kind of answer it is."""
    if found["value"] is None:
        return "none will do"
    return "capped by its use" if found["value"]["is_capped"] else "uncapped"


def kind_of_cluster(found: dict[str, Any] | None) -> str:
    """What kind of answer it is."""
    if found is None:
        return "no legal value"
    if found["value"] is None:
        return "none will do"
    return "cheapest of all" if found["next"] is None else "border"


class Proof:
    """What became of the answers of one open field."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.seconds: list[float] = []
        self.kinds: Counter[str] = Counter()
        self.wrong: list[str] = []

    def take(self, case: Any) -> None:
        """Answer one question and ask its neighbours again."""
        started = time.process_time()
        found = self.field.asked(case)
        self.seconds.append(time.process_time() - started)
        self.kinds[self.field.kind(found)] += 1
        for line in self.field.wrong(case, found):
            self.wrong.append(line)
            print(f"  {self.field.name}: {line}\n    {case}")

    @property
    def p95_seconds(self) -> float:
        """What 19 of 20 answers take at most."""
        return quantiles(self.seconds, n=20)[-1]

    def told(self) -> str:
        """One line of figures."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        return (
            f"{self.field.name}: {sum(self.kinds.values())} questions ({kinds}), wrong {len(self.wrong)}; median "
            f"{1e3 * median(self.seconds):.1f} ms, p95 {1e3 * self.p95_seconds:.0f} ms, worst "
            f"{1e3 * max(self.seconds):.0f} ms"
        )


def taking(proof: Proof) -> Callable[[Any], None]:
    """A test of one case, in the form that hypothesis calls."""

    def take(case: Any) -> None:
        proof.take(case)

    return take


def main() -> None:
    count, names = int(sys.argv[1]) if len(sys.argv) > 1 else QUESTIONS, sys.argv[2:]
    bad = []
    for field in fields():
        if names and field.name.partition(" ")[0] not in names:
            continue
        proof = Proof(field)
        everything = settings(
            deadline=None,
            max_examples=count,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        everything(given(case=field.cases)(taking(proof)))()
        print(proof.told(), flush=True)
        if proof.wrong or proof.p95_seconds > MOST_P95_SECONDS:
            bad.append(field.name)
    if bad:
        sys.exit(f"wrong or slow: {', '.join(bad)}")


if __name__ == "__main__":
    main()
