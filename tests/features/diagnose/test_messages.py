"""Messages of torch, XLA, NCCL, Linux and Slurm, from public issues."""

import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.answers.diagnoses import LONGEST_MESSAGE, Said
from service.errors import Refused
from service.features.diagnose.schemas import EXAMPLE, SCALES, read_message

PASTED: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "out_of_memory.toml").read_text())["message"]

DERIVED = {"reserved_bytes", "unallocated_bytes"}


def bytes_of(written: str) -> float:
    digits, unit = written.split()
    return float(digits) * SCALES[unit[0].lower()]


def told(said: Said) -> dict[str, float]:
    return {name: value for name, value in asdict(said).items() if name.endswith("_bytes") and value is not None}


@pytest.mark.parametrize("pasted", PASTED, ids=[one["source"].partition("github.com/")[2] for one in PASTED])
def test_what_people_pasted_is_understood(pasted: dict[str, Any]) -> None:
    said = read_message(pasted["text"], None)
    expected = {f"{name}_bytes": bytes_of(amount) for name, amount in pasted["said"].items()}
    assert said.kind == pasted["kind"]
    found = told(said)
    assert {name: found.get(name) for name in expected} == pytest.approx(expected)
    assert found.keys() - expected.keys() <= DERIVED


@pytest.mark.parametrize(
    ("text", "kind", "requested"),
    [
        ("CUDA out of memory.", "torch_allocator", None),
        ("torch.OutOfMemoryError", "torch_allocator", None),
        ("Tried to allocate 2.00 GiB", "torch_allocator", "2 GiB"),
        ("Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB", "torch_allocator", "2 GiB"),
        ("RuntimeError: CUDA error: out of memory", "cuda_error", None),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", "cuda_error", None),
        ("Killed", "killed", None),
    ],
)
def test_a_bare_line_is_understood(text: str, kind: str, requested: str | None) -> None:
    said = read_message(text, None)
    assert (said.kind, said.requested_bytes) == (kind, None if requested is None else bytes_of(requested))


def test_wordings_are_many() -> None:
    assert len(PASTED) >= 25
    assert len({one["kind"] for one in PASTED}) == 9


def test_what_is_held_beside_live_tensors_follows_from_either_total() -> None:
    old = read_message(PASTED[2]["text"], None)
    assert old.unallocated_bytes == pytest.approx((13.71 - 8.77) * 2**30)
    new = read_message(EXAMPLE, None)
    assert new.reserved_bytes == pytest.approx((75.02 + 1.90) * 2**30)


def test_numbers_are_told_with_their_words_and_nothing_else() -> None:
    secret = f"/secret/path/train.py line 3 in ada {EXAMPLE} and secret words"
    said = read_message(secret, None)
    assert "secret" not in str(asdict(said))
    assert "ada" not in str(asdict(said))
    first = said.numbers[0]
    assert (first.name, first.words, first.bytes) == ("requested_bytes", "Tried to allocate #", 2.0**31)
    assert first.precision_bytes == pytest.approx(0.005 * 2**30)


def test_statistics_are_read_beside_a_message_or_alone() -> None:
    stats = {"allocated_bytes.all.current": 100, "allocated_bytes.all.peak": 300, "reserved_bytes.all.current": 400}
    alone = read_message("", stats)
    assert told(alone) == {
        "allocated_bytes": 100, "peak_allocated_bytes": 300, "reserved_bytes": 400, "unallocated_bytes": 300,
    }  # fmt: skip
    both = read_message(EXAMPLE, stats)
    assert both.allocated_bytes == pytest.approx(75.02 * 2**30)
    assert both.peak_allocated_bytes == 300


@pytest.mark.parametrize(
    ("line", "moment"),
    [
        ('File "torch/optim/adamw.py", line 608, in _multi_tensor_adamw', "optimizer"),
        ("return Variable._execution_engine.run_backward(  # Calls into the C++ engine", "backward"),
        ("loss = nn.functional.cross_entropy(source, target)", "loss"),
        ('File "modeling_llama.py", line 10, in forward', "forward"),
        ("", None),
    ],
)
def test_a_traceback_tells_the_moment(line: str, moment: str | None) -> None:
    assert read_message(f"{line}\n{EXAMPLE}", None).moment == moment


@pytest.mark.parametrize(
    "text", ["", "hello", "Segmentation fault", "out of memory?", "Tried to allocate", "\x00" * 100]
)
def test_what_is_not_understood_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Refused) as refused:
        read_message(text, None)
    (problem,) = refused.value.problems
    assert problem.code == "not_understood"
    assert EXAMPLE in problem.fix
    assert "hello" not in str(problem)


def test_a_message_that_is_too_long_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        read_message("x" * (LONGEST_MESSAGE + 1), None)
    assert refused.value.problems[0].code == "too_long"


HOSTILE = [
    "9" * 1_000,
    "1.",
    "| Allocated memory |",
    "Process 1 has ",
    "Killed\n",
    "\x1b[",
    "(GPU 0; 1",
    "Tried to allocate ",
    " ",
]


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_texts_are_read_in_one_pass(part: str) -> None:
    text = (EXAMPLE + part * LONGEST_MESSAGE)[:LONGEST_MESSAGE]
    assert read_message(text, None).requested_bytes == 2.0**31
    turned = (part * LONGEST_MESSAGE)[: LONGEST_MESSAGE - len(EXAMPLE) - 1] + "\n" + EXAMPLE
    assert read_message(turned, None).kind == "torch_allocator"


@settings(max_examples=30)
@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="message"):
        read_message(text, None)
