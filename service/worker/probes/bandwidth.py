"""Memory bandwidth: copies (bytes read and written) and reads, and transfers between a GPU and pinned host memory."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from service.calibration.records import MOVED_ERROR_FRACTION
from service.worker.probing import Case, KernelInputs, PreparedRun, error_fraction, timed

OPERATIONS = ("copy", "read")

TRANSFERS = ("host_to_device", "device_to_host")
"""Operations of a GPU alone: transfers from and to the host."""

NUMBER_BYTES = 4


@timed
def run(parameters: Mapping[str, Any], inputs: KernelInputs) -> list[Case]:
    operations = OPERATIONS if inputs.device == "cpu" else OPERATIONS + TRANSFERS
    return [_case(operation, int(size), inputs) for size in parameters["sizes_bytes"] for operation in operations]


def _case(operation: str, size_bytes: int, inputs: KernelInputs) -> Case:
    prepare = {"copy": _copy, "read": _read}.get(operation, partial(_transfer, operation))
    return Case(
        operation=operation,
        shape={"size_bytes": size_bytes},
        amount=float(2 * size_bytes if operation == "copy" else size_bytes),
        prepare=partial(prepare, max(1, size_bytes // NUMBER_BYTES), inputs),
        allowed_error_fraction=MOVED_ERROR_FRACTION,
        quantity="bytes_per_s",
    )


def _copy(count: int, inputs: KernelInputs) -> PreparedRun:
    (source,) = inputs.random("fp32", (count,))
    target = inputs.blank("fp32", (count,))
    return PreparedRun(run=partial(target.copy_, source), error_fraction=lambda: error_fraction(target, source))


def _read(count: int, inputs: KernelInputs) -> PreparedRun:
    (source,) = inputs.random("fp32", (count,))

    def sum_error_fraction() -> float:
        # relative to the sum of magnitudes, because random numbers almost cancel out
        exact, magnitude = float(source.double().sum()), float(source.double().abs().sum())
        return abs(float(source.sum()) - exact) / magnitude

    return PreparedRun(run=source.sum, error_fraction=sum_error_fraction)


def _transfer(operation: str, count: int, inputs: KernelInputs) -> PreparedRun:
    (source,) = inputs.random("fp32", (count,))
    target = inputs.blank("fp32", (count,))
    host = torch.empty(count, dtype=torch.float32, pin_memory=True)
    if operation == "device_to_host":
        return PreparedRun(
            run=partial(host.copy_, source, non_blocking=True),
            error_fraction=lambda: error_fraction(host, source.cpu()),
        )
    host.copy_(source)
    return PreparedRun(
        run=partial(target.copy_, host, non_blocking=True), error_fraction=lambda: error_fraction(target, source)
    )
