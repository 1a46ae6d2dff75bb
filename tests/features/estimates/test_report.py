"""The terminal's table shows the answer: every line of memory, every part of the step, nothing cut, all aligned."""

from dataclasses import replace

import pytest

from service.answers.estimates import Answer
from service.catalogue import Catalogue
from service.cli.reports import report
from service.estimator.answer import Verdict
from service.features.estimates.answers import answer
from service.units import BYTES, SECONDS, in_units
from service.validation.flat import body_of_flat
from service.validation.questions import read_question


def row(text: str, label: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith(f"  {label}  ")]
    return found


def test_every_line_and_part_stands_in_it(answered: Answer) -> None:
    text = report(answered)
    for line in answered.memory.stages[0].lines:
        assert line.bytes == 0 or in_units(line.bytes, BYTES) in row(text, line.kind.replace("_", " "))
    for part in answered.step.parts:
        assert part.seconds == 0 or in_units(part.seconds, SECONDS) in row(text, part.kind.replace("_", " "))
    for sentence in (*answered.assumptions, *answered.warnings):
        assert f"  - {sentence}" in text
    assert "8,030,261,248" in row(text, "total")
    assert answered.id in text.splitlines()[-1]


def test_values_end_in_one_column_over_all_tables(answered: Answer) -> None:
    text = report(answered)
    without_notes = ["total", "weights", "activations", "usable", "each token", "whole run", "steps", "goodput"]
    assert len({len(row(text, label)) for label in without_notes}) == 1


def test_it_says_what_was_asked(answered: Answer) -> None:
    _, asked, *_ = report(answered).splitlines()
    assert "64 x h100-sxm5-80gb" in asked
    assert "tensor 2" in asked
    assert "data 32" in asked
    assert "pipeline" not in asked


@pytest.mark.parametrize(
    ("verdict", "words"),
    [("fits", "fits"), ("at_risk", "may run out of memory"), ("out_of_memory", "runs out of memory")],
)
def test_the_verdict_comes_first(verdict: Verdict, words: str, answered: Answer) -> None:
    assert report(replace(answered, verdict=verdict)).startswith(f"{words}: ")


def test_what_is_not_known_says_what_to_give(catalogue: Catalogue, flat: dict[str, str]) -> None:
    def told() -> str:
        return report(answer(read_question(body_of_flat(list(flat.items())), catalogue), catalogue))

    del flat["usd_per_gpu_hour"]
    assert row(told(), "USD").endswith("give usd_per_gpu_hour")
    del flat["training_tokens"]
    assert row(told(), "whole run").endswith("give training_tokens")


def test_it_says_how_long_each_stage_of_a_run_is(catalogue: Catalogue, flat: dict[str, str]) -> None:
    changed = flat | {"stages": "1e9::2048"}
    found = answer(read_question(body_of_flat(list(changed.items())), catalogue), catalogue)
    assert found.totals is not None
    assert [f"{one.steps:,}" for one in found.totals.stages] == [
        row(report(found), f"of them in stage {stage}").split()[5] for stage in (0, 1)
    ]


def test_it_says_what_is_trained_and_what_is_padding(catalogue: Catalogue, flat: dict[str, str]) -> None:
    changed = flat | {"method": "lora", "document_lengths": "512:3", "batching": "padded"}
    text = report(answer(read_question(body_of_flat(list(changed.items())), catalogue), catalogue))
    assert "3,407,872" in row(text, "trained")
    assert "spared" in row(text, "of each step padding")
