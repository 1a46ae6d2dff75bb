"""Traces of torch's profiler: the one reader of the format, for workers and for the API."""

import gzip
import json
import re
import zlib
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from io import BytesIO
from math import inf
from tomllib import loads
from typing import Any, Literal, TypeGuard, cast

from service.errors import Problem, Refused

MOST_BYTES = 512 << 20
"""Longest trace, decompressed. Source: a choice; three steps of an 8B model with stacks take some 200 MB."""
MOST_TIMES_SENT = 64
"""Most bytes of a trace for each byte that was sent. Source: a choice; published traces have 10 to 23."""
MOST_EVENTS = 1_000_000
"""Most events of a trace that have a role. Source: a choice; a step of a large model has some 50,000."""
MOST_ITEMS = 4 * MOST_EVENTS
"""Most events of any kind. Source: a choice; published traces have up to three for each with a role."""
MOST_NAMES = 20_000
"""Most different names. Source: a choice; published traces have up to 900."""
LONGEST_NAME = 500
"""Characters of a name that are read; those of templates in C++ have thousands."""
LONGEST_VALUE = 8 << 20
"""Characters of one event, or of one part of the file's head. Source: a choice; groups of 16,000 ranks take 2 MB."""
PIECE_BYTES = 1 << 20
"""Bytes that are decompressed and decoded at a time."""
LATEST_MICROSECONDS = 1e17
"""Latest time of an event: the year 5138."""
LONGEST_SECONDS = 86_400.0
"""Longest time between two events. Source: a choice; a profile has seconds."""
MICROSECONDS_PER_S = 1e6
"""Unit of times in a Chrome trace. Source: Trace Event Format, ts and dur."""

EXPORTED = "send the file as torch.profiler's export_chrome_trace or tensorboard_trace_handler wrote it"
FEWER = "record fewer steps (torch.profiler.schedule(active=3)), without with_stack and profile_memory"

Role = Literal["kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_op", "step", "annotation"]

STEP = "ProfilerStep#"
"""Prefix of the profiler's names of steps. Source: torch.profiler.profile.step."""

OPTIMIZER = "Optimizer.step#"
"""Prefix of the profiler's names of an optimizer's step. Source: torch.optim.Optimizer.profile_hook_step."""

DATA = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
"""Names of the wait of a data loader for the next batch. Source: torch.utils.data.dataloader."""

COLLECTIVES = ("nccl:", "gloo:", "hccl:", "ucc:", "mpi:")
"""Prefixes of collective operations on the host. Source: torch.distributed's process groups."""

_NAMES = loads(files("service.calibration").joinpath("trace_names.toml").read_text(encoding="utf-8"))
_CATEGORIES: Mapping[str, Role] = _NAMES["categories"]
_PATTERNS = {
    table: {kind: re.compile(text, re.IGNORECASE) for kind, text in _NAMES[table].items()}
    for table in ("patterns", "collectives")
}

_DEVICE_CATEGORIES = ("kernel", "mtia_ccp_events", "memcpy", "gpu_memcpy", "memset", "gpu_memset")

_HEAD = ("distributedInfo", "deviceProperties", "with_stack", "profile_memory")

FORMATS = {"bfloat16": "bf16", "half": "fp16", "float": "fp32"}
"""Number formats by torch's names in events, in small letters. Source: torch 2.13 c10/core/ScalarType.h."""

_ELEMENT_BYTES = {"float": 4, "bfloat16": 2, "half": 2, "double": 8, "long": 8, "int": 4, "byte": 1, "bool": 1}

_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1}
"""Operations that are one matrix product, with the place of its first operand. Source: torch 2.13."""


