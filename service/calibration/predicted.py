"""What do the estimator's formulas say of one measurement on one GPU?

Steps and profiles are not predicted here: that takes the whole question.
"""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from service.calibration.attention_work import BACKWARD_WORK
from service.calibration.observed import Observed
from service.calibration.records import ProbeName
from service.calibration.shapes import shape_fault
from service.estimator.constants import LAUNCH_SECONDS, MEMORY_FRACTION, streaming_bytes_per_s
from service.estimator.degrees import NEXT_TO_EACH_OTHER, CollectiveName, Transfer
from service.estimator.memory.device import context_and_communicators
from service.estimator.question import Cluster, Gpu
from service.estimator.software.precision import Format, peak_flop_per_s
from service.estimator.software.versions import READABLE
from service.estimator.time.attention import FusedName, attention_fraction, attention_rate
from service.estimator.time.collectives import transfer_seconds
from service.estimator.time.kernels import kernel_seconds
from service.estimator.time.links import wires_of
from service.estimator.time.matrix_products import OPERAND_BYTES, generation_rates, matrix_product_seconds, rates_under
from service.estimator.time.optimizer import HOST_LINK_FRACTION

TORCH_KERNELS: Mapping[str, FusedName] = {"flash": "flash-2", "cudnn": "cudnn"}
"""The kernel that torch runs where a probe names one of its backends.
Source: pytorch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (FlashAttention-2 since torch 2.2)."""

MOVED: Mapping[str, float] = {"copy": 2.0, "read": 1.0}
"""Bytes that a probe of memory moves for each byte of its tensor.
Source: definition: a copy reads and writes."""


def predicted_value(observed: Observed, gpu: Gpu) -> float | None:
    """What formulas say of a measurement, in the unit of the measurement.

    Args:
        observed: the measurement
        gpu: the GPU, with its calibration where it has one

    Returns:
        the value; None where no formula speaks of such a measurement alone, or its shape says too little
    """
    predict = None if shape_fault(observed.probe, observed.measurement.shape) else _PREDICTED.get(observed.probe)
    found = None if predict is None else predict(observed, gpu)
    return None if found is None or found <= 0 else found


def format_named(name: object) -> Format | None:
    """The number format of that name.

    Args:
        name: what a shape says

    Returns:
        the format; None where formulas know none of the name

    >>> format_named("bf16"), format_named("int3")
    ('bf16', None)
    """
    return next((one for one in get_args(Format) if one == name), None)


def fused_kernel_named(name: object) -> FusedName | None:
    """The fused attention kernel of that name.

    Args:
        name: what a shape says: a kernel, or a backend of torch

    Returns:
        the kernel; None where formulas know none of the name

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
    length, width, queries = int(shape["length"]), int(shape["width"]), _queries(shape)
    seen = length / 2 if shape.get("causal", True) else length
    is_backward = observed.measurement.operation == "backward"
    share = attention_fraction(attention_rate(kernel, gpu, width, width), seen, queries, backward=is_backward)
    flop = 4 * queries * seen * width * (BACKWARD_WORK if is_backward else 1.0)
    sides = queries + int(shape["batch"]) * int(shape["kv_heads"]) * length
    moved = 2 * sides * width * OPERAND_BYTES[number_format] * (2.0 if is_backward else 1.0)
    passing = streaming_bytes_per_s(gpu, MEMORY_FRACTION)
    return float(kernel_seconds(flop, moved, peak * share, passing))


def _queries(shape: Mapping[str, Any]) -> int:
    return int(shape["batch"]) * int(shape["heads"]) * int(shape["length"])


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
    cluster = Cluster(
        gpu=gpu.slug,
        gpus=ranks,
        gpus_per_node=local,
        scale_up_gpus=local,
        inter_node_bytes_per_s=gpu.inter_node_bytes_per_s,
    )
    size = float(shape["size_bytes"])
    seconds = float(transfer_seconds(Transfer(collective, size, 1, ranks, NEXT_TO_EACH_OTHER), wires_of(cluster, gpu)))
    return seconds if measured.quantity == "seconds" else bus_fraction(collective, ranks) * size / seconds


def bus_fraction(collective: CollectiveName, ranks: int) -> float:
    """Bytes that pass each rank's link for each byte of a collective's tensor.

    Formula:
        all-reduce: 2 (n - 1) / n; all-gather, reduce-scatter, all-to-all: (n - 1) / n; send: 1

    Args:
        collective: which one
        ranks: ranks of the group, n [1]

    Returns:
        the ratio of bus bandwidth to algorithm bandwidth [1]

    Source:
        NVIDIA/nccl-tests@v2.13 doc/PERFORMANCE.md

    >>> bus_fraction("all_reduce", 8), bus_fraction("send", 2)
    (1.75, 1.0)
    """
    if collective == "send":
        return 1.0
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks


def _context(observed: Observed, gpu: Gpu) -> float | None:
    """Bytes of the context, or what communicators add [byte]."""
    told = READABLE.match(observed.environment.torch or "")
    context, communicators = context_and_communicators(gpu, told[0] if told else None)
    return {"context": context[1], "communicator": communicators[1]}.get(observed.measurement.operation)


_PREDICTED: Mapping[ProbeName, Callable[[Observed, Gpu], float | None]] = {
    "gemm": _product,
    "attention": _attention,
    "bandwidth": _bandwidth,
    "collective": _collective,
    "context": _context,
}
