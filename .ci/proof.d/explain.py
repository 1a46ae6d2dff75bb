"""Explanations of 300 legal and 300 random answers: how many give what they show, and their sources."""

import argparse
import sys
from collections import Counter

from hypothesis import HealthCheck, Phase, given, seed, settings

from service.estimator import Question
from tests.estimator.explained import Checked, checked, priced_questions
from tests.estimator.random_questions import questions

SHOWN = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=300)
    parser.add_argument("--seed", type=int, default=23)
    given_options = parser.parse_args()
    answers: list[list[Checked]] = []

    @seed(given_options.seed)
    @settings(
        max_examples=given_options.answers,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(priced_questions())
    def collect(asked: Question) -> None:
        answers.append(list(checked(asked)))

    collect()
    answers.extend(list(checked(asked)) for asked in questions(given_options.answers, given_options.seed))
    every = [one for answer in answers for one in answer]
    total, wrong = Counter(one.kind for one in every), Counter(one.kind for one in every if one.wrong)
    for kind in sorted(total):
        print(f"{kind:60} {total[kind] - wrong[kind]:6} of {total[kind]:6}")
    sources = Counter(each.kind for one in every for each in one.one.references)
    print("sources: " + ", ".join(f"{number} {kind}" for kind, number in sources.most_common()))
    inputs = [each for one in every for each in one.one.shown_inputs]
    print(f"{sum(each.ref is not None for each in inputs)} of {len(inputs)} inputs have an explanation of their own")
    texts = {each for one in every for each in one.one.references}
    print(f"{len(texts)} different sources, {sum(each.url is not None for each in texts)} with a link")
    whole = sum(not any(one.wrong for one in answer) for answer in answers)
    print(f"{len(every) - wrong.total()} of {len(every)} explanations hold; all of them in {whole} of {len(answers)}")
    for one in [one for one in every if one.wrong][:SHOWN]:
        print(f"  {one.path}: {one.wrong}")
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
