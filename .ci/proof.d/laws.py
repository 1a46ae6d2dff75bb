"""Laws of memory over 5,000 random questions of all stacks, models and recipes."""

import argparse
import sys
from collections import Counter
from itertools import islice
from time import perf_counter

from tests.estimator.laws import Violation, shrink, software_name, violations
from tests.estimator.random_questions import questions

QUESTIONS = 5_000
SHOWN = 10
"""Violations that are shrunk and printed, one of a kind."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begun, stacks, found = perf_counter(), Counter[str](), Counter[str]()
    first: dict[str, Violation] = {}
    for question in questions(given.questions, given.seed):
        stacks[software_name(question)] += 1
        for violation in violations(question):
            found[violation.kind] += 1
            first.setdefault(violation.kind, violation)
    each = ", ".join(f"{name} {count}" for name, count in stacks.most_common())
    print(f"{given.questions} questions, seed {given.seed}, {perf_counter() - begun:.0f} s: {each}")
    for kind, count in found.most_common():
        print(f"{count} x {kind}")
    for violation in islice(first.values(), SHOWN):
        print(f"  {shrink(violation)}")
    print(f"{sum(found.values())} violations")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
