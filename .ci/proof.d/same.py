"""Numbers of random questions in the JSON, in cells, in tables and in XML, and how many differ."""

import argparse
import sys
import tempfile

from service.catalogue import shipped_catalogue
from tests.features.estimates.same_numbers import compared
from tests.fixtures import asking, one_by_one, running

QUESTIONS = 300
LEAST_CASES = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running(f"sqlite:///{folder}/traincost.db") as app,
        asking(app) as together,
    ):
        found = compared(one_by_one(together), shipped_catalogue(), given.questions, given.seed)
    print(
        f"{found.cases} numbers of {given.questions} questions in three other forms, "
        f"{len(found.wrong)} differ from the JSON"
    )
    print(*found.wrong[:10], sep="\n")
    if found.wrong or found.cases < LEAST_CASES:
        sys.exit(f"at least {LEAST_CASES} numbers and no difference are wanted")


if __name__ == "__main__":
    main()
