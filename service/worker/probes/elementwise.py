"""Seconds of the kernels between matrix products: norms, activations, positions, the loss, the optimizer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch.nn import functional

from service.worker import probing

HEAD_WIDTHS = (128, 64)
"""Head widths of rotary positions, the first that divides the row."""

ROPE_BASE = 10_000.0
"""Base of the angles of rotary positions. Source: Su et al. 2021, arXiv:2104.09864, section 3.2.2."""
NORM_EPSILON = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKernel:
    compute: Callable[..., Any]
    """Function of its row inputs, of shared inputs, and of inputs without a gradient."""
    rowed: int = 1
    """Inputs of rows x width numbers."""
    shared: int = 0
    """Inputs of width numbers, the same for all rows."""
    fixed: Callable[[int, int, Any], tuple[Any, ...]] = lambda rows, width, like: ()  # noqa: ARG005 - most have none
    """Inputs without a gradient, with a row for each of the rows."""
    sums_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    rowed: tuple[Any, ...]
    shared: tuple[Any, ...]
    fixed: tuple[Any, ...]

    def all(self) -> tuple[Any, ...]:
        """Every input, in the order of the kernel's arguments."""
        return (*self.rowed, *self.shared, *self.fixed)

    def exact(self, chosen: Sequence[int]) -> "Inputs":
        """The same in double precision, for some rows alone; the first of them has a gradient of its own."""
        rows = list(chosen)
        rowed = tuple(one.detach()[rows].double().requires_grad_() for one in self.rowed)
        shared = tuple(one.detach().double() for one in self.shared)
        fixed = tuple(one[rows].double() if one.is_floating_point() else one[rows] for one in self.fixed)
        return Inputs(rowed=rowed, shared=shared, fixed=fixed)


def inputs_of(kernel: RowKernel, shape: Mapping[str, Any], buffers: probing.KernelInputs) -> Inputs:
    rows, width = shape["rows"], shape["width"]
    shapes = [(rows, width)] * kernel.rowed + [(width,)] * kernel.shared
    tensors = [one.detach().requires_grad_() for one in buffers.random(shape["dtype"], *shapes)]
    return Inputs(
        rowed=tuple(tensors[: kernel.rowed]),
        shared=tuple(tensors[kernel.rowed :]),
        fixed=kernel.fixed(rows, width, tensors[0]),
    )


def _rope(rows: Any, cosine: Any, sine: Any) -> Any:
    """Rows turned by their position, the second half of each head against the first."""
    heads = rows.unflatten(-1, (-1, cosine.shape[-1]))
    first, second = heads.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (heads * cosine + turned * sine).flatten(-2)


def _angles(rows: int, width: int, like: Any) -> tuple[Any, ...]:
    """Cosine and sine of each row's angles, [rows, 1, width of a head]."""
    head = next((head for head in HEAD_WIDTHS if width % head == 0), width)
    frequencies = ROPE_BASE ** (-torch.arange(0, head, 2, device=like.device) / head)
    angles = torch.arange(rows, device=like.device)[:, None] * frequencies.repeat(2)
    return angles.cos()[:, None].to(like.dtype), angles.sin()[:, None].to(like.dtype)


ROW_KERNELS: Mapping[str, RowKernel] = {
    "rms_norm": RowKernel(
        compute=lambda rows, weight: functional.rms_norm(rows, weight.shape, weight, NORM_EPSILON), shared=1
    ),
    "layer_norm": RowKernel(
        compute=lambda rows, weight, bias: functional.layer_norm(rows, weight.shape, weight, bias, NORM_EPSILON),
        shared=2,
    ),
    "silu_mul": RowKernel(compute=lambda gate, up: functional.silu(gate) * up, rowed=2),
    "gelu": RowKernel(compute=lambda rows: functional.gelu(rows, approximate="tanh")),
    "rope": RowKernel(compute=_rope, fixed=_angles),
    "cross_entropy": RowKernel(
        compute=lambda logits, targets: functional.cross_entropy(
            logits if logits.element_size() > 2 else logits.float(), targets, reduction="sum"
        ),
        fixed=lambda rows, width, like: (
            torch.randint(width, (rows,), generator=torch.Generator().manual_seed(rows)).to(like.device),
        ),
        sums_rows=True,
    ),
}
"""Kernels by their name in questions; the loss of logits is in fp32, as eager models compute it."""


TENSORS = 16
"""Tensors of the parameters, as those of a layer. Source: a choice."""
CHECKED_UPDATES = 65_536
"""Parameters of the update that is compared with an exact one. Source: a choice."""

RATE, FIRST, SECOND, EPSILON, DECAY = 0.1, 0.9, 0.95, 1e-8, 0.1
"""Learning rate, high so that a missing update shows, and the other constants of the update."""

IMPLEMENTATIONS = ("fused", "foreach")
"""Implementations: one kernel for all tensors, or a few for each operation."""


