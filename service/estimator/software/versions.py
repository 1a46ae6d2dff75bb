"""Versions of libraries, and the workspaces of their matrix products."""

import re
from dataclasses import dataclass

from service.estimator.question import Gpu

READABLE = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}")

LAST_MONTH = 12


def is_version(text: str) -> bool:
    """Whether a text names a version: numbers with dots between them.

    >>> is_version("2.11"), is_version("newest")
    (True, False)
    """
    return READABLE.fullmatch(text) is not None


def is_year_and_month(version: str, first_year: int) -> bool:
    """Whether a version is a year and a month.

    >>> [is_year_and_month(version, 2023) for version in ("2025.6", "2025.13", "2025", "0.2")]
    [True, False, False, False]
    """
    year, month, *_ = (*_numbers(version), 0)
    return year >= first_year and 1 <= month <= LAST_MONTH


def at_least(version: str | None, first: str) -> bool:
    """Whether a version is not older than another; an unnamed version is the newest.

    >>> at_least("2.11", "2.3"), at_least("2.2", "2.3"), at_least(None, "2.3")
    (True, False, True)
    """
    return version is None or _numbers(version) >= _numbers(first)


@dataclass(frozen=True, slots=True)
class Range:
    """Versions from one on and before another."""

    first: str
    """The oldest that will do."""
    end: str | None = None
    """The oldest that will not do any more; none where None."""

    def holds(self, version: str | None) -> bool:
        """Whether a version is in the range; an unnamed one is."""
        too_new = version is not None and self.end is not None and at_least(version, self.end)
        return at_least(version, self.first) and not too_new


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


MIB = 2**20

TORCH_WORKSPACES = 2
"""cuBLAS workspaces of one process: of the thread that runs forward and of autograd's own.
Source: pytorch aten/src/ATen/cuda/CublasHandlePool.cpp, one for each pair of handle and stream."""

TORCH_WORKSPACE_BYTES = 8_519_680
"""One cuBLAS workspace by default, :4096:2:16:8. Source: pytorch aten/src/ATen/cuda/CublasHandlePool.cpp."""

LARGE_TORCH_WORKSPACE_BYTES = 32 * MIB
"""One cuBLAS workspace on Hopper and newer, and everywhere with :4096:8, which determinism asks for.
Source: pytorch aten/src/ATen/cuda/CublasHandlePool.cpp; NVIDIA cuBLAS documentation, results reproducibility."""

LARGE_BEYOND_HOPPER_SINCE = "2.12"
"""torch release from which Blackwell has the large workspace too. Source: pytorch/pytorch#175344, February 2026."""

TE_WORKSPACE_BYTES = 4 * MIB
LARGE_TE_WORKSPACE_BYTES = 32 * MIB
"""Workspace of Transformer Engine's matrix products, before Hopper and from Hopper on.
Source: NVIDIA/TransformerEngine@v2.11 pytorch/module/base.py get_cublas_workspace_size_bytes."""

GROUPED_STREAMS = 4
"""Streams on which Transformer Engine runs the products of grouped experts, each with a workspace.
Source: NVIDIA/TransformerEngine@v2.11 common/util/multi_stream.cpp."""

_BEFORE_HOPPER = ("Pascal", "Volta", "Turing", "Ampere", "Ada")


def generation(gpu: Gpu) -> str:
    """The vendor's generation of a GPU without what it is paired with.

    >>> from service.estimator.samples import H100
    >>> generation(H100)
    'Hopper'
    """
    return gpu.architecture.partition(" ")[0]


def torch_workspace_bytes(gpu: Gpu, torch: str | None, *, deterministic: bool) -> float:
    """Bytes that torch's matrix products keep as workspaces on one GPU.

    Formula: 2 x 8.125 MiB; 2 x 32 MiB on Hopper, after it from torch 2.12 on, or where determinism is asked for
    Args:
        torch: its version; None stands for the newest
        deterministic: whether only deterministic kernels run
    Returns: bytes of one GPU [byte]
    Source: pytorch aten/src/ATen/cuda/CublasHandlePool.cpp

    >>> from service.estimator.samples import H100
    >>> torch_workspace_bytes(H100, "2.4", deterministic=False) / 2**20
    64.0
    """
    is_new = generation(gpu) not in _BEFORE_HOPPER
    has_large = generation(gpu) == "Hopper" or at_least(torch, LARGE_BEYOND_HOPPER_SINCE)
    is_large = deterministic or (is_new and has_large)
    return TORCH_WORKSPACES * (LARGE_TORCH_WORKSPACE_BYTES if is_large else TORCH_WORKSPACE_BYTES)


def transformer_engine_workspace_bytes(gpu: Gpu) -> float:
    """Bytes that Transformer Engine's matrix products keep as a workspace on one GPU.

    Formula: 32 MiB from Hopper on, 4 MiB before
    Returns: bytes of one GPU [byte]
    Source: NVIDIA/TransformerEngine@v2.11 pytorch/module/base.py get_cublas_workspace_size_bytes

    >>> from service.estimator.samples import H100
    >>> transformer_engine_workspace_bytes(H100) / 2**20
    32.0
    """
    return TE_WORKSPACE_BYTES if generation(gpu) in _BEFORE_HOPPER else LARGE_TE_WORKSPACE_BYTES
