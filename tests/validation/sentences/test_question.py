"""Sentences as people write them mean what a table says, and no text of any kind is dropped, misplaced or fatal."""

import csv
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalogue import Catalogue, shipped_catalogue
from service.errors import Refused
from service.validation.questions import read_question
from service.validation.sentences.grammar import LONGEST
from service.validation.sentences.patterns import words
from service.validation.sentences.question import EXAMPLE, ReadSentence, read_sentence

SENTENCES = list(csv.DictReader(Path(__file__).with_name("sentences.csv").read_text(encoding="utf-8").splitlines()))
"""Sentences with the fields that they state, the parts that are assumed or not understood, or a part of the fix."""
BETWEEN = " | "


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values of a question with their paths; a preset is that of its part."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from leaves(item, path if name == "preset" else (*path, name))
    else:
        yield path, value


def stated(read: ReadSentence) -> str:
    """The fields of a question that the sentence states, by their last names."""
    assumed = {chip.field for chip in read.chips if not chip.text}
    found = [(path, value) for path, value in leaves(read.body) if f"/{'/'.join(path)}" not in assumed]
    return " ".join(
        f"{path[-1]}={value}" for path, value in [*found, *((("", name), n) for name, n in read.limits.items())]
    )


def texts(read: ReadSentence, state: str) -> str:
    return BETWEEN.join(chip.text for chip in read.chips if chip.state == state and chip.text)


@pytest.mark.parametrize("row", SENTENCES, ids=lambda row: row["sentence"])
def test_a_sentence_means_the_question_of_the_table(row: Mapping[str, str], catalogue: Catalogue) -> None:
    if row["refusal"]:
        with pytest.raises(Refused) as refused:
            read_sentence(row["sentence"], catalogue)
        (problem,) = refused.value.problems
        assert row["refusal"] in problem.fix
        assert problem.fix.endswith(EXAMPLE)
        return
    read = read_sentence(row["sentence"], catalogue)
    found = stated(read), texts(read, "assumed"), texts(read, "not_understood")
    assert found == (row["question"], row["assumed"], row["not_understood"])


def test_the_table_is_long_and_mostly_understood() -> None:
    whole = [row for row in SENTENCES if not row["refusal"] and not row["not_understood"]]
    assert len(SENTENCES) >= 100
    assert len(whole) >= 0.7 * len(SENTENCES)


def test_a_chip_offers_the_other_meanings_of_its_part(catalogue: Catalogue) -> None:
    read = read_sentence("8b, 64xH100, fp8, gbs 1k, seq 8k", catalogue)
    chips = {chip.text: chip for chip in read.chips}
    assert {"llama-3-8b", "qwen3-8b"} <= {choice.value for choice in chips["8b"].choices}
    assert [choice.value for choice in chips["H100"].choices] == ["h100-pcie-80gb"]
    assert "fp8-deepseek" in {choice.value for choice in chips["fp8"].choices}
    assert (chips["gbs 1k"].value, [choice.value for choice in chips["gbs 1k"].choices]) == (1024, [1000])
    assert [chips[text].state for text in ("8b", "H100", "fp8", "gbs 1k", "seq 8k")] == [
        *("assumed", "understood", "assumed", "assumed", "understood")
    ]


def test_what_a_sentence_leaves_open_is_assumed_by_a_stated_rule(catalogue: Catalogue) -> None:
    read = read_sentence("gpt2-xl on 24 A100", catalogue)
    assumed = {chip.field: (chip.value, bool(chip.note)) for chip in read.chips if not chip.text}
    assert assumed == {
        "/recipe/sequence_length": (1024, True),
        "/recipe/global_batch": (4104, True),
        "/layout/auto": (True, True),
    }
    tuned = read_sentence("qlora llama 3.1 70b on 2x4090", catalogue).body["recipe"]
    assert (tuned["sequence_length"], tuned["global_batch"]) == (4096, 64)


def test_a_batch_stays_reasonable_on_many_gpus(catalogue: Catalogue) -> None:
    recipe = read_sentence("llama 3.1 405b on 16384 H100", catalogue).body["recipe"]
    assert recipe["global_batch"] * recipe["sequence_length"] == 1 << 24


@pytest.mark.parametrize("text", ["x" * (LONGEST + 1), "", "   ", "=", "\0", "???"])
def test_what_is_no_sentence_is_refused(text: str, catalogue: Catalogue) -> None:
    with pytest.raises(Refused):
        read_sentence(text, catalogue)


HOSTILE = (
    *("1," * 250, "9" * 500, "a " * 250, "tp " * 166, "8x" * 250, "$" * 500, "(" * 500, "llama " * 83, "h100 " * 100),
    *("\ud800 llama", "\u0130 8xH100 llama 3.1 8b", "1e99 tokens", "llama 3.1 8b 8xH100 seq 1e99"),
    *("llama 3.1 8b 9999999xH100", "llama 3.1 8b 0xH100", "8 H100 llama 3.1 8b mbs 0", "8 H100 llama 3.1 8b dp 0"),
    *("llama 3.1 8b 8 H100 $1e99/h", "llama 3.1 8b 2 nodes 0 gpus H100"),
)
FRAGMENTS = sorted({word for row in SENTENCES for word in re.findall(r"\S+", row["sentence"])})
SENTENCE = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=LONGEST),
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=3)), max_size=30).map(" ".join),
)


@given(SENTENCE)
def test_no_text_is_dropped_or_fatal(text: str) -> None:
    text = text[:LONGEST].removeprefix("=")
    catalogue = shipped_catalogue()
    try:
        read = read_sentence(text, catalogue)
    except Refused:
        return
    with suppress(Refused):
        read_question({**read.body, "layout": {}}, catalogue)
    rest, repeated = text, {word for chip in read.chips for word in words_in(chip.text)}
    for chip in read.chips:
        assert chip.text in text
        rest = rest.replace(chip.text, " ", 1) if chip.text else rest
    assert {word for word in words_in(rest) if word.isalnum()} <= words().fillers | UNITS | repeated


def words_in(text: str) -> set[str]:
    return {word.strip(".:/-").casefold() for word in re.findall(r"[^\s,;()\[\]{}\"'!?|]+", text)}


UNITS = frozenset({"x", "gpus", "nodes", "of"})
"""Words between a number and its GPUs, which no chip needs."""
