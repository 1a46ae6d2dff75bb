"""Devices of measurements: their GPU in the catalogue, and stored rows as calibration records."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from service.answers.workers import Capabilities
from service.calibration.observations import Observed, impossible
from service.calibration.records import Environment, Measurement
from service.catalogue import Catalogue
from service.estimator.question import Gpu
from service.store.measurements import Measured

LEAST_MEMORY_FRACTION, MOST_MEMORY_FRACTION = 0.85, 1.05
"""Fraction of a GPU's memory that a driver may report. Source: nvidia-smi of a T4 (15,360 of 16,384 MiB, the rest is
error correction) and of an A10G (23,028 of 24,576 MiB); a slice or one half of a GPU has far less."""


def gpu_of_device(name: str, memory_bytes: float | None, catalogue: Catalogue) -> str | None:
    """The catalogue GPU of a driver's device name; None for none or several."""
    named = [
        row
        for row in catalogue.gpus.values()
        if is_device_of(name, memory_bytes, driver_names(row.slug, catalogue), row.gpu)
    ]
    return named[0].slug if len(named) == 1 else None


def driver_names(slug: str, catalogue: Catalogue) -> tuple[str, ...]:
    """Device names of a GPU, in lower case."""
    row = catalogue.gpus.get(slug)
    return () if row is None else (row.slug, row.name.lower(), *(alias.lower() for alias in row.aliases))


def is_device_of(name: str, memory_bytes: float | None, names: Sequence[str], gpu: Gpu) -> bool:
    """Whether a device is a whole GPU of a model."""
    if " ".join(name.lower().split()) not in names:
        return False
    return memory_bytes is None or LEAST_MEMORY_FRACTION <= memory_bytes / gpu.memory_bytes <= MOST_MEMORY_FRACTION


def with_catalogue_names(catalogue: Catalogue, capabilities: Capabilities) -> Capabilities:
    """Capabilities of a worker, with the catalogue's names of its devices."""
    devices = capabilities.devices
    named = tuple(replace(one, gpu=gpu_of_device(one.name, one.memory_bytes, catalogue)) for one in devices)
    return replace(capabilities, devices=named)


def environment_of(row: Measured) -> Environment:
    values: dict[str, Any] = {**row.environment}
    lists = {name: tuple(values.get(name, ())) for name in ("throttle_reasons", "instructions")}
    return Environment(**{**values, **lists})


def observation_of(row: Measured) -> Observed:
    """A stored measurement as an observation for calibration fits."""
    measurement = Measurement(**{one.name: getattr(row, one.name) for one in fields(Measurement)})
    probe: Any = row.probe
    return Observed(id=row.id, run=row.run, probe=probe, measurement=measurement, environment=environment_of(row))


def is_possible(row: Measured, gpu: Gpu | None) -> bool:
    """Whether a measurement is physically possible; an impossible one never counts, even if it was released."""
    return impossible(observation_of(row), None if row.kind == "cpu" else gpu) is None


def slug_of(row: Measured, catalogue: Catalogue) -> str | None:
    """The slug of a measurement's GPU in the current catalogue."""
    known = row.gpu if row.gpu in catalogue.gpus else None
    return known or gpu_of_device(row.device, environment_of(row).memory_bytes or None, catalogue)
