"""What would a measured step take by formulas? The model and the recipe that ran are in the job of its launch check."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service import store
from service.calibration.judging import STEP
from service.calibration.observed import Observed
from service.calibration.predicted import predicted_value
from service.errors import Refused
from service.estimator.configuration import worked_out
from service.estimator.device_calibration import StepCalibration
from service.estimator.gpu import Gpu
from service.estimator.measured_step import MeasuredStep
from service.estimator.model import Model
from service.estimator.question import Cluster, Layout, Question, Recipe
from service.estimator.resolve import Resolved, configuration_of
from service.store import Engine, Measured
from service.workflows.nouns import read_noun


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a step probe trained."""

    model: Model
    """The model; each measurement tells how many of its layers."""
    recipe: Recipe
    """The recipe, in the probe's own stack."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What step probes trained, by run."""

    trained: Mapping[str, Trained]
    """Runs whose steps can be predicted."""

    def predict(self, observed: Observed, gpu: Gpu) -> float | None:
        """What formulas say of a measurement, whole steps among them.

        Args:
            observed: the measurement
            gpu: the GPU, with its calibration where it has one

        Returns:
            the value in the unit of the measurement; None where no formula speaks of it
        """
        if observed.probe != STEP:
            return predicted_value(observed, gpu)
        found = self._resolved(observed, gpu)
        return None if found is None else worked_out(found).step.step_seconds.value

    def on(self, observed: Iterable[Observed], gpu: Gpu) -> tuple[StepCalibration, ...]:
        """Measured steps, each beside what is predicted of it on a GPU.

        Args:
            observed: measurements; those of other things are passed over
            gpu: the GPU

        Returns:
            the steps that can be predicted
        """
        told = ((one, self._resolved(one, gpu)) for one in observed)
        return tuple(
            StepCalibration(
                stack=found.job.software.name,
                implementation=found.job.software.implementation,
                step=MeasuredStep(
                    predicted_seconds=worked_out(found).step.step_seconds.value,
                    measured_seconds=one.measurement.value,
                ),
            )
            for one, found in told
            if found is not None
        )

    def _resolved(self, observed: Observed, gpu: Gpu) -> Resolved | None:
        """The configuration of a timed step on a GPU; None for anything else, and for what formulas refuse."""
        trained = self.trained.get(observed.run)
        depth = observed.measurement.shape.get("depth")
        is_timed = observed.probe == observed.measurement.operation == STEP and observed.environment.kind != "cpu"
        if trained is None or not is_timed or not isinstance(depth, int):
            return None
        question = Question(
            model=replace(trained.model, num_hidden_layers=depth),
            recipe=trained.recipe,
            layout=Layout(),
            cluster=Cluster(gpu=gpu.slug, gpus=1, gpus_per_node=1),
            gpu=gpu,
        )
        try:
            return configuration_of(question)
        except Refused:
            return None


def trained_by(payload: Mapping[str, Any]) -> Trained | None:
    """What the step probe of a launch check trained.

    Args:
        payload: of its job

    Returns:
        model and recipe; None where it has no step probe, or one that this release cannot read
    """
    told = next((task.get("parameters", {}) for task in payload.get("tasks", ()) if task.get("probe") == STEP), None)
    if told is None:
        return None
    try:
        return Trained(
            model=read_noun(Model, told.get("model"), "model"), recipe=read_noun(Recipe, told.get("recipe"), "recipe")
        )
    except Refused:
        return None


def steps_of(engine: Engine, rows: Sequence[Measured]) -> Steps:
    """What the step probes of some measurements trained.

    Args:
        engine: the database
        rows: measurements

    Returns:
        the runs whose steps can be predicted

    Raises:
        Unreachable: the database does not answer
    """
    checks = {row.run: row.launch_check_id for row in rows if row.probe == STEP and row.launch_check_id is not None}
    jobs = {run: store.read_job(engine, check) for run, check in checks.items()}
    found = {run: trained_by(job.payload) for run, job in jobs.items() if job is not None}
    return Steps({run: trained for run, trained in found.items() if trained is not None})


def steps_on(payload: Mapping[str, Any], run: str) -> Callable[[Iterable[Observed], Gpu], tuple[StepCalibration, ...]]:
    """What predicts the steps of one launch check.

    Args:
        payload: of its job
        run: what its measurements are called

    Returns:
        measured steps, each beside what is predicted of it on a GPU
    """
    trained = trained_by(payload)
    return Steps({} if trained is None else {run: trained}).on
