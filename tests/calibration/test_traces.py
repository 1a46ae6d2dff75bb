"""The reader of traces: what any caller may send is read within bounds, or refused with what to do."""

import gzip
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from service.calibration import traces
from service.calibration.traces import PIECE_BYTES, read_trace
from service.errors import Refused
from tests.calibration.two_steps import event, two_steps

GOOD = {"traceEvents": two_steps()}


def text(*events: Any, **head: Any) -> bytes:
    return json.dumps({**head, "traceEvents": list(events)}).encode()


def one(**changes: Any) -> dict[str, Any]:
    return {**event("cpu_op", "aten::mm", 1, 2), **changes}


def deep(levels: int, opening: str, closing: str) -> bytes:
    return f'{{"traceEvents": [{opening * levels}1{closing * levels}]}}'.encode()


HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "empty"),
    "no JSON": (b"once upon a time", "not_json"),
    "a number": (b"17", "not_json"),
    "no events": (b"{}", "not_a_trace"),
    "events are no list": (b'{"traceEvents": {}}', "not_json"),
    "an event is no object": (text(1), "not_a_trace"),
    "no event with a duration": (text({**one(), "ph": "B"}), "no_events"),
    "an empty list": (b"[]", "no_events"),
    "no end": (text(one())[:-2], "not_json"),
    "no end within an event": (text(one())[:-20], "not_json"),
    "text after the end": (text(one()) + b"{}", "not_json"),
    "a comma too many": (b'{"traceEvents": [],}', "not_json"),
    "two lists of events": (b'{"traceEvents": [], "traceEvents": []}', "duplicate_key"),
    "a field twice": (b'{"traceEvents": [{"ph": "X", "ph": "X"}]}', "duplicate_key"),
    "a part without a name": (b'{1: 2, "traceEvents": []}', "duplicate_key"),
    "too deep a list": (deep(100_000, "[", "]"), "too_deep"),
    "too deep an object": (deep(100_000, '{"a":', "}"), "too_deep"),
    "too deep and never closed": (b'{"traceEvents": [' + b"[" * 3_000_000, "too_deep"),
    "NaN": (text(one(ts=float("nan"))), "not_a_number"),
    "infinity": (text(one(dur=float("inf"))), "not_a_number"),
    "a text for a time": (text(one(ts="17")), "not_a_number"),
    "true for a time": (text(one(ts=True)), "not_a_number"),
    "no time": (text({"ph": "X", "cat": "cpu_op", "name": "a"}), "not_a_number"),
    "before all time": (text(one(ts=-1)), "out_of_range"),
    "a negative duration": (text(one(dur=-5)), "out_of_range"),
    "a huge time": (text(one(ts=1e300)), "out_of_range"),
    "a huge whole number": (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": %s}]}' % (b"9" * 4000),
                            "out_of_range"),
    "a number too long for Python": (b'{"traceEvents": [{"ts": %s}]}' % (b"9" * 40_000), "not_json"),
    "clocks that differ": (text(one(ts=0), one(ts=1e15)), "out_of_range"),
    "no name": (text(one(name=None)), "not_a_trace"),
    "Latin-1": (text(one(name="aten::mm")).replace(b"aten", b"\xe4ten"), "not_text"),
    "UTF-16": (json.dumps(GOOD).encode("utf-16"), "not_text"),
    "gzip of gzip": (gzip.compress(gzip.compress(text(one()))), "not_text"),
    "gzip cut short": (gzip.compress(text(*two_steps()))[:-30], "not_gzip"),
    "gzip damaged": (gzip.compress(text(one()))[:12] + b"\xff" * 40, "not_gzip"),
    "gzip's head alone": (b"\x1f\x8b", "not_gzip"),
    "a string without an end": (b'{"traceEvents": ["' + b"a" * (10 << 20), "not_json"),
    "parts without an end": (b'{"a": ' + b"1" * (9 << 20), "not_json"),
    "a thousand parts": (json.dumps({f"p{at}": at for at in range(1000)}).encode(), "not_a_trace"),
}  # fmt: skip

