"""Borders of open fields on random questions, every value near them asked again; how long one takes to find."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from statistics import median, quantiles

from hypothesis import HealthCheck, Phase, given, settings

from service.planner.unknowns import UNKNOWNS
from tests.planner.borders import Case, asked, cases, wrong

QUESTIONS = 200
NEAR = 200
"""Values beside each border that are asked again."""
MOST_P95_SECONDS = 0.5


class Proof:
    """What became of the borders of one open field."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds: list[float] = []
        self.tried: list[int] = []
        self.kinds: Counter[str] = Counter()
        self.wrong: list[str] = []

    def take(self, case: Case) -> None:
        """Find one border and ask again around it."""
        started = time.perf_counter()
        found = asked(case)
        taken = time.perf_counter() - started
        if found is None:
            self.kinds["no legal value"] += 1
            return
        self.seconds.append(taken)
        self.tried.append(found.tried)
        if found.found is None:
            self.kinds["none will do"] += 1
        else:
            self.kinds["no end" if found.beyond is None else "border"] += 1
        for line in wrong(case, found, NEAR):
            self.wrong.append(line)
            print(f"  {self.name}: {line}\n    {case}")

    def told(self) -> str:
        """One line of figures."""
        p95 = quantiles(self.seconds, n=20)[-1]
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        return (
            f"{self.name}: {sum(self.kinds.values())} questions ({kinds}), wrong {len(self.wrong)}; median "
            f"{1e3 * median(self.seconds):.1f} ms, p95 {1e3 * p95:.0f} ms, worst {1e3 * max(self.seconds):.0f} ms; "
            f"median {median(self.tried):.0f} values tried, worst {max(self.tried)}"
        )


def taking(proof: Proof) -> Callable[[Case], None]:
    """A test of one case, in the form that hypothesis calls."""

    def take(case: Case) -> None:
        proof.take(case)

    return take


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else QUESTIONS
    bad = []
    for name in UNKNOWNS:
        proof = Proof(name)

        everything = settings(
            deadline=None,
            max_examples=count,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        everything(given(case=cases(name))(taking(proof)))()
        print(proof.told(), flush=True)
        if proof.wrong or quantiles(proof.seconds, n=20)[-1] > MOST_P95_SECONDS:
            bad.append(name)
    if bad:
        sys.exit(f"wrong or slow: {', '.join(bad)}")


if __name__ == "__main__":
    main()
