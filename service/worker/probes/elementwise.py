"""How long do the kernels between matrix products take: norms, activations, positions, the loss, the optimizer?

They are torch's own, run one by one as an eager training step does. Rows are tokens, and width is how many numbers each
of them holds; of an optimizer's step rows times width is how many parameters it updates.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from service.worker.operands import Operands, allowed_error_fraction, error_fraction, spread
from service.worker.optimizer_step import optimizer_step
from service.worker.probing import CannotRun, Found, Told
from service.worker.row_kernels import ROW_KERNELS, Inputs, RowKernel, inputs_of
from service.worker.timing import REPEATS, Case, Ready, time_cases

CHECKED = 64
"""Rows that are compared with exact ones. Source: a choice."""

OPTIMIZER = "adamw"

MOVED_BYTES = 8.0
"""Bytes that a kernel moves for each number, more or less: enough to tell which case is larger."""


def run(parameters: Mapping[str, Any], told: Told) -> Found:
    """Time element-wise kernels.

    Args:
        parameters: `kernels`, each with operation, rows, width, dtype and direction, an optimizer's with
            `implementation` (fused or foreach) too; `repeats`
        told: what the probe was told

    Returns:
        seconds of each kernel, with the error of its result or of its first input's gradient
    """
    operands = Operands(told.device)
    cases = [_case(kernel, operands) for kernel in parameters["kernels"]]
    return time_cases(cases, told, int(parameters.get("repeats", REPEATS)))


def _case(asked: Mapping[str, Any], operands: Operands) -> Case:
    operation = asked["operation"]
    shape = {name: value for name, value in asked.items() if name != "operation"}
    if operation == OPTIMIZER:
        prepare = optimizer_step(shape, operands)
    elif operation in ROW_KERNELS:
        way = _forward if shape["direction"] == "forward" else _backward
        prepare = partial(way, ROW_KERNELS[operation], shape, operands)
    else:
        raise CannotRun(f"no kernel {operation}; there are {', '.join([*ROW_KERNELS, OPTIMIZER])}")
    return Case(
        operation=operation,
        shape=shape,
        amount=MOVED_BYTES * float(shape["rows"]) * float(shape["width"]),
        prepare=prepare,
        allowed_error_fraction=allowed_error_fraction(shape["dtype"]),
    )


def _forward(kernel: RowKernel, shape: Mapping[str, Any], operands: Operands) -> Ready:
    """The kernel as a training step runs it, keeping what its backward pass needs."""
    inputs = inputs_of(kernel, shape, operands)

    def forward() -> Any:
        return kernel.compute(*inputs.all())

    def off_fraction() -> float:
        result = forward().detach()
        if kernel.sums_rows:
            return error_fraction(result, _sum_of_rows(kernel, inputs))
        rows = spread(len(result), CHECKED)
        return error_fraction(result[rows], kernel.compute(*inputs.exact(rows).all()).detach())

    return Ready(run=forward, error_fraction=off_fraction)


def _sum_of_rows(kernel: RowKernel, inputs: Inputs) -> Any:
    """The exact result of a kernel that sums over rows, some rows at a time, so that memory suffices."""
    count = len(inputs.rowed[0])
    parts = [range(start, min(start + CHECKED, count)) for start in range(0, count, CHECKED)]
    return sum(kernel.compute(*inputs.exact(list(part)).all()).detach() for part in parts)


def _backward(kernel: RowKernel, shape: Mapping[str, Any], operands: Operands) -> Ready:
    """The gradients of all inputs, of a forward pass that ran before."""
    import torch

    inputs = inputs_of(kernel, shape, operands)
    result = kernel.compute(*inputs.all())
    (gradient,) = (torch.ones_like(result),) if kernel.sums_rows else operands.random(shape["dtype"], result.shape)

    def backward() -> Any:
        return torch.autograd.grad(result, inputs.with_gradient(), gradient, retain_graph=True)

    def off_fraction() -> float:
        rows = spread(len(inputs.rowed[0]), CHECKED)
        exact = inputs.exact(rows)
        wanted = gradient.double() if kernel.sums_rows else gradient[rows].double()
        (reference,) = torch.autograd.grad(kernel.compute(*exact.all()), exact.rowed[:1], wanted)
        return error_fraction(backward()[0][rows], reference)

    return Ready(run=backward, error_fraction=off_fraction)
