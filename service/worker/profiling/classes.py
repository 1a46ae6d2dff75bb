"""What kind of work is a kernel, or an operation on a processor? Told by its name, the first pattern that fits."""

import re
from collections.abc import Iterable, Sequence

from service.worker.profiling.trace import Event

OPTIMIZER = "Optimizer.step#"
"""How the profiler names an optimizer's step. Source: torch.optim.Optimizer.profile_hook_step."""

_PATTERNS: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("waiting_for_data", r"^enumerate\(Data"),
        ("communication", r"nccl|rccl|gloo:|c10d::"),
        ("optimizer", r"adam|multi_tensor|foreach|lion|momentum"),
        ("attention", r"flash|fmha|attention|sdpa|mem_eff"),
        ("gemm", r"gemm|gemv|cutlass|cublas|nvjet|xmma|wgmma|splitk|::(add)?mm$|::(b|badd)b?mm$|::(mkldnn_)?linear$"),
        ("norm", r"layer_?norm|rms_?norm|batch_norm"),
        ("softmax_and_loss", r"softmax|nll|cross_entropy"),
        ("embedding", r"embedding|index_select|gather"),
        ("copies", r"memcpy|memset|::copy_$|::_to_copy$|::contiguous$|::cat$|catarray|direct_copy|::clone$"),
        ("reduction", r"reduce|::sum$|::mean$|norm"),
        ("elementwise", r"elementwise|vectorized|::"),
    )
)
"""Names of kernels and of torch's operations. Source: those of torch 2.13, cuBLAS, cuDNN, NCCL and FlashAttention."""


def kind_of(name: str) -> str:
    """The kind of work of a kernel or operation.

    Args:
        name: its name

    Returns:
        the kind; `other` where no pattern fits

    >>> kind_of("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>"), kind_of("aten::mul")
    ('gemm', 'elementwise')
    >>> kind_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"), kind_of("unknown")
    ('communication', 'other')
    """
    return next((kind for kind, pattern in _PATTERNS if pattern.search(name)), "other")


def device_seconds_by_kind(events: Iterable[Event]) -> dict[str, float]:
    """Time of kernels and copies on a device by kind; streams that run side by side each count.

    Args:
        events: kernels, copies and fills

    Returns:
        seconds by kind, largest first [s]
    """
    found: dict[str, float] = {}
    for event in events:
        kind = "copies" if event.role in ("memcpy", "memset") else kind_of(event.name)
        found[kind] = found.get(kind, 0.0) + (event.end_seconds - event.start_seconds)
    return _ordered(found)


def host_seconds_by_kind(events: Iterable[Event]) -> dict[str, float]:
    """Time of operations on a processor by kind, each without those inside it; all inside an optimizer's step are its.

    Args:
        events: operations, in order

    Returns:
        seconds by kind, largest first [s]
    """
    found: dict[str, float] = {}
    open_events: dict[str, list[tuple[Event, str]]] = {}
    for event in sorted(events, key=lambda one: (one.start_seconds, -one.end_seconds)):
        stack = open_events.setdefault(event.lane, [])
        while stack and stack[-1][0].end_seconds <= event.start_seconds:
            stack.pop()
        is_update = event.name.startswith(OPTIMIZER) or (bool(stack) and stack[-1][1] == "optimizer")
        kind = "optimizer" if is_update else kind_of(event.name)
        spent = event.end_seconds - event.start_seconds
        found[kind] = found.get(kind, 0.0) + spent
        if stack:
            found[stack[-1][1]] -= spent
        stack.append((event, kind))
    return _ordered(found)


def _ordered(found: dict[str, float]) -> dict[str, float]:
    return dict(sorted(found.items(), key=lambda item: -item[1]))
