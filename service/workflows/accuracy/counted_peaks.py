"""How near do predictions of live tensors come to what was counted while real steps of reduced depth ran?"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from service.calibration.live_bytes import CountedPeak, counted_peaks, live_step_bytes
from service.catalogue import shipped_catalogue
from service.estimator.question import Cluster, Layout, Question, Recipe, Software, filled
from service.estimator.resolve import resolve

GPU = "h100-sxm5-80gb"
"""The GPU of the questions; live tensors are the same on any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPeak:
    """A counted peak beside its prediction."""

    counted: CountedPeak
    """What was counted."""
    predicted_bytes: float
    """What the estimator says."""
    error_fraction: float
    """predicted / counted - 1."""


@cache
def judged_peaks() -> tuple[JudgedPeak, ...]:
    """Every counted peak that ships with the package, beside its prediction.

    Returns:
        one row a peak
    """
    return tuple(_judged(one) for one in counted_peaks())


def _judged(counted: CountedPeak) -> JudgedPeak:
    catalogue = shipped_catalogue()
    told: dict[str, Any] = {
        name: getattr(counted, name)
        for name in ("sequence_length", "micro_batch", "precision", "attention", "optimizer")
    }
    question = Question(
        model=replace(filled(catalogue.models[counted.model].model), num_hidden_layers=counted.layers),
        recipe=Recipe(**told, stack=Software(name="transformers", implementation="eager", cross_entropy="eager")),
        layout=Layout(),
        cluster=Cluster(gpu=GPU, gpus=1),
        gpu=catalogue.gpus[GPU].gpu,
    )
    predicted = live_step_bytes(resolve(question)).of_step(counted.step)
    return JudgedPeak(
        counted=counted, predicted_bytes=predicted, error_fraction=predicted / counted.live_bytes_peak - 1
    )