MOST_SECONDS = 20.0
"""Longest time of a refusal on a busy machine; alone none takes one second."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_trace_is_refused_with_what_to_do(name: str) -> None:
    content, code = HOSTILE[name]
    began = time.monotonic()
    with pytest.raises(Refused) as refused:
        read_trace(content)
    assert time.monotonic() - began < MOST_SECONDS
    (problem,) = refused.value.problems
    assert problem.code == code
    assert problem.message
    assert problem.fix
    assert len(problem.message) < 300


def test_a_bomb_is_refused_within_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_BYTES", 32 << 20)
    bombs = {
        "blanks": gzip.compress(b" " * (64 << 20)),
        "blanks as they are": gzip.compress(b" " * (33 << 20), 0),
        "members": gzip.compress(b'{"traceEvents": [' + b" " * (1 << 20)) + gzip.compress(b" " * (16 << 20)) * 4,
        "events of no kind": gzip.compress(b'{"traceEvents": [' + b'{"ph": "M", "name": "thread"},' * (1 << 21)),
    }
    for content in bombs.values():
        tracemalloc.start()
        with pytest.raises(Refused) as refused:
            read_trace(content)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert refused.value.problems[0].code == "too_long"
        assert peak_bytes < 16 * PIECE_BYTES


def many(count: int, change: Callable[[int], dict[str, Any]]) -> bytes:
    return text(*(one(**change(at)) for at in range(count)))


def test_too_many_events_or_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_EVENTS", 100)
    monkeypatch.setattr(traces, "MOST_NAMES", 50)
    monkeypatch.setattr(traces, "MOST_ITEMS", 200)
    for content in (
        many(201, lambda _: {"ph": "M"}),
        many(101, lambda _: {}),
        many(60, lambda at: {"name": f"op {at}"}),
        many(60, lambda at: {"tid": at}),
    ):
        with pytest.raises(Refused) as refused:
            read_trace(content)
        assert refused.value.problems[0].code == "too_long"
        assert "schedule(active=3)" in refused.value.problems[0].fix
    assert len(read_trace(many(100, lambda _: {})).events) == 100


def test_arguments_of_any_kind_are_survived() -> None:
    strange: list[Any] = [None, [], {}, "x", -1, 1e300, True, [[1]], {"a": {}}]
    product = {"Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}
    for value in strange:
        for field in ("args", "cat", "pid", "tid", "ph", "id", "bp"):
            read_trace(text(one(), one(**{field: value})))
        for name in (*product, "External id", "correlation", "bytes", "Collective name", "In msg nelems", "dtype"):
            read_trace(text(one(args={**product, name: value}), one(name="nccl:x", args={name: value})))
        for part in ("deviceProperties", "distributedInfo", "with_stack", "schemaVersion"):
            read_trace(text(one(), **{part: value}))
            read_trace(text(one(), **{part: [{"name": value, "totalGlobalMem": value}]}))


def test_what_viewers_take_is_read() -> None:
    plain = json.dumps(GOOD).encode()
    expected = read_trace(plain).events
    assert len(expected) > 10
    for content in (
        gzip.compress(plain),
        b"\xef\xbb\xbf" + plain,
        json.dumps(GOOD["traceEvents"]).encode(),
        json.dumps(GOOD, indent=4).encode(),
        gzip.compress(plain[:700]) + gzip.compress(plain[700:]),
        b" \n" + plain + b"\n\n",
    ):
        assert read_trace(content).events == expected


def test_the_head_is_read_before_and_after_the_events() -> None:
    device = {"name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85 << 30}
    head = {"deviceProperties": [device], "distributedInfo": {"world_size": 8, "rank": 3}}
    before = read_trace(json.dumps({**head, **GOOD, "traceName": "x"}).encode())
    after = read_trace(json.dumps({"schemaVersion": 1, **GOOD, **head, "with_stack": 1}).encode())
    assert (before.device, before.memory_bytes, before.ranks, before.has_stacks) == (device["name"], 85 << 30, 8, False)
    assert (after.device, after.ranks, after.has_stacks) == (device["name"], 8, True)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_a_text_is_read_the_same_in_pieces_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.dumps(GOOD | {"schemaVersion": 12345, "name": "größe €"}, ensure_ascii=False).encode()
    expected = read_trace(content).events
    monkeypatch.setattr(traces, "PIECE_BYTES", size)
    assert read_trace(content).events == expected
    assert read_trace(gzip.compress(content)).events == expected
