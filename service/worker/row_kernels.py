"""Which kernels run between matrix products, and what do they compute of each row?

Every row of a result is one of its inputs' rows alone (but for sums over rows), which is how a few rows check a kernel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.worker.operands import Operands

HEAD_WIDTHS = (128, 64)
"""Widths of a head that positions are turned in, the first that divides the row."""

ROPE_BASE = 10_000.0
"""Of the angles of rotary positions. Source: Su et al. 2021, arXiv:2104.09864, section 3.2.2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKernel:
    """One kernel."""

    compute: Callable[..., Any]
    """What it computes of its rowed inputs, of those that all rows share, and of those that have no gradient."""
    rowed: int = 1
    """Inputs of rows x width numbers."""
    shared: int = 0
    """Inputs of width numbers, the same for all rows."""
    fixed: Callable[[int, int, Any], tuple[Any, ...]] = lambda rows, width, like: ()  # noqa: ARG005 - most have none
    """Inputs without a gradient, with a row for each of the rows."""
    sums_rows: bool = False
    """Whether the result is a sum over all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What one kernel computes with."""

    rowed: tuple[Any, ...]
    """Tensors of rows x width."""
    shared: tuple[Any, ...]
    """Tensors of width."""
    fixed: tuple[Any, ...]
    """Tensors without a gradient."""

    def all(self) -> tuple[Any, ...]:
        """Every input, in the order in which the kernel takes them."""
        return (*self.rowed, *self.shared, *self.fixed)

    def with_gradient(self) -> tuple[Any, ...]:
        """Inputs that get a gradient."""
        return (*self.rowed, *self.shared)

    def exact(self, rows: Sequence[int]) -> "Inputs":
        """The same in double precision, some rows alone; the first of them with a gradient of its own."""
        rowed = tuple(one.detach()[rows].double().requires_grad_() for one in self.rowed)
        shared = tuple(one.detach().double() for one in self.shared)
        fixed = tuple(one[rows].double() if one.is_floating_point() else one[rows] for one in self.fixed)
        return Inputs(rowed=rowed, shared=shared, fixed=fixed)


def inputs_of(kernel: RowKernel, shape: Mapping[str, Any], operands: Operands) -> Inputs:
    """Random inputs of a kernel.

    Args:
        kernel: the kernel
        shape: rows, width and dtype
        operands: where random numbers come from

    Returns:
        the inputs, those with gradients marked so
    """
    rows, width = shape["rows"], shape["width"]
    wanted = [(rows, width)] * kernel.rowed + [(width,)] * kernel.shared
    tensors = [one.detach().requires_grad_() for one in operands.random(shape["dtype"], *wanted)]
    return Inputs(
        rowed=tuple(tensors[: kernel.rowed]),
        shared=tuple(tensors[kernel.rowed :]),
        fixed=kernel.fixed(rows, width, tensors[0]),
    )


def _rms_norm(rows: Any, weight: Any) -> Any:
    from torch.nn.functional import rms_norm

    return rms_norm(rows, weight.shape, weight, 1e-5)


def _layer_norm(rows: Any, weight: Any, bias: Any) -> Any:
    from torch.nn.functional import layer_norm

    return layer_norm(rows, weight.shape, weight, bias, 1e-5)


def _silu_mul(gate: Any, up: Any) -> Any:
    from torch.nn.functional import silu

    return silu(gate) * up


def _gelu(rows: Any) -> Any:
    from torch.nn.functional import gelu

    return gelu(rows, approximate="tanh")


def _rope(rows: Any, cosine: Any, sine: Any) -> Any:
    """Rows turned by their position, the second half of each head against the first."""
    import torch

    heads = rows.unflatten(-1, (-1, cosine.shape[-1]))
    first, second = heads.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (heads * cosine + turned * sine).flatten(-2)


def _angles(rows: int, width: int, like: Any) -> tuple[Any, ...]:
    """Cosine and sine of each row's angles, [rows, 1, width of a head]."""
    import torch

    head = next((head for head in HEAD_WIDTHS if width % head == 0), width)
    frequencies = ROPE_BASE ** (-torch.arange(0, head, 2, device=like.device) / head)
    angles = torch.arange(rows, device=like.device)[:, None] * frequencies.repeat(2)
    return angles.cos()[:, None].to(like.dtype), angles.sin()[:, None].to(like.dtype)


def _cross_entropy(logits: Any, targets: Any) -> Any:
    """The loss of logits in fp32, as eager models compute it."""
    from torch.nn.functional import cross_entropy

    wide = logits if logits.element_size() > 2 else logits.float()
    return cross_entropy(wide, targets, reduction="sum")


def _targets(rows: int, width: int, like: Any) -> tuple[Any, ...]:
    import torch

    return (torch.randint(width, (rows,), generator=torch.Generator().manual_seed(rows)).to(like.device),)


ROW_KERNELS: Mapping[str, RowKernel] = {
    "rms_norm": RowKernel(compute=_rms_norm, shared=1),
    "layer_norm": RowKernel(compute=_layer_norm, shared=2),
    "silu_mul": RowKernel(compute=_silu_mul, rowed=2),
    "gelu": RowKernel(compute=_gelu),
    "rope": RowKernel(compute=_rope, fixed=_angles),
    "cross_entropy": RowKernel(compute=_cross_entropy, fixed=_targets, sums_rows=True),
}
"""Kernels by the name that questions give them."""
