"""Which constants of a step are fitted, within which bounds, and what is believed of each before any step is seen?"""

from dataclasses import dataclass, replace
from typing import Any

from service.estimator.constants import StepConstants


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One number that a fit may change."""

    field: str
    """Its field of StepConstants."""
    key: Any = None
    """Its key, where the field is a table."""
    prior: float
    """What a benchmark, a data sheet or a paper says."""
    doubt_fraction: float
    """Standard deviation of that, in parts of it."""
    low: float
    """No fit goes below this: nothing physical lies there."""
    high: float
    """Nor above this."""
    source: str
    """Why this is believed."""

    def of(self, constants: StepConstants) -> float:
        """The number in some constants; one for a stack that has none yet."""
        found = getattr(constants, self.field)
        return float(found if self.key is None else found.get(self.key, 1.0))

    def put(self, constants: StepConstants, value: float) -> StepConstants:
        """The constants with another number, held inside the bounds."""
        held = min(self.high, max(self.low, value))
        changed: Any = held if self.key is None else {**getattr(constants, self.field), self.key: held}
        return replace(constants, **{self.field: changed})


_CLOCKS = "a benchmark of seconds runs at clocks that a step of minutes does not keep: 0.85-1 of it"
_KERNEL = "calibration/published/attention.csv at the clocks of a benchmark; 0.7-1.1 of it inside a step"
_NO_STACK = "no stack is slower or faster until its steps say so"

STACKS = (
    ("megatron-core", "transformer-engine"), ("megatron-core", "local"), ("deepspeed", "local"), ("deepspeed", "eager"),
    ("fsdp1", "eager"), ("nanotron", "eager"), ("torchtitan", "compiled"), ("torchtitan", "eager"),
)  # fmt: skip
"""Stacks and implementations with published steps."""

DENSE: tuple[Fitted, ...] = (
    *(
        Fitted(
            field="product_scales", key=name, prior=prior, doubt_fraction=0.05, low=0.75, high=1.1, source=_CLOCKS,
        )
        for name, prior in (("Ampere", 0.96), ("Hopper", 0.90))
    ),
    *(
        Fitted(field="attention_scales", key=name, prior=0.9, doubt_fraction=0.15, low=0.6, high=1.2, source=_KERNEL)
        for name in ("flash-1", "flash-2", "cudnn")
    ),
    Fitted(
        field="eager_attention_fraction", prior=0.4, doubt_fraction=0.2, low=0.1, high=0.7,
        source="batched products of 64 to 128 inner numbers: half of what large products reach",
    ),
    Fitted(
        field="memory_fraction", prior=0.82, doubt_fraction=0.06, low=0.6, high=0.94,
        source="ai-dynamo/aiconfigurator@095f58a memory kernels: 0.84-0.94 at best; norms and residuals of a step less",
    ),
    Fitted(
        field="fill_numbers", prior=120.0, doubt_fraction=0.5, low=0.0, high=512.0,
        source="a tile's pipeline of 3 to 5 stages of 32 or 64 numbers: NVIDIA/cutlass@v3.9 efficient_gemm.md",
    ),
    Fitted(
        field="misaligned_fraction", prior=0.85, doubt_fraction=0.08, low=0.5, high=1.0,
        source="NVIDIA, Matrix Multiplication Background User's Guide, section 2",
    ),
    Fitted(
        field="misaligned_head_fraction", prior=0.15, doubt_fraction=0.4, low=0.02, high=1.0,
        source="products without tensor cores run at a sixteenth to a quarter of the peak of A100",
    ),
    Fitted(
        field="network_scale", prior=0.88, doubt_fraction=0.12, low=0.5, high=1.0,
        source="0.73 and 0.96 of the adapter's rate in two measurements of the same network, over NETWORK_FRACTION",
    ),
    Fitted(
        field="contention_fraction", prior=0.4, doubt_fraction=0.3, low=0.0, high=1.0,
        source="regressions over published FSDP steps: 0.38 (A100) to 0.6 (H100)",
    ),
    Fitted(
        field="exposed_gradient_fraction", prior=0.25, doubt_fraction=0.4, low=0.0, high=1.0,
        source="the last bucket, and the gather of weights before the next forward pass",
    ),
    Fitted(
        field="straggler_fraction", prior=0.0065, doubt_fraction=0.4, low=0.0, high=0.03,
        source="1 + 0.0065 log2(nodes) over published steps of both generations",
    ),
    Fitted(
        field="pressure_fraction", prior=0.03, doubt_fraction=0.5, low=0.0, high=0.3,
        source="published pairs with and without room to spare: 0 to 21 %",
    ),
    *(
        Fitted(field="stack_scales", key=key, prior=1.0, doubt_fraction=0.045, low=0.75, high=1.35, source=_NO_STACK)
        for key in STACKS
    ),
)  # fmt: skip
"""What steps of dense models tell."""

SPARSE: tuple[Fitted, ...] = (
    Fitted(
        field="grouped_fraction", prior=0.7, doubt_fraction=0.2, low=0.2, high=1.0,
        source="uneven groups of tokens leave tiles half full",
    ),
    Fitted(
        field="sparse_layer_host_seconds", prior=1e-2, doubt_fraction=0.4, low=0.0, high=0.03,
        source="some 400 launches of 15 to 40 microseconds in both passes of a layer, and waits for counts of tokens",
    ),
)  # fmt: skip
"""What steps of mixtures of experts tell beside that."""


ASSUMED: tuple[Fitted, ...] = (
    Fitted(
        field="layer_host_seconds", prior=1e-3, doubt_fraction=0.5, low=0.0, high=5e-3,
        source="some 60 launches of 15 microseconds in both passes of a dense layer; not fitted",
    ),
)  # fmt: skip
"""What no published step tells: the prior itself is shipped."""


def at_priors(constants: StepConstants, table: tuple[Fitted, ...]) -> StepConstants:
    """Some constants with what is believed before any step is seen.

    Args:
        constants: the constants
        table: what of them is set back

    Returns:
        the constants
    """
    for one in table:
        constants = one.put(constants, one.prior)
    return constants