@dataclass(slots=True, kw_only=True)
class Event:
    """An event of a trace."""

    role: Role
    name: str
    start_seconds: float
    """Start, relative to the first event."""
    end_seconds: float
    lane: str
    """Thread or stream."""
    on_device: bool
    correlation: int | None
    """Number that a launch on the host shares with its kernel."""
    bytes: int
    outer: int | None = None
    """Number that a kernel shares with the operation that launched it."""
    product: tuple[int, int, int, str] | None = None
    """Rows, columns, inner size and number format of a matrix product, where the profiler recorded shapes."""
    collective: tuple[str, int, int] | None = None
    """Name, bytes and ranks of a collective operation, where they are stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace of one process."""

    events: list[Event]
    """By their start."""
    device: str | None
    """Name of the first GPU."""
    memory_bytes: float
    """Its memory; 0 where it is not stated."""
    ranks: int | None
    """Processes of the job."""
    has_stacks: bool
    """Whether the profiler recorded stacks or memory too, which slows the host."""


def read_trace(content: bytes) -> Trace:
    """Parse a trace, plain or compressed."""
    head: dict[str, Any] = {}
    reader = _Reader(_pieces(content))
    try:
        events = trace_events(_raw_events(reader, head))
    except RecursionError:
        raise refused("too_deep", f"{reader.place}: lists and objects nest too deep", EXPORTED) from None
    if not events:
        raise refused("no_events", "the trace holds no operation and no kernel with a duration", EXPORTED)
    job, devices = head.get("distributedInfo"), head.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices and isinstance(devices[0], dict) else {}
    name, memory = first.get("name"), first.get("totalGlobalMem")
    ranks = job.get("world_size") if isinstance(job, dict) else None
    return Trace(
        events=events,
        device=name[:LONGEST_NAME] if isinstance(name, str) and name else None,
        memory_bytes=float(_whole(memory) or 0),
        ranks=ranks if isinstance(ranks, int) and 0 < ranks < 1 << 30 else None,
        has_stacks=any(head.get(name) not in (None, 0, False) for name in ("with_stack", "profile_memory")),
    )


def refused(code: str, message: str, fix: str) -> Refused:
    """The refusal of a trace."""
    return Refused(Problem(field="", code=code, message=message, fix=fix))


def _pieces(content: bytes) -> Iterator[bytes]:
    if not content:
        raise refused("empty", "the trace is empty", EXPORTED)
    is_packed = content.startswith(b"\x1f\x8b")
    total = 0
    try:
        with gzip.GzipFile(fileobj=BytesIO(content)) if is_packed else BytesIO(content) as file:
            while piece := file.read(PIECE_BYTES):
                total += len(piece)
                if total > MOST_BYTES:
                    message = f"the trace has more than {MOST_BYTES >> 20} MiB of text"
                    raise refused("too_long", message, FEWER)
                if total > PIECE_BYTES + MOST_TIMES_SENT * len(content):
                    message = f"the trace unpacks to more than {MOST_TIMES_SENT} times what was sent"
                    raise refused("too_long", message, EXPORTED)
                yield piece
    except (EOFError, OSError, zlib.error):
        raise refused("not_gzip", "the gzip data is damaged or cut short", "copy the file again, whole") from None


