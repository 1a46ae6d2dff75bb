"""Toolkit of probes: context and result, random inputs of kernels, timing with cold caches, and groups of ranks."""

import math
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from service.calibration.records import ALLOWED_ERROR_FRACTIONS, LeftOutCode, Measurement, quantile
from service.errors import TraincostError
from service.worker.supervisor import STARTED_BY


class CannotRun(TraincostError):
    """The machine cannot measure the task; the message states the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """Device, ranks, time limit and callbacks of a probe."""

    device: str
    """Device of this process, e.g. cuda:0 or cpu."""
    folder: Path
    """Folder for files; those that the summary lists under `files` are uploaded."""
    end_seconds: float
    """Deadline on the monotonic clock; the probe then returns its results so far."""
    report: Callable[[float, str], None]
    """Function that reports progress: the done fraction, and a description."""
    rank: int = 0
    ranks: int = 1

    def left_seconds(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self.end_seconds - time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of a probe; of several ranks, only that of rank 0 is used."""

    measurements: tuple[Measurement, ...] = ()
    summary: dict[str, Any] | None = None
    """Summary of a profile or a timeline; `files` lists the files in the folder."""
    reason: str | None = None
    """Missing measurements and quality flags, with reasons."""


OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Phrases in errors of torch's allocators and libraries."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that a device, or the machine, is out of memory.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError("out of range"))
    (True, False)
    """
    return isinstance(error, MemoryError) or any(phrase in str(error) for phrase in OUT_OF_MEMORY)


SYSFS_PROCESSORS = Path("/sys/devices/system/cpu")
"""Folder in which Linux describes processors and their caches."""

UNKNOWN_CACHE_BYTES = 64 * 2**20
"""Assumed size of caches that are not reported. Source: a choice, above the L2 of an H200 (50 MB)."""
MOST_CACHE_BYTES = 512 * 2**20
"""Largest size of caches that is emptied; reading more takes longer than the measurement. Source: a choice."""
CACHE_MULTIPLE = 2
"""Size of the buffer as a multiple of the caches; reading it replaces their content. Source: a choice."""


class Caches:
    """Empties the caches of a device by reading a buffer, and times functions on them."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch = torch
        self._is_gpu = device != "cpu"
        self._device = device
        if self._is_gpu:
            cache_bytes = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", UNKNOWN_CACHE_BYTES))
        else:
            cache_bytes = last_level_bytes(SYSFS_PROCESSORS) or UNKNOWN_CACHE_BYTES
        size = CACHE_MULTIPLE * min(MOST_CACHE_BYTES, cache_bytes)
        self._buffer = torch.ones(size // 4, dtype=torch.float32, device=device)

    def wait(self) -> None:
        """Wait until the device is idle."""
        if self._is_gpu:
            self._torch.cuda.synchronize(self._device)

    def release(self) -> None:
        """Release unused memory of the allocator."""
        if self._is_gpu:
            self._torch.cuda.empty_cache()

    def cold_seconds(self, work: Callable[[], Any], before: Callable[[], Any] | None = None) -> float:
        """Time of one run on emptied caches. The time excludes the host, as a GPU is still reading then."""
        self._buffer.sum()
        if before is not None:
            before()
        return elapsed_seconds(work, self._device)


def elapsed_seconds(work: Callable[[], Any], device: str) -> float:
    """Time of one run: between two events of a GPU, or by the clock of this process."""
    import torch

    if device == "cpu":
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize(device)
    return float(begin.elapsed_time(end)) * 1e-3


def last_level_bytes(root: Path) -> int:
    """Size of all caches of the last level of this machine's processors."""
    sizes: dict[tuple[int, str], int] = {}
    for cache in root.glob("cpu[0-9]*/cache/index[0-9]*"):
        files = [cache / name for name in ("level", "shared_cpu_list", "size", "type")]
        if not all(file.is_file() for file in files):
            continue
        level, shared, size, kind = (file.read_text(encoding="utf-8").strip() for file in files)
        if kind != "Instruction" and size.endswith("K"):
            sizes[int(level), shared] = int(size[:-1]) * 1024
    last = max((level for level, _ in sizes), default=0)
    return sum(size for (level, _), size in sizes.items() if level == last)


NO_TIME = "no time was left"


class MissingMeasurement(TraincostError):
    """A missing measurement: a code for programs, and the reason in words."""

    def __init__(self, code: LeftOutCode, reason: str) -> None:
        self.code = code
        super().__init__(reason)

    def row(self, operation: str, shape: Mapping[str, Any]) -> dict[str, Any]:
        """Its row in a summary.

        >>> MissingMeasurement("no_time", NO_TIME).row("copy", {"size_bytes": 8})
        {'operation': 'copy', 'size_bytes': 8, 'code': 'no_time', 'reason': 'no time was left'}
        """
        return {"operation": operation, **shape, "code": self.code, "reason": str(self)}


def no_memory(owner: str) -> MissingMeasurement:
    """The error of a measurement that ran out of memory."""
    return MissingMeasurement("out_of_memory", f"out of memory: it needs more than {owner} has left")


def refuse_wrong(error_fraction: float, allowed_fraction: float) -> None:
    """Refuse a wrong result; its time must not be reported."""
    if not error_fraction <= allowed_fraction:
        raise MissingMeasurement("wrong_result", f"wrong result, off by {error_fraction:.2g} of the largest number")


def left_out_reason(left_out: Sequence[Mapping[str, Any]]) -> str | None:
    """The missing measurements in one sentence.

    >>> left_out_reason([{"reason": "no time was left"}, {"reason": "no time was left"}])
    '2 not measured: no time was left'
    """
    reasons = dict.fromkeys(str(row["reason"]) for row in left_out)
    return f"{len(left_out)} not measured: {'; '.join(reasons)}" if left_out else None


WARM_UPS = 3
"""Runs before the first timed one, in which kernels load, libraries choose and clocks rise. Source: a choice."""
WARM_UP_SECONDS = 0.5
"""Time after which no further warm-up begins. Source: a choice."""
REPEATS = 20
"""Default number of repeats. Source: a choice."""
SLOWEST_PER_S = 1e9
"""Lowest expected rate of any device, in FLOP or bytes a second. The rate of one case predicts the time of the next; a
small case has a low rate, and would predict too long a time for a large one. Source: a choice."""
FIRST_TURN_RUNS = 3.0
"""First turn of a slow case, with preparation and check, in times of one run. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A case with prepared inputs."""

    run: Callable[[], Any]
    error_fraction: Callable[[], float]
    """Largest error of its result over the largest number of the reference in higher precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel call to time."""

    operation: str
    shape: Mapping[str, Any]
    """Parameters that distinguish it from others of the same operation."""
    amount: float
    """FLOP or bytes, in one unit for all cases of a probe; a rate is this amount over the time."""
    prepare: Callable[[], PreparedRun]
    """Function that prepares its inputs, called in each turn."""
    allowed_error_fraction: float
    quantity: str = "seconds"
    """Reported quantity: seconds, or the suffix of a rate."""


@dataclass(slots=True)
class TimingRun:
    case: Case
    seconds: list[float] = field(default_factory=list)
    turn_seconds: float = 0.0
    """Time of its first turn, with preparation and without warm-up."""
    error_fraction: float | None = None
    left_out: MissingMeasurement | None = None


Run = Callable[[Mapping[str, Any], ProbeContext], ProbeResult]


def timed(cases_of: Callable[[Mapping[str, Any], "KernelInputs"], list[Case]]) -> Run:
    """A probe that builds cases from its parameters, and times them."""

    def run(parameters: Mapping[str, Any], context: ProbeContext) -> ProbeResult:
        cases = cases_of(parameters, KernelInputs(context.device))
        return time_cases(cases, context, int(parameters.get("repeats", REPEATS)))

    return run


def time_cases(cases: Sequence[Case], context: ProbeContext, repeats: int = REPEATS) -> ProbeResult:
    """Time each case for the given repeats, or as time allows."""
    caches = Caches(context.device)
    runs = [TimingRun(case=case) for case in cases]
    order = sorted(runs, key=lambda run: run.case.amount)
    seconds_each = 0.0
    for number, run in enumerate(order, start=1):
        if FIRST_TURN_RUNS * seconds_each * run.case.amount > context.left_seconds():
            run.left_out = MissingMeasurement("no_time", NO_TIME)
            continue
        _first_turn(run, caches)
        if run.seconds:
            seconds_each = min(run.seconds[0] / run.case.amount, 1 / SLOWEST_PER_S)
        context.report(number / len(order) / repeats, f"{run.case.operation} once")
    for turn in range(2, repeats + 1):
        for run in order:
            if run.seconds:
                if context.left_seconds() < run.turn_seconds:
                    return _timing_result(runs, repeats)
                run.seconds.append(caches.cold_seconds(run.case.prepare().run))
        context.report(turn / repeats, f"{turn} of {repeats} repeats")
    return _timing_result(runs, repeats)


def _first_turn(run: TimingRun, caches: Caches) -> None:
    """Warm one case up, check its result and time it once, unless the device cannot run it."""
    case = run.case
    try:
        run_once, begun = case.prepare().run, time.monotonic()
        for _ in range(WARM_UPS):
            run_once()
            caches.wait()
            if time.monotonic() - begun > WARM_UP_SECONDS:
                break
        del run_once  # its inputs make room for those of the timed run
        begun = time.monotonic()
        ready = case.prepare()
        seconds = caches.cold_seconds(ready.run)
        run.turn_seconds = time.monotonic() - begun
        run.error_fraction = ready.error_fraction()
        refuse_wrong(run.error_fraction, case.allowed_error_fraction)
        run.seconds.append(seconds)
    except MissingMeasurement as missing:
        run.left_out = missing
    except CannotRun as error:
        run.left_out = MissingMeasurement("cannot_run", str(error))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        run.left_out = no_memory("the device")
        caches.release()


def _timing_result(runs: Sequence[TimingRun], repeats: int) -> ProbeResult:
    measured = [run for run in runs if run.seconds]
    measurements = []
    for run in measured:
        case, is_time = run.case, run.case.quantity == "seconds"
        values = run.seconds if is_time else [case.amount / one for one in run.seconds]
        measurements.append(measurement(case.operation, case.shape, case.quantity, values, run.error_fraction))
    left_out = [run.left_out.row(run.case.operation, run.case.shape) for run in runs if run.left_out is not None]
    fewer = sum(len(run.seconds) < repeats for run in measured)
    incomplete = f"{fewer} kernels were measured fewer than {repeats} times: {NO_TIME}" if fewer else None
    return ProbeResult(
        measurements=tuple(measurements),
        summary={"left_out": left_out},
        reason="; ".join(filter(None, (left_out_reason(left_out), incomplete))) or None,
    )


def measurement(
    operation: str,
    shape: Mapping[str, Any],
    quantity: str,
    values: Sequence[float],
    relative_error_fraction: float | None = None,
) -> Measurement:
    """The measurement of repeats.

    >>> seconds = measurement("sum", {}, "seconds", [3.0, 1.0, 2.0])
    >>> seconds.low, seconds.value, seconds.high
    (1.2, 2.0, 2.8)
    """
    ordered = sorted(values)
    return Measurement(
        operation=operation,
        shape=dict(shape),
        quantity=quantity,
        value=statistics.median(ordered),
        low=quantile(ordered, 0.1),
        high=quantile(ordered, 0.9),
        repeats=len(ordered),
        relative_error_fraction=relative_error_fraction,
    )


FORMATS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}

