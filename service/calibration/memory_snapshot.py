"""Memory snapshots of torch in their JSON form: the bytes that a process reserved on a GPU.

torch writes a pickle, which runs its code when it is read, so it is refused by its name and by its first bytes. Its
JSON form is the output of `json.dump(torch.cuda.memory._snapshot(), file)`. The peak is found by going back through
the trace from the bytes at its end; where the trace was cut short, it is a lower bound.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.calibration.records import Environment, Measurement, ProbeRecord
from service.calibration.tables import refuse_empty, refused

PICKLES = (".pickle", ".pkl", ".pt", ".pth", ".bin")
"""Suffixes of pickles."""

FIRST_BYTES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
"""First bytes of pickles, and of archives of them. Source: Python, pickle protocol opcodes (PROTO); zip."""

TO_JSON = (
    "python -c \"import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), sys.stdout, default=str)\" "
    "snapshot.pickle > snapshot.json, on the machine that wrote it"
)

SEND = "send what torch.cuda.memory._snapshot() gives"

MOST_DEVICES = 128
"""Devices of one snapshot. Source: a choice; a host has 8 or 16."""

MOST_BYTES = 1 << 60
"""Largest size of a block or a segment [byte]."""

MOST_EVENTS = 2_000_000
"""Events of one trace. Source: a choice; twenty times the default of torch."""

SEGMENTS = {"segment_alloc": 1, "segment_free": -1, "segment_map": 1, "segment_unmap": -1}


def refuse_pickle(content: bytes, name: str = "") -> None:
    """Refuse a pickle before anything reads it."""
    if name.lower().endswith(PICKLES) or content.startswith(FIRST_BYTES):
        message = "this is a pickle: reading it would run whatever it says, so it is not read"
        raise refused("", "pickle", message, f"turn it into JSON: {TO_JSON}")


def read_memory_snapshot(text: str, device: str, memory_bytes: float = 0.0) -> tuple[ProbeRecord, ...]:
    """The peaks of a process in a snapshot."""
    refuse_pickle(text[:8].encode("utf-8", "replace"))
    refuse_empty(text, "snapshot")
    snapshot = _parsed(text)
    segments, traces = _parts(snapshot)
    environment = Environment(kind="cuda", device=device, devices=max(1, len(traces)), memory_bytes=memory_bytes)
    own = _by_device(segments)
    measurements = tuple(
        one
        for place in range(max(1, len(traces)))
        for one in _peaks(place, own.get(place, []), traces[place : place + 1])
    )
    if not measurements:
        message = "the snapshot holds no segment and no event, so nothing was allocated when it was taken"
        raise refused("segments", "empty", message, "record a history, and take the snapshot before memory is freed")
    return (ProbeRecord(probe="step", status="succeeded", environment=environment, measurements=measurements),)


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        raise refused("", "not_json", "the file is no JSON", f"a pickle is turned into JSON so: {TO_JSON}") from None
    if not isinstance(result, Mapping):
        raise refused("", "not_an_object", "the file is no JSON object", SEND)
    return result


def _parts(snapshot: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    segments, traces = snapshot.get("segments"), snapshot.get("device_traces", [])
    if not isinstance(segments, list) or not isinstance(traces, list):
        name = "segments" if not isinstance(segments, list) else "device_traces"
        message = f"{name} is not there, or no list, as in a snapshot of torch 2.1 and later"
        raise refused(name, "missing_column", message, SEND)
    if len(traces) > MOST_DEVICES:
        message = f"the snapshot has traces of {len(traces)} devices, and no host has more than {MOST_DEVICES}"
        raise refused("device_traces", "too_long", message, SEND)
    if sum(len(trace) for trace in traces if isinstance(trace, list)) > MOST_EVENTS:
        fix = "record fewer with max_entries"
        raise refused("device_traces", "too_long", f"a trace holds at most {MOST_EVENTS} events", fix)
    return segments, traces


def _by_device(segments: Sequence[Any]) -> dict[int, list[Mapping[str, Any]]]:
    """Segments by the number of their device."""
    result: dict[int, list[Mapping[str, Any]]] = {}
    for one in segments:
        device = one.get("device", 0) if isinstance(one, Mapping) else None
        if isinstance(device, int):
            result.setdefault(device, []).append(one)
    return result


def _peaks(place: int, own: Sequence[Mapping[str, Any]], traces: Sequence[Any]) -> Iterator[Measurement]:
    trace = traces[0] if traces and isinstance(traces[0], list) else []
    for operation, field in (("allocated_peak", "allocated_size"), ("reserved_peak", "total_size")):
        used = sum(_size(one, field) for one in own)
        peak = max(_back_through(trace, used, operation), default=used)
        if max(peak, used) > 0:
            value = float(max(peak, used))
            yield Measurement(
                operation=operation,
                shape={"device": place, "events": len(trace)},
                quantity="bytes",
                value=value,
                low=value,
                high=value,
                repeats=1,
            )


def _back_through(trace: Sequence[Any], used: int, operation: str) -> Iterator[int]:
    """The bytes in use after each event, from the last one to the first."""
    for event in reversed(trace):
        yield used
        if isinstance(event, Mapping):
            used -= _sign(str(event.get("action", "")), operation) * _size(event, "size")
    yield used


def _sign(action: str, operation: str) -> int:
    """Sign of an event: 1 where it adds to the bytes in use, -1 where it frees some."""
    if operation == "reserved_peak":
        return SEGMENTS.get(action, 0)
    return {"alloc": 1, "free_completed": -1}.get(action, 0)


def _size(one: Mapping[str, Any], field: str) -> int:
    value = one.get(field, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_BYTES:
        raise refused(field, "not_a_whole_number", f"{field} is no whole number of bytes up to 2^60", SEND)
    return value
