"""Observations of a device: one quantity each, its predicted value, and bounds that no device can exceed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite, log
from statistics import median
from typing import Any, get_args

from service.calibration.records import (
    BACKWARD_WORK,
    Environment,
    Measurement,
    ProbeName,
    ProbeRecord,
    bus_fraction,
    fault_of,
    shape_fault,
)
from service.calibration.tables import shipped_records
from service.estimator.answer import CollectiveName
from service.estimator.constants import LAUNCH_SECONDS, MEMORY_FRACTION, streaming_bytes_per_s
from service.estimator.degrees import NEXT_TO_EACH_OTHER, Transfer
from service.estimator.memory.device import context_and_communicators
from service.estimator.memory.memory import first_step_peak_bytes
from service.estimator.question import Cluster, Gpu
from service.estimator.resolve import ResolvedQuestion, complete_cluster
from service.estimator.run.run import rank_bytes_of, stages_of
from service.estimator.software.precision import Format, peak_flop_per_s
from service.estimator.software.versions import READABLE
from service.estimator.time.collectives import interconnect_of, transfer_seconds
from service.estimator.time.kernels import HOST_LINK_FRACTION, kernel_seconds
from service.estimator.time.rates import (
    OPERAND_BYTES,
    FusedName,
    attention_fraction,
    attention_rate,
    generation_rates,
    matrix_product_seconds,
    rates_under,
)


@dataclass(frozen=True, slots=True)
class Observed:
    """One measurement of one device, with its run and environment."""

    id: str
    """Its name among the observations."""
    run: str
    """Its run: measurements of one run share their clock, their neighbours and their mistakes."""
    probe: ProbeName
    measurement: Measurement
    environment: Environment

    @property
    def family(self) -> tuple[str, ...]:
        """Key that it shares with equivalent measurements of the device: they are held out together."""
        shape = self.measurement.shape
        if self.probe == "gemm":
            sides = sorted(int(shape[side]) for side in ("rows", "columns", "inner"))
            return (self.probe, str(shape["dtype"]), *map(str, sides))
        names = sorted(name for name in shape if name not in PASSES)
        return (self.probe, *(f"{name} {shape[name]}" for name in names))


PASSES = ("name", "direction")
"""Entries of a shape for its pass and place, not for its size."""


def observed_in(records: Sequence[ProbeRecord], run: str) -> list[Observed]:
    """The measurements of records."""
    return [
        Observed(f"{run}/{record.probe}/{number}", run, record.probe, one, record.environment)
        for record in records
        if record.environment is not None
        for number, one in enumerate(record.measurements)
    ]


LEAST_OTHERS = 4
"""Fewest other measurements to compare one with. Source: a choice; a median of fewer is uncertain."""
MOST_DEVIATIONS = 5.0
"""Robust standard deviations from the others beyond which a measurement is an outlier. Source: a choice; one of 30,000
of a normal distribution lies beyond four."""
MAD_SCALE = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation. Source: definition."""
LEAST_DEVIATION = 0.02
"""Usual difference between runs of one machine, as a logarithm. Source: a choice."""


def outlier_reason(value: float, others: Sequence[float]) -> str | None:
    """The reason why a measurement does not belong to others of the same device and shape.

    Formula: |ln v - m| > 5 max(1.4826 d, 0.02), m the median of the others' logarithms, d the median distance from it
    Args:
        value: the measured value, above zero
        others: other measured values of the same, above zero
    Returns: the reason; None where it belongs to them, or they are too few
    Source: median absolute deviation: Rousseeuw and Croux 1993, doi:10.1080/01621459.1993.10476408

    >>> outlier_reason(2.0, [1.0, 1.01, 0.99, 1.02])
    'outlier: 1.99 times the median of 4 others'
    >>> outlier_reason(1.05, [1.0, 1.01, 0.99, 1.02]), outlier_reason(2.0, [1.0])
    (None, None)
    """
    if len(others) < LEAST_OTHERS:
        return None
    logarithms = [log(other) for other in others]
    middle = median(logarithms)
    spread = MAD_SCALE * median(abs(one - middle) for one in logarithms)
    if abs(log(value) - middle) <= MOST_DEVIATIONS * max(spread, LEAST_DEVIATION):
        return None
    return f"outlier: {value / median(others):.3g} times the median of {len(others)} others"


PROCESSOR = "cpu"
"""Name of any processor, in the place of a GPU's."""

