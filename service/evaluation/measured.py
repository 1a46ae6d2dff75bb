"""Predictions against workers' measurements: shipped live-tensor counts and matrix products, and a team's own."""

from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from statistics import fmean
from typing import Any

from service.answers.accuracy import CountedPeaks, MeasuredAccuracy, OwnGroup, PeakRow
from service.calibration.kernels import scored_products, shipped_products
from service.calibration.observations import CountedPeak, counted_peaks, live_step_bytes
from service.calibration.scores import Comparison, errors_of
from service.catalogue import Catalogue, shipped_catalogue
from service.estimator.question import Cluster, Gpu, Layout, Question, Recipe, Software
from service.estimator.resolve import resolve
from service.store import Engine
from service.store.keys import Caller
from service.store.measurements import Measured, each_measurement
from service.validation.devices import is_possible, slug_of

GPU = "h100-sxm5-80gb"
"""The GPU of the questions; live tensors are the same on any."""


@cache
def evaluated_peaks() -> tuple[PeakRow, ...]:
    """Every shipped counted peak and its prediction."""
    return tuple(_evaluated(one) for one in counted_peaks())


def _evaluated(counted: CountedPeak) -> PeakRow:
    catalogue = shipped_catalogue()
    names: dict[str, Any] = {
        name: getattr(counted, name)
        for name in ("sequence_length", "micro_batch", "precision", "attention", "optimizer")
    }
    model = catalogue.models[counted.model].model
    if model is None:
        message = f"the catalogue describes no layers of {counted.model}"
        raise LookupError(message)
    question = Question(
        model=replace(model, num_hidden_layers=counted.layers),
        recipe=Recipe(**names, stack=Software(name="transformers", implementation="eager", cross_entropy="eager")),
        layout=Layout(),
        cluster=Cluster(gpu=GPU, gpus=1),
        gpu=catalogue.gpus[GPU].gpu,
    )
    predicted = live_step_bytes(resolve(question)).of_step(counted.step)
    return PeakRow(
        model=counted.model,
        layers=counted.layers,
        step=counted.step,
        counted_bytes=counted.live_bytes_peak,
        predicted_bytes=predicted,
        error_fraction=predicted / counted.live_bytes_peak - 1,
        source=counted.source,
    )


@cache
def shipped_measured() -> MeasuredAccuracy:
    """Accuracy on the measurements that ship with the service."""
    rows = evaluated_peaks()
    errors = [abs(row.error_fraction) for row in rows]
    return MeasuredAccuracy(
        counted_peaks=CountedPeaks(
            rows=rows,
            mape_fraction=fmean(errors) if errors else None,
            largest_fraction=max(errors, default=None),
        ),
        products=scored_products(shipped_products()),
        own=None,
    )


def own_groups(engine: Engine, caller: Caller, catalogue: Catalogue) -> tuple[OwnGroup, ...]:
    """Accuracy on a caller's own measurements."""
    found: dict[tuple[Any, ...], _Tally] = {}
    for row in each_measurement(engine, caller.visible_owner):
        key = tuple(getattr(row, name) for name in _KEY)
        if key not in found:
            slug = slug_of(row, catalogue)
            found[key] = _Tally(gpu=None if slug is None else catalogue.gpus[slug].gpu)
        found[key].add(row)
    return tuple(tally.group(key) for key, tally in sorted(found.items(), key=lambda item: str(item[0])))


_KEY = ("device", "gpu", "probe", "quantity", "calibration")


@dataclass(slots=True, kw_only=True)
class _Tally:
    """Running counts and errors of one group of measurements."""

    gpu: Gpu | None
    """Their device; None if the catalogue does not have it."""
    measurements: int = 0
    quarantined: int = 0
    compared: list[Comparison] = field(default_factory=list)

    def add(self, row: Measured) -> None:
        """Count a measurement."""
        if row.quarantined_at is not None or not is_possible(row, self.gpu):
            self.quarantined += 1
            return
        self.measurements += 1
        if row.predicted_value:
            predicted = row.predicted_value
            self.compared.append(Comparison(measured=row.value, low=predicted, value=predicted, high=predicted))

    def group(self, key: tuple[Any, ...]) -> OwnGroup:
        """The figures of the group."""
        errors, names = asdict(errors_of(self.compared)), {one.name for one in fields(OwnGroup)}
        return OwnGroup(
            **dict(zip(_KEY, key, strict=True)),
            measurements=self.measurements,
            quarantined=self.quarantined,
            **{name: value for name, value in errors.items() if name in names},
        )
