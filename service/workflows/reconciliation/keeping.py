"""How do finished jobs count among what was measured? Each that is compared is kept once, beside its prediction."""

from collections.abc import Iterable
from dataclasses import asdict, replace

from service.calibration.records import DeviceKind, Environment
from service.catalogue import Catalogue
from service.store import Engine, Measured, answering, keep_measurements_in, note_in, writing
from service.workflows.callers import TEAM, Caller
from service.workflows.measurements.keeping import fingerprint_of, now_text, told_apart
from service.workflows.reconciliation.comparing import Judged
from service.workflows.wire import digest_of, to_bytes

SOURCE, PROBE, OPERATION, QUANTITY = "slurm", "run", "training", "gpu_hours"
"""How a run that a scheduler accounted for stands among measurements: nothing is fitted on it, its error is shown."""

KINDS: dict[str, DeviceKind] = {"NVIDIA": "cuda", "AMD": "rocm"}
"""Kind of device, by its vendor."""


def keep_jobs(engine: Engine, caller: Caller, jobs: Iterable[Judged], catalogue: Catalogue) -> None:
    """Keep jobs whose hours are compared; one that is there already stays as it is.

    Args:
        engine: the database
        caller: whose they are
        jobs: the jobs, each beside its prediction
        catalogue: the facts

    Raises:
        Unreachable: the database does not answer
    """
    kept_at = now_text()
    found = [_row(one, hours, catalogue, kept_at) for one in jobs if (hours := _hours(one, catalogue)) is not None]
    rows = [_of(caller.owner, row) for row in found]
    if rows:
        with answering(), writing(engine) as connection:
            keep_measurements_in(connection, rows)
            note_in(connection, *(f"measurements?run={run}" for run in sorted({row.run for row in rows})))


def _hours(one: Judged, catalogue: Catalogue) -> float | None:
    """GPU-hours that were predicted of a job; None where they are not compared, or its GPU is not held any more."""
    hours, ratio = one.compared.predicted_gpu_hours, one.compared.used_over_predicted_fraction
    is_known = one.prediction.gpu in catalogue.gpus
    return hours.value if hours is not None and ratio is not None and is_known else None


def _of(owner: str, row: Measured) -> Measured:
    """The measurement as its owner's: whoever else reconciles the same job keeps it as another one."""
    apart = told_apart(owner)
    return replace(row, owner=owner, id=f"msr_{digest_of(to_bytes([*apart, row.id]))}" if apart else row.id)


def _row(one: Judged, predicted_gpu_hours: float, catalogue: Catalogue, kept_at: str) -> Measured:
    gpu, used = catalogue.gpus[one.prediction.gpu], one.compared.used_gpu_hours
    environment = Environment(
        kind=KINDS.get(gpu.vendor, "other"),
        device=gpu.name,
        devices=one.compared.gpus,
        memory_bytes=gpu.gpu.memory_bytes,
    )
    ran = one.compared.cluster, one.compared.job_id, one.job.started, one.compared.estimate_id
    return Measured(
        id=f"msr_{digest_of(to_bytes([SOURCE, *ran]))}",
        measured_at=kept_at,
        source=SOURCE,
        run=f"{SOURCE}:{one.compared.cluster}",
        launch_check_id=None,
        probe=PROBE,
        operation=OPERATION,
        shape={"job_id": one.compared.job_id, "estimate_id": one.compared.estimate_id, "gpus": one.compared.gpus},
        quantity=QUANTITY,
        value=used,
        low=used,
        high=used,
        repeats=1,
        relative_error_fraction=None,
        predicted_value=predicted_gpu_hours,
        kind=environment.kind,
        device=gpu.name,
        gpu=gpu.slug,
        environment=asdict(environment),
        fingerprint=fingerprint_of(asdict(environment)),
        formulas=one.prediction.formulas,
        calibration=one.prediction.calibration,
        quarantined_at=None,
        reason=None,
        owner=TEAM,
    )