CYCLE_FLOP = 32
"""FLOP of one core and cycle without known instructions: two units that multiply and add eight numbers each.
Source: Agner Fog, Instruction tables, FMA of 256 bits on Intel Haswell and later, and on AMD Zen 2 and later."""

INSTRUCTION_FLOP: Mapping[str, tuple[int, tuple[Format, ...]]] = {
    "avx2": (32, ("fp32", "bf16", "fp16")),
    "asimd": (32, ("fp32", "bf16", "fp16")),
    "avx512f": (64, ("fp32", "bf16", "fp16")),
    "avx512_bf16": (128, ("bf16",)),
    "avx512_fp16": (128, ("fp16",)),
    "amx_bf16": (1024, ("bf16",)),
    "amx_fp16": (1024, ("fp16",)),
}
"""Most FLOP of one core and cycle, by its instructions, with the formats of that rate: two units of 256 or 512
bits (four of 128 on ARM), or one of tiles. Source: Agner Fog, Instruction tables, FMA on Intel Skylake-X and AMD Zen 5,
twice the numbers in half the bits; Arm, Neoverse V2 Software Optimization Guide; Intel, Accelerate AI Workloads with
Intel AMX, page 4: 1,024 in bf16 beside 64 in fp32."""

CLOCK_HZ = 3e9
"""Clock of a core where it is unknown. Source: an assumption; server processors boost to 2.5 to 3.7 GHz."""
MEMORY_BYTES_PER_S = 20e9
"""Memory traffic of a machine of few cores: one channel of DDR4-2666 or so. Source: JEDEC JESD79-4, 21.3 GB/s."""
LOOPBACK_BYTES_PER_S = 10e9
"""Traffic between its processes through memory: half of its own, each byte read and written.
Source: an assumption."""
BOARD_WATTS = 200.0
"""Power of such a machine. Source: an assumption; no estimate of a run depends on it."""


def processor_of(environment: Environment) -> Gpu:
    """A processor as a GPU of the formulas.

    >>> from dataclasses import replace
    >>> from service.calibration.records import Environment
    >>> environment = Environment(kind="cpu", device="EPYC", devices=1, memory_bytes=8e9, threads=2)
    >>> processor_of(environment).fp32_flop_per_s
    192000000000.0
    >>> processor_of(replace(environment, instructions=("avx2", "avx512f"))).fp32_flop_per_s
    384000000000.0
    """
    cycles_per_s = (environment.threads or 1) * (environment.most_clock_hz or CLOCK_HZ)
    memory_bytes = max(environment.memory_bytes, 1e6)
    known = [INSTRUCTION_FLOP[name] for name in environment.instructions if name in INSTRUCTION_FLOP]
    fp32, bf16, fp16 = (
        cycles_per_s * max([CYCLE_FLOP, *(flop for flop, formats in known if number_format in formats)])
        for number_format in ("fp32", "bf16", "fp16")
    )
    return Gpu(
        slug=PROCESSOR,
        architecture=PROCESSOR,
        memory_bytes=memory_bytes,
        usable_bytes=memory_bytes,
        memory_bytes_per_s=MEMORY_BYTES_PER_S,
        fp32_flop_per_s=fp32,
        bf16_flop_per_s=bf16,
        fp16_flop_per_s=fp16,
        link_bytes_per_s=LOOPBACK_BYTES_PER_S,
        scale_up_gpus=1,
        inter_node_bytes_per_s=LOOPBACK_BYTES_PER_S,
        host_bytes_per_s=LOOPBACK_BYTES_PER_S,
        board_watts=BOARD_WATTS,
    )


TORCH_KERNELS: Mapping[str, FusedName] = {"flash": "flash-2", "cudnn": "cudnn"}
"""Kernels of torch by the backend that a probe names.
Source: pytorch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (FlashAttention-2 since torch 2.2)."""

MOVED: Mapping[str, float] = {"copy": 2.0, "read": 1.0}
"""Bytes that a memory probe moves for each byte of its tensor. Source: definition: a copy reads and writes."""


def predicted_value(observed: Observed, gpu: Gpu) -> float | None:
    """The prediction of a measurement, in its unit; None without a formula."""
    predict = None if shape_fault(observed.probe, observed.measurement.shape) else _PREDICTED.get(observed.probe)
    result = None if predict is None else predict(observed, gpu)
    return None if result is None or result <= 0 else result


def format_named(name: object) -> Format | None:
    """The number format of that name.

    >>> format_named("bf16"), format_named("int3")
    ('bf16', None)
    """
    return next((one for one in get_args(Format) if one == name), None)