MOST_DISTINCT = 4_194_301
"""Most distinct random numbers of a buffer; a larger one repeats them. It is prime, so that no two rows are equal."""
ALIGNMENT = 128
"""Alignment of inputs, in numbers: libraries choose slower kernels for unaligned ones."""
SEED = 20
"""Seed of the random numbers, so that two runs compute the same."""


def allowed_error_fraction(name: str) -> float:
    """Largest error of a correct result over its largest number, in a number format."""
    if name not in ALLOWED_ERROR_FRACTIONS:
        raise CannotRun(f"no number format {name}; there are {', '.join(ALLOWED_ERROR_FRACTIONS)}")
    return ALLOWED_ERROR_FRACTIONS[name]


class KernelInputs:
    """Tensors of random numbers on a device; those of one format are views of one buffer."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch = torch
        self.device = device
        self._drawn: dict[str, Any] = {}
        self._blank: dict[str, Any] = {}

    def format_of(self, name: str) -> Any:
        dtype = getattr(self._torch, FORMATS.get(name, name), None)
        if dtype is None:
            raise CannotRun(f"torch {self._torch.__version__} has no number format {name}: install a newer torch")
        return dtype

    def random(self, name: str, *shapes: tuple[int, ...]) -> list[Any]:
        """Normally distributed tensors that share no number."""
        return self._views(self._drawn, name, shapes)

    def blank(self, name: str, shape: tuple[int, ...]) -> Any:
        """A tensor for a result, reused for the next result."""
        return self._views(self._blank, name, (shape,))[0]

    def _views(self, buffers: dict[str, Any], name: str, shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
        counts = [math.prod(shape) for shape in shapes]
        padded_counts = [ALIGNMENT * math.ceil(count / ALIGNMENT) for count in counts]
        if name in buffers and buffers[name].numel() < sum(padded_counts):
            del buffers[name]
        if name not in buffers:
            make = self._random_buffer if buffers is self._drawn else self._blank_buffer
            buffers[name] = make(self.format_of(name), sum(padded_counts))
        views, start = [], 0
        for shape, count, padded in zip(shapes, counts, padded_counts, strict=True):
            views.append(buffers[name][start : start + count].view(shape))
            start += padded
        return views

    def _blank_buffer(self, number_format: Any, count: int) -> Any:
        return self._torch.empty(count, dtype=number_format, device=self.device)

    def _random_buffer(self, number_format: Any, count: int) -> Any:
        """Random numbers, repeated where there are more than MOST_DISTINCT."""
        generator = self._torch.Generator(device="cpu").manual_seed(SEED)
        numbers = self._torch.randn(min(count, MOST_DISTINCT), generator=generator).to(self.device).to(number_format)
        if count <= MOST_DISTINCT:
            return numbers
        buffer = self._blank_buffer(number_format, count)
        for start in range(0, count, MOST_DISTINCT):
            part = buffer[start : start + MOST_DISTINCT]
            part.copy_(numbers[: len(part)])
        return buffer


def error_fraction(result: Any, reference: Any) -> float:
    """Largest error of a result over the largest number of the reference in higher precision."""
    largest = float(reference.abs().max())
    error = float((result.double() - reference.double()).abs().max()) / (largest or 1.0)
    return error if math.isfinite(error) else math.inf


def spread(count: int, most: int) -> list[int]:
    """Indices spread evenly over `count` elements, the first and the last included.

    >>> spread(10, 4), spread(3, 8)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return list(range(count))
    return [round(number * (count - 1) / (most - 1)) for number in range(most)]