class _Reader:
    """JSON values of a text that is only partly in memory."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._decode = getincrementaldecoder("utf-8-sig")().decode
        self._text, self._at, self._before = "", 0, 0
        self._is_whole = False
        self._parse = json.JSONDecoder(object_pairs_hook=self._object).raw_decode

    @property
    def place(self) -> str:
        return f"at character {self._before + self._at + 1}"

    def peek(self) -> str:
        """The next character that is no blank; empty at the end."""
        while True:
            while self._at < len(self._text):
                character = self._text[self._at]
                if character not in " \t\r\n":
                    return character
                self._at = cast("re.Match[str]", _BLANKS.match(self._text, self._at)).end()
            if not self._more():
                return ""

    def take(self, *expected: str) -> str:
        """The next character that is no blank, which must be one of these."""
        character = self.peek()
        if character not in expected:
            found = "another character" if character else "the end of the file"
            raise refused("not_json", f"{self.place}: expected {' or '.join(expected)}, found {found}", EXPORTED)
        self._at += 1
        return character

    def value(self) -> Any:
        self.peek()
        while True:
            try:
                value, end = self._parse(self._text, self._at)
            except ValueError:
                length = len(self._text) - self._at
                if self._is_whole or length > LONGEST_VALUE:
                    message = f"{self.place}: no JSON value of at most {LONGEST_VALUE >> 20} Mi characters"
                    raise refused("not_json", message, EXPORTED) from None
                while len(self._text) - self._at <= 2 * length and self._more():
                    pass
                continue
            if end < len(self._text) or not self._more():  # a number may go on in the next piece
                self._at = end
                return value

    def _more(self) -> bool:
        piece = next(self._pieces, None)
        self._is_whole = piece is None
        try:
            more = self._decode(piece or b"", final=self._is_whole)
        except UnicodeDecodeError:
            raise refused("not_text", "the file is no text in UTF-8", EXPORTED) from None
        self._before, self._text, self._at = self._before + self._at, self._text[self._at :] + more, 0
        return not self._is_whole

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            raise refused("duplicate_key", f"{self.place}: an object names one field twice", EXPORTED)
        return value


_BLANKS = re.compile(r"[ \t\r\n]*")


def _raw_events(reader: _Reader, head: dict[str, Any]) -> Iterator[Any]:
    """Events as the file has them; the other parts of the file go into `head`."""
    if reader.peek() == "[":  # Chrome's viewer takes a list alone too
        yield from _items(reader)
    else:
        reader.take("{")
        is_open = reader.peek() != "}" or reader.take("}") != "}"
        while is_open:
            name = reader.value()
            reader.take(":")
            if not isinstance(name, str) or name in head:
                message = f"{reader.place}: the file has a part twice, or one without a name"
                raise refused("duplicate_key", message, EXPORTED)
            if name == "traceEvents":
                head[name] = None
                yield from _items(reader)
            else:
                value = reader.value()
                head[name[:LONGEST_NAME]] = value if name in _HEAD else None
            if len(head) > LONGEST_NAME:
                raise refused("not_a_trace", f"the file has more than {LONGEST_NAME} parts", EXPORTED)
            is_open = reader.take(",", "}") == ","
        if "traceEvents" not in head:
            raise refused("not_a_trace", "the file has no list traceEvents", EXPORTED)
    if reader.peek():
        raise refused("not_json", f"{reader.place}: the file goes on after its end", EXPORTED)


def _items(reader: _Reader) -> Iterator[Any]:
    reader.take("[")
    if reader.peek() != "]":
        yield reader.value()
        while reader.take(",", "]") == ",":
            yield reader.value()
    else:
        reader.take("]")


def trace_events(raw: Iterable[Any]) -> list[Event]:
    """Events with a duration and a role, by their start."""
    names: dict[str, str] = {}
    collective: set[Any] = set()
    events: list[Event] = []
    for place, one in enumerate(raw):
        if not isinstance(one, dict):
            raise refused("not_a_trace", "an item of traceEvents is no object", EXPORTED)
        event = _event(one, names) if one.get("ph") == "X" else None
        if event is not None:
            events.append(event)
            if event.role == "communication" and not event.on_device:
                collective.add(event.outer)  # their kernels have it too
        if len(events) > MOST_EVENTS or len(names) > MOST_NAMES or place >= MOST_ITEMS:
            message = f"the trace has more than {MOST_EVENTS} events or {MOST_NAMES} different names"
            raise refused("too_long", message, FEWER)
    collective.discard(None)
    events.sort(key=lambda event: event.start_seconds)
    origin = events[0].start_seconds if events else 0.0
    for event in events:
        event.start_seconds = (event.start_seconds - origin) / MICROSECONDS_PER_S
        event.end_seconds = event.start_seconds + event.end_seconds / MICROSECONDS_PER_S
        if event.role == "kernel" and event.outer in collective:
            event.role = "communication"
    if events and max(event.end_seconds for event in events) > LONGEST_SECONDS:
        message = f"events are more than {LONGEST_SECONDS:.0f} s apart, so their times are of different clocks"
        raise refused("out_of_range", message, EXPORTED)
    return events


def _event(one: Mapping[str, Any], names: dict[str, str]) -> Event | None:
    """An event with its times in the file's unit, its duration in the place of its end; None without a role."""
    category = str(one.get("cat", "")).lower()
    given = _CATEGORIES.get(category)
    if given is None:
        return None
    name = one.get("name")
    if not isinstance(name, str):
        raise refused("not_a_trace", "an event of the trace has no name", EXPORTED)
    name = names.setdefault(name[:LONGEST_NAME], name[:LONGEST_NAME])
    args = one.get("args")
    args = args if isinstance(args, dict) else {}
    role = _role(given, name)
    lane = f"{str(one.get('pid'))[:64]}/{str(one.get('tid'))[:64]}"
    return Event(
        role=role,
        name=name,
        start_seconds=_microseconds(one, "ts"),
        end_seconds=_microseconds(one, "dur", 0),
        lane=names.setdefault(lane, lane),
        on_device=category in _DEVICE_CATEGORIES,
        correlation=_whole(args.get("correlation")),
        bytes=_whole(args.get("bytes")) or 0,
        outer=_whole(args.get("External id", args.get("external id"))),
        product=_product(_PRODUCTS[name], args) if name in _PRODUCTS and role == "cpu_op" else None,
        collective=_collective(args) if role == "communication" else None,
    )


