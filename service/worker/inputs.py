"""Random inputs of kernels, from one buffer that all kernels of a probe share.

Zeros would flatter: a GPU that multiplies zeros draws less power, and its clock stays up.
"""

import math
from typing import Any

from service.calibration.records import ALLOWED_ERROR_FRACTIONS
from service.worker.probing import CannotRun

FORMATS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}
"""Names of number formats in torch."""

DRAWN = 4_194_301
"""Random numbers of a buffer; larger buffers repeat them. A prime, so that no two rows of a matrix are alike."""

ALIGNMENT = 128
"""Numbers between starts of inputs: libraries choose slower kernels for unaligned starts."""

SEED = 20
"""Seed of the random numbers, so that two runs compute the same."""


def allowed_error_fraction(name: str) -> float:
    """Largest error of a right result over its largest number."""
    if name not in ALLOWED_ERROR_FRACTIONS:
        raise CannotRun(f"no number format {name}; there are {', '.join(ALLOWED_ERROR_FRACTIONS)}")
    return ALLOWED_ERROR_FRACTIONS[name]


class KernelInputs:
    """Tensors of random numbers on a device; all are views of one buffer a format."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch = torch
        self.device = device
        self._drawn: dict[str, Any] = {}
        self._blank: dict[str, Any] = {}

    def format_of(self, name: str) -> Any:
        """A number format of torch."""
        known = getattr(self._torch, FORMATS.get(name, name), None)
        if known is None:
            raise CannotRun(f"torch {self._torch.__version__} has no number format {name}: install a newer torch")
        return known

    def random(self, name: str, *shapes: tuple[int, ...]) -> list[Any]:
        """Normally distributed tensors that share no number."""
        return self._views(self._drawn, name, shapes)

    def blank(self, name: str, shape: tuple[int, ...]) -> Any:
        """A tensor for a result, reused for the next result."""
        return self._views(self._blank, name, (shape,))[0]

    def _views(self, buffers: dict[str, Any], name: str, shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
        counts = [math.prod(shape) for shape in shapes]
        room = [ALIGNMENT * math.ceil(count / ALIGNMENT) for count in counts]
        if name in buffers and buffers[name].numel() < sum(room):
            del buffers[name]
        if name not in buffers:
            buffers[name] = self._buffer(name, sum(room), drawn=buffers is self._drawn)
        held, views, start = buffers[name], [], 0
        for shape, count, taken in zip(shapes, counts, room, strict=True):
            views.append(held[start : start + count].view(shape))
            start += taken
        return views

    def _buffer(self, name: str, count: int, *, drawn: bool) -> Any:
        torch, kind = self._torch, self.format_of(name)
        if not drawn:
            return torch.empty(count, dtype=kind, device=self.device)
        generator = torch.Generator(device="cpu").manual_seed(SEED)
        numbers = torch.randn(min(count, DRAWN), generator=generator).to(self.device).to(kind)
        return numbers if count <= DRAWN else _repeated(torch, numbers, count)


def _repeated(torch: Any, numbers: Any, count: int) -> Any:
    """A longer buffer that repeats the same numbers."""
    buffer = torch.empty(count, dtype=numbers.dtype, device=numbers.device)
    for start in range(0, count, len(numbers)):
        part = buffer[start : start + len(numbers)]
        part.copy_(numbers[: len(part)])
    return buffer


def error_fraction(found: Any, reference: Any) -> float:
    """Largest error of a result over the largest number of the reference in higher precision."""
    largest = float(reference.abs().max())
    error = float((found.double() - reference.double()).abs().max()) / (largest or 1.0)
    return error if math.isfinite(error) else math.inf


def spread(count: int, most: int) -> list[int]:
    """Places spread evenly over a tensor, its first and last among them.

    >>> spread(10, 4), spread(3, 8)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return list(range(count))
    return [round(number * (count - 1) / (most - 1)) for number in range(most)]