GRACE_SECONDS = 1.0
"""Time in which the other ranks report their error after one has failed. Source: a choice."""
POLL_SECONDS = 0.05
"""Period of checks whether ranks have ended. Source: a choice."""

RENDEZVOUS = "rendezvous"
"""Rendezvous file of ranks on one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Place of this process among the ranks: torchrun starts ranks on many nodes, a worker on one."""

    rank: int = 0
    ranks: int = 1
    local_rank: int = 0


def place_of(ranks: int, variables: Mapping[str, str]) -> Place | None:
    """The place of this process among the ranks of a task.

    >>> place_of(8, {"RANK": "9", "WORLD_SIZE": "16"}) is None
    True
    >>> place_of(16, {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1"})
    Place(rank=9, ranks=16, local_rank=1)
    """
    if ranks == 1:
        return Place()
    if variables.get("WORLD_SIZE") != str(ranks) or "RANK" not in variables:
        return None
    rank = int(variables["RANK"])
    return Place(rank=rank, ranks=ranks, local_rank=int(variables.get("LOCAL_RANK", rank)))


def start_ranks(ranks: int, command: Sequence[str]) -> int | None:
    """Run a program once for each rank on this machine; return the first rank that fails, or None."""
    threads = max(1, (os.cpu_count() or 1) // ranks)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MASTER_")}
    running: dict[int, subprocess.Popen[bytes]] = {}
    for rank in range(ranks):
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        assigned = {name: str(value) for name, value in {**own, STARTED_BY: os.getpid()}.items()}
        variables = {"OMP_NUM_THREADS": str(threads), **inherited, **assigned}
        running[rank] = subprocess.Popen(command, env=variables)  # noqa: S603 - the command is this program's own
    waiting = dict(running)
    try:
        while waiting:
            for rank, process in running.items():
                if rank in waiting and (code := process.poll()) is not None:
                    if code:
                        time.sleep(GRACE_SECONDS)
                        return rank
                    del waiting[rank]
            time.sleep(POLL_SECONDS)
        return None
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def nodes_of(ranks: int, variables: Mapping[str, str]) -> int:
    """Machines of the ranks.

    >>> nodes_of(16, {"LOCAL_WORLD_SIZE": "8"}), nodes_of(2, {})
    (2, 1)
    """
    return max(1, ranks // int(variables.get("LOCAL_WORLD_SIZE", ranks)))


def rendezvous(folder: Path, variables: Mapping[str, str]) -> str:
    """URL of the ranks' rendezvous: torchrun's address, or else a file, because a port may be in use."""
    return "env://" if "MASTER_ADDR" in variables else f"file://{folder.absolute()}/{RENDEZVOUS}"


LEAST_WAIT_SECONDS = 10.0
"""Shortest timeout of a barrier: each rank imports torch first. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Process group of all ranks of a probe."""

    context: ProbeContext
    distributed: Any
    backend: str
    token: Any
    """A tensor of one number on the device, for barriers."""

    def largest(self, *values: float) -> list[float]:
        """The largest of each value over all ranks."""
        import torch

        tensor = torch.tensor(values, dtype=torch.float64, device=self.context.device)
        self.distributed.all_reduce(tensor, op=self.distributed.ReduceOp.MAX)
        return [float(value) for value in tensor.tolist()]

    def wait_for_all(self) -> None:
        """Wait for all ranks; on a GPU only its stream waits, and this process continues."""
        if self.context.device == "cpu":
            self.distributed.barrier()
        else:
            self.distributed.all_reduce(self.token)

    def left_seconds(self) -> float:
        """Shortest time left of any rank."""
        return -self.largest(-self.context.left_seconds())[0]

    def function_named(self, *names: str) -> Any:
        """A function of torch.distributed, by the first of its names that this version has."""
        return next(getattr(self.distributed, name) for name in names if hasattr(self.distributed, name))


@contextmanager
def process_group(context: ProbeContext) -> Iterator[Group]:
    """The group of all ranks of a probe, until its end."""
    import torch
    from torch import distributed

    backend = "gloo" if context.device == "cpu" else "nccl"
    distributed.init_process_group(
        backend,
        init_method=rendezvous(context.folder, os.environ),
        rank=context.rank,
        world_size=context.ranks,
        timeout=timedelta(seconds=max(LEAST_WAIT_SECONDS, context.left_seconds())),
    )
    try:
        token = torch.zeros(1, device=context.device)
        yield Group(context=context, distributed=distributed, backend=backend, token=token)
    finally:
        distributed.destroy_process_group()