def _optimizer(shape: Mapping[str, Any], buffers: probing.KernelInputs, count: int) -> Any:
    """AdamW over copies of random numbers, with random gradients."""
    implementation = shape.get("implementation", IMPLEMENTATIONS[0])
    if implementation not in IMPLEMENTATIONS:
        raise probing.CannotRun(f"no AdamW {implementation}; there are {', '.join(IMPLEMENTATIONS)}")
    weights, gradients = buffers.random(shape["dtype"], (count,), (count,))
    parameters = []
    for weight, gradient in zip(weights.tensor_split(TENSORS), gradients.tensor_split(TENSORS), strict=True):
        parameter = torch.nn.Parameter(weight.clone())
        parameter.grad = gradient
        parameters.append(parameter)
    options: dict[str, Any] = {implementation: True}
    return torch.optim.AdamW(parameters, RATE, (FIRST, SECOND), EPSILON, DECAY, **options)


def _error(shape: Mapping[str, Any], buffers: probing.KernelInputs) -> float:
    """Error of a first update of fewer parameters. Source: arXiv:1711.05101, algorithm 2."""
    optimizer = _optimizer(shape, buffers, CHECKED_UPDATES)
    parameters = optimizer.param_groups[0]["params"]
    exact = []
    for parameter in parameters:
        weight, gradient = parameter.detach().double(), parameter.grad.double()
        first, second = (1 - FIRST) * gradient, (1 - SECOND) * gradient**2
        direction = first / (1 - FIRST) / ((second / (1 - SECOND)).sqrt() + EPSILON)
        exact.append(weight * (1 - RATE * DECAY) - RATE * direction)
    optimizer.step()
    return probing.error_fraction(torch.cat([one.detach() for one in parameters]), torch.cat(exact))


CHECKED = 64
"""Rows that are compared with exact ones. Source: a choice."""

OPTIMIZER = "adamw"

MOVED_BYTES = 8.0
"""Rough bytes that a kernel moves for each number, to sort cases by size."""


@probing.timed
def run(parameters: Mapping[str, Any], inputs: probing.KernelInputs) -> list[probing.Case]:
    """Time element-wise kernels."""
    return [_case(kernel, inputs) for kernel in parameters["kernels"]]


def _case(kernel: Mapping[str, Any], buffers: probing.KernelInputs) -> probing.Case:
    operation = kernel["operation"]
    shape = {name: value for name, value in kernel.items() if name != "operation"}
    prepare: Callable[[], probing.PreparedRun]
    if operation == OPTIMIZER:
        optimizer = cache(partial(_optimizer, shape, buffers, int(shape["rows"]) * int(shape["width"])))
        error = partial(_error, shape, buffers)

        def update() -> probing.PreparedRun:
            return probing.PreparedRun(run=optimizer().step, error_fraction=error)

        prepare = update

    elif operation in ROW_KERNELS:
        way = _forward if shape["direction"] == "forward" else _backward
        prepare = partial(way, ROW_KERNELS[operation], shape, buffers)
    else:
        raise probing.CannotRun(f"no kernel {operation}; there are {', '.join([*ROW_KERNELS, OPTIMIZER])}")
    return probing.Case(
        operation=operation,
        shape=shape,
        amount=MOVED_BYTES * float(shape["rows"]) * float(shape["width"]),
        prepare=prepare,
        allowed_error_fraction=probing.allowed_error_fraction(shape["dtype"]),
    )


def _forward(kernel: RowKernel, shape: Mapping[str, Any], buffers: probing.KernelInputs) -> probing.PreparedRun:
    inputs = inputs_of(kernel, shape, buffers)

    def forward() -> Any:
        return kernel.compute(*inputs.all())

    def off_fraction() -> float:
        result = forward().detach()
        if kernel.sums_rows:  # some rows at a time, to save memory
            count = len(inputs.rowed[0])
            parts = (range(start, min(start + CHECKED, count)) for start in range(0, count, CHECKED))
            return probing.error_fraction(
                result, sum(kernel.compute(*inputs.exact(part).all()).detach() for part in parts)
            )
        rows = probing.spread(len(result), CHECKED)
        return probing.error_fraction(result[rows], kernel.compute(*inputs.exact(rows).all()).detach())

    return probing.PreparedRun(run=forward, error_fraction=off_fraction)


def _backward(kernel: RowKernel, shape: Mapping[str, Any], buffers: probing.KernelInputs) -> probing.PreparedRun:
    inputs = inputs_of(kernel, shape, buffers)
    result = kernel.compute(*inputs.all())
    (gradient,) = (torch.ones_like(result),) if kernel.sums_rows else buffers.random(shape["dtype"], result.shape)

    def backward() -> Any:
        return torch.autograd.grad(result, (*inputs.rowed, *inputs.shared), gradient, retain_graph=True)

    def off_fraction() -> float:
        rows = probing.spread(len(inputs.rowed[0]), CHECKED)
        exact = inputs.exact(rows)
        own = gradient.double() if kernel.sums_rows else gradient[rows].double()
        (reference,) = torch.autograd.grad(kernel.compute(*exact.all()), exact.rowed[:1], own)
        return probing.error_fraction(backward()[0][rows], reference)

    return probing.PreparedRun(run=backward, error_fraction=off_fraction)