def fused_kernel_named(name: object) -> FusedName | None:
    """The fused attention kernel of that name.

    >>> fused_kernel_named("flash"), fused_kernel_named("flash-3"), fused_kernel_named("efficient")
    ('flash-2', 'flash-3', None)
    """
    known = next((one for one in get_args(FusedName) if one == name), None)
    return known or TORCH_KERNELS.get(str(name))


def _product(observed: Observed, gpu: Gpu) -> float | None:
    """Seconds of a matrix product in a short burst [s]."""
    shape, number_format = observed.measurement.shape, format_named(observed.measurement.shape.get("dtype"))
    if number_format is None or peak_flop_per_s(gpu, number_format) is None:
        return None
    rates = rates_under(generation_rates(gpu), gpu, number_format)
    sides = (int(shape["rows"]), int(shape["columns"]), int(shape["inner"]))
    return float(matrix_product_seconds(*sides, rates, int(shape.get("copies", 1))))


def _attention(observed: Observed, gpu: Gpu) -> float | None:
    """Seconds of one pass of a fused attention kernel in a short burst [s]."""
    shape = observed.measurement.shape
    kernel, number_format = fused_kernel_named(shape.get("kernel")), format_named(shape.get("dtype"))
    peak = None if number_format is None else peak_flop_per_s(gpu, number_format)
    if kernel is None or number_format is None or peak is None:
        return None
    length, width = int(shape["length"]), int(shape["width"])
    queries = int(shape["batch"]) * int(shape["heads"]) * length
    is_backward = observed.measurement.operation == "backward"
    rate = attention_rate(kernel, gpu, width, width)
    share = attention_fraction(rate, _visible_keys(shape), queries, backward=is_backward)
    sides = queries + int(shape["batch"]) * int(shape["kv_heads"]) * length
    moved = 2 * sides * width * OPERAND_BYTES[number_format] * (2.0 if is_backward else 1.0)
    passing = streaming_bytes_per_s(gpu, MEMORY_FRACTION)
    return float(kernel_seconds(_attention_flop(observed.measurement), moved, peak * share, passing))


def _visible_keys(shape: Mapping[str, Any]) -> float:
    """Keys that a query attends to on average: half of them under a causal mask [1]."""
    length = int(shape["length"])
    return length / 2 if shape.get("causal", True) else length


def _attention_flop(measured: Measurement) -> float:
    """FLOP of one pass of attention: 4 q s w forward."""
    shape = measured.shape
    queries = int(shape["batch"]) * int(shape["heads"]) * int(shape["length"])
    work = BACKWARD_WORK if measured.operation == "backward" else 1.0
    return 4 * queries * _visible_keys(shape) * int(shape["width"]) * work


def _bandwidth(observed: Observed, gpu: Gpu) -> float | None:
    """Bytes a second of memory traffic, or of the link to the host [byte/s]."""
    size = float(observed.measurement.shape["size_bytes"])
    operation = observed.measurement.operation
    if operation in MOVED:
        moved = MOVED[operation] * size
        return moved / (moved / streaming_bytes_per_s(gpu, MEMORY_FRACTION) + LAUNCH_SECONDS)
    if operation in ("host_to_device", "device_to_host"):
        return size / (size / (gpu.host_bytes_per_s * HOST_LINK_FRACTION) + LAUNCH_SECONDS)
    return None


