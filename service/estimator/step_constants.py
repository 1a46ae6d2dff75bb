"""Which constants decide how long a step takes, beside what data sheets and benchmarks of single kernels say?"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.estimator.names import AttentionName


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstants:
    """What is fitted on published steps; `service.calibration` holds the bounds of each and the fit."""

    sustained_fractions: Mapping[str, float] = field(default_factory=dict)
    """Rate of matrix products inside a step over that of a short benchmark, by generation of GPU."""
    attention_fractions: Mapping[tuple[AttentionName, str], float] = field(default_factory=dict)
    """Rate of attention inside a step over the dense peak, by kernel and generation of GPU."""
    memory_fraction: float
    eager_traffic: float
    contention_fraction: float
    exposed_gradient_fraction: float
    straggler_fraction: float
    other_fraction: float
    host_seconds: float
    sparse_host_seconds: float
    inner_numbers: float
    misaligned_fraction: float
    misaligned_head_fraction: float = 0.12
    weight_traffic: float = 1.5
    eager_attention_fraction: float = .4
    grouped_fraction: float = .7
    network_fraction: float = .9
    pressure_fraction: float = 0.05
    stack_scales: Mapping[str, float] = field(default_factory=dict)


STEP_CONSTANTS = StepConstants(
    sustained_fractions={"Ampere": 0.95, "Hopper": 0.90, "Blackwell": 0.88},
    attention_fractions={
        ("flash-2", "Ampere"): 0.40, ("flash-2", "Hopper"): 0.28, ("cudnn", "Hopper"): 0.50, ("cudnn", "Blackwell"): 0.40,
        ("flash-3", "Hopper"): 0.50, ("flash-2", "Blackwell"): 0.20,
    },
    memory_fraction=0.82,
    eager_traffic=1.0,
    contention_fraction=0.4,
    exposed_gradient_fraction=0.25,
    straggler_fraction=0.0065,
    other_fraction=0.02,
    host_seconds=1e-3,
    sparse_host_seconds=6e-3,
    inner_numbers=200.0,
    misaligned_fraction=0.85,
)