def _product(place: int, args: Mapping[str, Any]) -> tuple[int, int, int, str] | None:
    """The matrix product of an operation, from the recorded shapes and formats of its operands."""
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list) or len(types) < place + 2:
        return None
    sides = [side for operand in dims[place : place + 2] if isinstance(operand, list) for side in operand[:3]]
    format_name = FORMATS.get(str(types[place])[:64].removeprefix("c10::").lower())
    whole = [_whole(side) or 0 for side in sides]
    is_product = len(sides) == 4 and all(whole) and whole[1] == whole[2] and format_name is not None
    return (whole[0], whole[3], whole[1], str(format_name)) if is_product else None


def _collective(args: Mapping[str, Any]) -> tuple[str, int, int] | None:
    """Name, bytes and ranks of a collective operation: of what is sent and received, the larger."""
    name = args.get("Collective name")
    if not isinstance(name, str):
        return None
    numbers = max(_whole(args.get("In msg nelems")) or 0, _whole(args.get("Out msg nelems")) or 0)
    element = _ELEMENT_BYTES.get(str(args.get("dtype"))[:64].removeprefix("c10::").lower(), 1)
    return name[:64], numbers * element, _whole(args.get("Group size")) or 0


def _microseconds(one: Mapping[str, Any], field: str, default: float | None = None) -> float:
    value = one.get(field, default)
    if not _is_number(value) or not 0 <= value <= LATEST_MICROSECONDS:
        message = f"{field} of an event is no number of microseconds from 0 to {LATEST_MICROSECONDS:g}"
        raise refused("not_a_number" if not _is_number(value) else "out_of_range", message, EXPORTED)
    return float(value)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and -inf < value < inf


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def _role(role: Role, name: str) -> Role:
    if role == "kernel":
        return "communication" if kind_of(name) == "communication" else role
    if role not in ("cpu_op", "annotation"):
        return role
    if name.startswith(STEP):
        return "step"
    if name.startswith(COLLECTIVES):
        return "communication"
    return "dataloader" if role == "cpu_op" and name.startswith(DATA) else role


@lru_cache(maxsize=MOST_NAMES)
def _first_match(table: str, name: str) -> str:
    return next((kind for kind, pattern in _PATTERNS[table].items() if pattern.search(name)), "other")


def kind_of(name: str) -> str:
    """The kind of work of a kernel or operation.

    >>> kind_of("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>"), kind_of("aten::mul")
    ('gemm', 'elementwise')
    >>> kind_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"), kind_of("unknown")
    ('communication', 'other')
    """
    return _first_match("patterns", name)


def collective_of(name: str) -> str:
    """The kind of a collective operation.

    >>> collective_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"), collective_of("c10d::_reduce_scatter_base_")
    ('all_reduce', 'reduce_scatter')
    """
    return _first_match("collectives", name)