def _collective(observed: Observed, gpu: Gpu) -> float | None:
    """Seconds of a collective [s], or its bus bandwidth as nccl-tests count it [byte/s]."""
    shape, measured = observed.measurement.shape, observed.measurement
    collective = next((one for one in get_args(CollectiveName) if one == measured.operation), None)
    ranks, nodes = int(shape.get("ranks", 1)), int(shape.get("nodes", 1))
    if collective is None or ranks < 2:
        return None
    local = max(1, ranks // nodes)
    network_bytes_per_s = gpu.inter_node_bytes_per_s
    cluster = Cluster(
        gpu=gpu.slug, gpus=ranks, gpus_per_node=local, scale_up_gpus=local, inter_node_bytes_per_s=network_bytes_per_s
    )
    size = float(shape["size_bytes"])
    transfer = Transfer(collective, size, 1, ranks, NEXT_TO_EACH_OTHER)
    seconds = float(transfer_seconds(transfer, interconnect_of(complete_cluster(cluster, gpu), gpu)))
    return seconds if measured.quantity == "seconds" else bus_fraction(collective, ranks) * size / seconds


def _context(observed: Observed, gpu: Gpu) -> float | None:
    """Bytes of the context, or of communicators [byte]."""
    version = READABLE.match(observed.environment.torch or "")
    context, communicators = context_and_communicators(gpu, version[0] if version else None)
    return {"context": context[1], "communicator": communicators[1]}.get(observed.measurement.operation)


_PREDICTED: Mapping[ProbeName, Callable[[Observed, Gpu], float | None]] = {
    "gemm": _product,
    "attention": _attention,
    "bandwidth": _bandwidth,
    "collective": _collective,
    "context": _context,
}


LEAST_SECONDS = 1e-6
"""Shortest time on a GPU. Source: a choice below that of an empty kernel, 2 to 5 us (constants.LAUNCH_SECONDS); one in
a recorded graph takes 1.2 us."""
LEAST_PROCESSOR_SECONDS = 1e-9
"""The same of a processor, which calls a function. Source: some cycles of its clock."""
MOST_SECONDS = 86_400.0
"""Longest time of one repeat of a probe. Source: a choice; a whole launch check takes an hour at most."""
MOST_PEAK_FRACTION = 1.25
"""Highest plausible rate over the peak of the data sheet. Source: data sheets state the rate at a
boost clock that devices pass by up to 11 % (H100 SXM: 1,980 of 1,830 MHz; RTX 4090: 2,800 of 2,520 MHz); the rest is a
margin."""
MOST_LINK_FRACTION = 4.0
"""Bus bandwidth over that of the fastest link. Source: a choice; reduction inside a switch doubles it, and data sheets
count one direction of a link or both."""
CACHED_BYTES = 1 << 29
"""Size of a tensor that fits no cache. Source: a choice; twice the cache of an MI300X, 256 MB."""
MOST_CACHED_FRACTION = 16.0
"""Bandwidth of caches over that of the memory. Source: a choice; an MI300X's cache has 3 times its memory's."""
HOST_BYTES_PER_S = 5e11
"""Fastest link to a host of any device. Source: NVLink-C2C, 450 GB/s a direction."""
ANY_FLOP_PER_S = 5e16
"""Rate above that of any device, for an unknown one. Source: a choice; twice the 4-bit rate of a B300."""
ANY_BYTES_PER_S = 1e14
"""The same of memory and links. Source: a choice; ten times the memory of a B300."""


def impossible(observed: Observed, gpu: Gpu | None) -> str | None:
    """The reason why a measurement is impossible; None where it is plausible."""
    measured = observed.measurement
    numbers = (measured.low, measured.value, measured.high)
    if not all(isfinite(number) and number > 0 for number in numbers):
        return "impossible: what was measured is not above zero, or no number"
    if measured.quantity == "seconds":
        least = LEAST_PROCESSOR_SECONDS if observed.environment.kind == "cpu" else LEAST_SECONDS
        if measured.low < least:
            return f"impossible: {measured.low:.3g} s is less than anything takes, {least:g} s"
        if measured.high > MOST_SECONDS:
            return f"impossible: {measured.high:.3g} s is more than a probe runs, {MOST_SECONDS:g} s"
    if measured.quantity == "bytes" and gpu is not None and measured.high > gpu.memory_bytes * MOST_PEAK_FRACTION:
        return f"impossible: {measured.high:.3g} bytes are more than the device has, {gpu.memory_bytes:.3g}"
    if fault_of(observed.probe, measured) is not None:
        return None  # it is in quarantine for its fault, and no formula reads it
    limit = _LIMITS.get(observed.probe)
    return None if limit is None else limit(observed, gpu)


def without_impossible(records: Iterable[ProbeRecord], gpu: Gpu | None) -> tuple[list[ProbeRecord], list[str]]:
    """Records without impossible measurements, and the reasons of those."""
    usable, reasons = [], []
    for record in records:
        possible = []
        for one in record.measurements:
            reason, environment = None, record.environment
            if environment is not None:
                observed = Observed("", "", record.probe, one, environment)
                reason = impossible(observed, None if environment.kind == "cpu" else gpu)
            if reason is None:
                possible.append(one)
            else:
                reasons.append(f"{record.probe} {one.operation}: {reason}")
        usable.append(replace(record, measurements=tuple(possible)))
    return usable, reasons


def _above_peak(observed: Observed, gpu: Gpu | None) -> str | None:
    measured, shape = observed.measurement, observed.measurement.shape
    if measured.quantity != "seconds":
        return None
    if observed.probe == "gemm":
        copies = shape.get("copies", 1)
        is_number = isinstance(copies, int | float) and not isinstance(copies, bool) and copies >= 1
        flop = 2.0 * int(shape["rows"]) * int(shape["columns"]) * int(shape["inner"]) * (copies if is_number else 1)
    else:
        flop = _attention_flop(measured)
    rate = flop / measured.low
    most = ANY_FLOP_PER_S if gpu is None else MOST_PEAK_FRACTION * _peak(gpu, format_named(shape.get("dtype")))
    if rate <= most:
        return None
    return f"impossible: {rate:.3g} FLOP/s, and the device has {most / MOST_PEAK_FRACTION:.3g} at its peak"


def _peak(gpu: Gpu, number_format: Format | None) -> float:
    """Peak rate in a number format; the highest of all where it is unknown, or where 32 bits may mean TF32."""
    known = None if number_format in (None, "fp32") else peak_flop_per_s(gpu, number_format)
    rates = (peak_flop_per_s(gpu, one) for one in get_args(Format))
    return known or max((rate for rate in rates if rate), default=ANY_FLOP_PER_S)


def _impossible_bandwidth(observed: Observed, gpu: Gpu | None) -> str | None:
    measured = observed.measurement
    size = float(measured.shape["size_bytes"])
    rate = size / measured.low if measured.quantity == "seconds" else measured.high
    most = ANY_BYTES_PER_S
    if gpu is not None and measured.operation in MOVED:
        fraction = MOST_PEAK_FRACTION if size >= CACHED_BYTES else MOST_CACHED_FRACTION
        most = fraction * gpu.memory_bytes_per_s
    elif gpu is not None:
        most = MOST_PEAK_FRACTION * max(gpu.host_bytes_per_s, HOST_BYTES_PER_S)
    return None if rate <= most else f"impossible: {rate:.3g} byte/s, and the device moves at most {most:.3g}"


def _impossible_collective(observed: Observed, gpu: Gpu | None) -> str | None:
    measured = observed.measurement
    rate = float(measured.shape["size_bytes"]) / measured.low if measured.quantity == "seconds" else measured.high
    links = ANY_BYTES_PER_S if gpu is None else max(gpu.link_bytes_per_s, gpu.inter_node_bytes_per_s)
    most = min(MOST_LINK_FRACTION * links, ANY_BYTES_PER_S)
    return None if rate <= most else f"impossible: {rate:.3g} byte/s, and the fastest link carries {links:.3g}"


_LIMITS: Mapping[str, Callable[[Observed, Gpu | None], str | None]] = {
    "gemm": _above_peak,
    "attention": _above_peak,
    "bandwidth": _impossible_bandwidth,
    "collective": _impossible_collective,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBytes:
    """Live tensors of one GPU at the peak of a step."""

    first_step_bytes: float
    """Peak of the first step, before which the optimizer has no states."""
    later_steps_bytes: float

    def of_step(self, step: int) -> float:
        """The peak of one step."""
        return self.first_step_bytes if step == 1 else self.later_steps_bytes


def live_step_bytes(resolved: ResolvedQuestion) -> LiveBytes:
    """Live tensors at the peak of the first step and of later ones, on the GPU with the most.

    Formula: peak of the estimate - workspaces of the matrix libraries
    Args:
        resolved: the configuration
    Returns: bytes of one GPU
    Source: memory.LIVE; memory.first_step_peak_bytes

    >>> from service.estimator.samples import sample_resolved
    >>> peaks = live_step_bytes(sample_resolved())
    >>> peaks.of_step(1) <= peaks.of_step(3)
    True
    """
    stages = [rank_bytes_of(resolved, one) for one in stages_of(resolved)]
    several = float(resolved.degrees.accumulation) > 1
    return LiveBytes(
        first_step_bytes=max(first_step_peak_bytes(one, several=several) - float(one.workspace) for one in stages),
        later_steps_bytes=max(float(one.peak) - float(one.workspace) for one in stages),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPeak:
    """The peak of one step."""

    model: str
    """Preset, at full width."""
    layers: int
    """Layers of the shortened model."""
    sequence_length: int
    micro_batch: int
    """Sequences of a step."""
    precision: str
    attention: str
    optimizer: str
    step: int
    live_bytes_peak: int
    """Most bytes of tensors at once, with temporaries inside operations."""
    source: str
    """Source and method."""
    as_of: str


@cache
def counted_peaks() -> tuple[CountedPeak, ...]:
    """The peaks that the package ships."""
    return shipped_records(CountedPeak, "counted_peaks")
