"""Measurements of a device whose true constants are known, with the noise of a real one."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from service.calibration.observations import Observed, predicted_value
from service.calibration.records import Environment, Measurement, ProbeName, ProbeRecord
from service.estimator.constants import (
    AttentionCalibration,
    DeviceCalibration,
    LinkCalibration,
    MatrixCalibration,
    MeasuredBytes,
    calibrated,
)
from service.estimator.samples import H100

ENVIRONMENT = Environment(
    kind="cuda", device="NVIDIA H100 80GB HBM3", devices=8, memory_bytes=8.5e10, torch="2.9.0+cu130"
)
TRUE = DeviceCalibration(
    id="true",
    matrix=(MatrixCalibration(format="bf16", flop_per_s=6.1e14, launch_seconds=9e-6),),
    attention=(AttentionCalibration(kernel="flash-2", forward_fraction=0.37, backward_fraction=0.31),),
    links=(
        LinkCalibration(collective="all_gather", fixed_fraction=2.0, link_fraction=0.8),
        LinkCalibration(collective="all_reduce", fixed_fraction=1.5, link_fraction=0.7),
    ),
    memory_bytes_per_s=2.7e12,
    context_bytes=MeasuredBytes(low=6.3e8, value=6.3e8, high=6.3e8),
)
"""A device unlike others of its kind."""

TRUE_GPU = calibrated(H100, TRUE)
SIDES = ((4096, 6144, 4096), (8192, 4096, 14336), (2048, 28672, 4096), (1024, 1024, 1024), (512, 4096, 2048),
         (4096, 4096, 4096), (8192, 8192, 8192), (256, 2048, 2048))  # fmt: skip
SIZES = tuple(2**power for power in range(12, 31, 2))


def observed(
    probe: ProbeName, operation: str, shape: Mapping[str, Any], quantity: str = "seconds", **told: Any
) -> Observed:
    """A measurement whose value is what the true device takes, times `off`."""
    run, off, environment = told.get("run", "one"), told.get("off", 1.0), told.get("environment", ENVIRONMENT)

    def of(value: float) -> Observed:
        measured = Measurement(
            operation=operation, shape=shape, quantity=quantity, value=value, low=value, high=value, repeats=20
        )
        name = f"{run}/{probe}/{operation}/{sorted(shape.items())}"
        return Observed(id=name, run=run, probe=probe, measurement=measured, environment=environment)

    return of((predicted_value(of(1.0), TRUE_GPU) or 1.0) * off)


def products(run: str = "one", noise: float = 0.0, seed: int = 0) -> list[Observed]:
    """Forward and both backward products of several sizes."""
    random = Random(seed)  # noqa: S311 - the same noise every time
    turns = (("forward", (0, 1, 2)), ("input_gradient", (0, 2, 1)), ("weight_gradient", (2, 1, 0)))
    return [
        observed(
            "gemm",
            name,
            {"rows": sides[a], "columns": sides[b], "inner": sides[c], "dtype": "bf16", "copies": 1},
            run=run,
            off=1 + random.gauss(0, noise),
        )
        for sides in SIDES
        for name, (a, b, c) in turns
    ]


def others(run: str = "one") -> list[Observed]:
    """Attention, memory, collectives and the context."""
    heads = {"batch": 2, "heads": 32, "kv_heads": 8, "width": 128, "dtype": "bf16", "causal": True, "kernel": "flash"}
    return [
        *(
            observed("attention", name, {**heads, "length": length}, run=run)
            for name in ("forward", "backward")
            for length in (1024, 4096)
        ),
        *(observed("bandwidth", "copy", {"size_bytes": size}, "bytes_per_s", run=run) for size in SIZES[-3:]),
        *(
            observed("collective", name, {"size_bytes": size, "ranks": 8, "nodes": 1}, run=run)
            for name in ("all_gather", "all_reduce")
            for size in SIZES
        ),
        observed("context", "context", {}, "bytes", run=run),
    ]


def records_of(measured: Sequence[Observed], environment: Environment = ENVIRONMENT) -> list[ProbeRecord]:
    """The records that a worker would send of them."""
    probes: Iterable[ProbeName] = dict.fromkeys(one.probe for one in measured)
    return [
        ProbeRecord(
            probe=probe,
            status="succeeded",
            environment=environment,
            measurements=tuple(one.measurement for one in measured if one.probe == probe),
        )
        for probe in probes
    ]
