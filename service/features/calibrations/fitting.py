"""Fits of calibrations to measurements, scored on measurements that were held out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from service.calibration.device_fit import STEP, StepsOn, fitted_device, score_calibration
from service.calibration.observations import Observed, impossible, observed_in, predicted_value, processor_of
from service.calibration.records import ProbeRecord, quality_flag_of
from service.catalogue import Catalogue
from service.catalogue.catalogue import calibrated_gpu
from service.errors import Problem, Refused
from service.estimator import FORMULAS_VERSION
from service.estimator.constants import DeviceCalibration, StepCalibration, calibrated, calibration_of
from service.estimator.question import Cluster, Gpu, Layout, MeasuredStep, Model, Question, Recipe
from service.estimator.resolve import ResolvedQuestion, configuration_of
from service.estimator.run.run import compute_configuration
from service.estimator.software.precision import in_present_names
from service.estimator.software.stacks import software_of
from service.features.calibrations.schemas import chosen_of, read_chosen, values_of
from service.features.measurements.measurements import now_text
from service.jobs.jobs import read_job
from service.store import Engine
from service.store.keys import TEAM, Caller
from service.store.measurements import Calibration, Measured, read_calibration, read_measurements
from service.validation.devices import environment_of, is_possible, observation_of, slug_of
from service.validation.reading import adapter_of, digest_of, read_spec, to_bytes, to_wire


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """Model and recipe that a step probe trains."""

    model: Model
    """The model; each measurement sets the number of its layers."""
    recipe: Recipe
    """The recipe, with the probe's own stack."""


@dataclass(frozen=True, slots=True)
class StepPredictor:
    """Predictor of measurements, steps of known models and recipes included."""

    trained: Mapping[str, TrainedModel]
    """Model and recipe of each run whose steps can be predicted."""

    def predict(self, observed: Observed, gpu: Gpu) -> float | None:
        """Prediction for a measurement; None if there is none."""
        if observed.probe != STEP:
            return predicted_value(observed, gpu)
        resolved = self._resolved(observed, gpu)
        return None if resolved is None else compute_configuration(resolved).step.step_seconds.value

    def on(self, observed: Iterable[Observed], gpu: Gpu) -> tuple[StepCalibration, ...]:
        """Measured steps among some measurements, with their predictions on a GPU."""
        configurations = ((one, self._resolved(one, gpu)) for one in observed)
        return tuple(
            StepCalibration(
                stack=resolved.workload.software.name,
                implementation=resolved.workload.software.implementation,
                step=MeasuredStep(
                    predicted_seconds=compute_configuration(resolved).step.step_seconds.value,
                    measured_seconds=one.measurement.value,
                ),
            )
            for one, resolved in configurations
            if resolved is not None
        )

    def _resolved(self, observed: Observed, gpu: Gpu) -> ResolvedQuestion | None:
        """Configuration of a timed step on a GPU; None for other measurements, and where the question is refused."""
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


def trained_by(payload: Mapping[str, Any]) -> TrainedModel | None:
    """Model and recipe of a launch check's step probe; None without one."""
    parameters = next(
        (task.get("parameters", {}) for task in payload.get("tasks", ()) if task.get("probe") == STEP), None
    )
    if parameters is None:
        return None
    recipe = in_present_names(parameters.get("recipe") or {})  # tasks hold no short names of the present
    try:
        return TrainedModel(
            model=read_spec(Model, parameters.get("model"), "model"),
            recipe=read_spec(Recipe, recipe, "recipe"),
        )
    except Refused:
        return None


def step_predictor_of(engine: Engine, rows: Sequence[Measured]) -> StepPredictor:
    """Models and recipes of the step probes of some measurements."""
    checks = {row.run: row.launch_check_id for row in rows if row.probe == STEP and row.launch_check_id is not None}
    jobs = {run: read_job(engine, check) for run, check in checks.items()}
    trained_runs = {run: trained_by(job.payload) for run, job in jobs.items() if job is not None}
    return StepPredictor({run: trained for run, trained in trained_runs.items() if trained is not None})


def steps_on(payload: Mapping[str, Any], run: str) -> Callable[[Iterable[Observed], Gpu], tuple[StepCalibration, ...]]:
    """Function that predicts the measured steps of one launch check."""
    trained = trained_by(payload)
    return StepPredictor({} if trained is None else {run: trained}).on


OWN = "own"
"""Run name of measurements on the device of the question."""


def with_measured(question: Question, records: Sequence[ProbeRecord], steps_on: StepsOn | None = None) -> Question:
    """The question with measured rates of its GPU: of whole, unthrottled devices, and steps of the same software."""
    observed = [
        one
        for one in observed_in(records, OWN)
        if one.environment.kind != "cpu"
        and quality_flag_of(one.environment) is None
        and impossible(one, question.gpu) is None
    ]
    known = calibration_of(question.gpu)
    before = known.id if known is not None else None
    name = f"own_{digest_of(to_bytes([before, [asdict(record) for record in records]]))}"
    fitted = fitted_device(observed, calibrated(question.gpu, None), name)
    constants = fitted if known is None else _with_known(fitted, known)
    if steps_on is not None:
        software = software_of(question.recipe)
        timed = steps_on(observed, calibrated(question.gpu, replace(constants, steps=())))
        steps = tuple(
            one for one in timed if (one.stack, one.implementation) == (software.name, software.implementation)
        )
        constants = replace(constants, steps=steps or constants.steps)
        fitted = replace(fitted, steps=steps)
    return question if fitted.is_empty else replace(question, gpu=calibrated(question.gpu, constants))


def _with_known(fitted: DeviceCalibration, known: DeviceCalibration) -> DeviceCalibration:
    formats, kernels = {one.format for one in fitted.matrix}, {one.kernel for one in fitted.attention}
    collectives = {one.collective for one in fitted.links}
    return DeviceCalibration(
        id=fitted.id,
        matrix=(*fitted.matrix, *(one for one in known.matrix if one.format not in formats)),
        attention=(*fitted.attention, *(one for one in known.attention if one.kernel not in kernels)),
        links=(*fitted.links, *(one for one in known.links if one.collective not in collectives)),
        memory_bytes_per_s=fitted.memory_bytes_per_s or known.memory_bytes_per_s,
        context_bytes=fitted.context_bytes or known.context_bytes,
        communicator_bytes=fitted.communicator_bytes or known.communicator_bytes,
        steps=known.steps,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FitData:
    rows: Sequence[Measured]
    steps: StepPredictor
    seen: frozenset[str]
    """Ids of the measurements that the current calibration was fitted on."""
    note: str
    owner: str


def read_fit_data(engine: Engine, catalogue: Catalogue, caller: Caller, body: Mapping[str, Any]) -> FitData:
    """Read the measurements that a request body selects."""
    chosen = read_chosen(body)
    owner = caller.visible_owner if chosen.measurements else caller.own
    stored = read_measurements(engine, chosen.measurements or None, owner, values_of(chosen))
    rows = chosen_of(stored, chosen)
    before = _current_id(rows[0], catalogue)
    known = None if before is None else read_calibration(engine, before)
    seen = frozenset[str]() if known is None else frozenset(known.fitted_on)
    return FitData(rows=rows, steps=step_predictor_of(engine, rows), seen=seen, note=chosen.note, owner=caller.owner)


def fit_calibration(data: FitData, catalogue: Catalogue) -> Calibration:
    """Fit a calibration to the measurements that the device can have made; a thousand of them take seconds."""
    gpu = device_of(data.rows[0], catalogue)
    possible = [row for row in data.rows if is_possible(row, gpu)]  # impossible ones are not fitted even once released
    if not possible:
        message = "all chosen measurements are impossible for their device, so there is nothing to fit"
        fix = "see their reasons at GET /v1/measurements, and measure again"
        raise Refused(Problem(field="", code="nothing_chosen", message=message, fix=fix))
    fitted = calibration_on(possible, catalogue, data.seen, data.steps)
    return replace(fitted, note=data.note, owner=data.owner)


def calibration_on(
    rows: Sequence[Measured], catalogue: Catalogue, seen: frozenset[str], steps: StepPredictor
) -> Calibration:
    """Fit a calibration to measurements of one device, and compare it with the current one, fitted on `seen`."""
    gpu = device_of(rows[0], catalogue)
    observed = [observation_of(row) for row in rows]
    constants = fitted_device(observed, gpu, "", steps.on)
    if constants.is_empty:
        message = "no formula predicts any of these measurements by itself, so nothing can be fitted to them"
        fix = "choose measurements of gemm, attention, bandwidth, collective, context, or a launch check's step"
        raise Refused(Problem(field="probes", code="nothing_to_fit", message=message, fix=fix))
    slug = slug_of(rows[0], catalogue)
    current = gpu if slug is None else calibrated_gpu(slug, catalogue)
    score = score_calibration(
        observed,
        gpu,
        lambda one: steps.predict(one, gpu if one.id in seen else current),  # `current` was fitted on `seen`
        steps.predict,
        steps.on,
    )
    values = {name: value for name, value in asdict(constants).items() if name != "id"}
    ids = tuple(sorted(row.id for row in rows))
    return Calibration(
        id=f"cal_{digest_of(to_bytes([values, ids, FORMULAS_VERSION]))}",
        status="draft",
        gpu=slug,
        device=rows[0].device,
        note="",
        held_out_fraction=score.held_out_fraction,
        before_fraction=score.before_fraction,
        in_sample_fraction=score.in_sample_fraction,
        parts=tuple(to_wire(part) for part in score.parts),
        constants=to_wire(values),
        fitted_on=ids,
        formulas=FORMULAS_VERSION,
        replaces=_current_id(rows[0], catalogue),
        created_at=now_text(),
        promoted_at=None,
        retired_at=None,
        owner=TEAM,
    )


def _current_id(row: Measured, catalogue: Catalogue) -> str | None:
    slug = slug_of(row, catalogue)
    known = None if slug is None else calibration_of(calibrated_gpu(slug, catalogue))
    return None if known is None else known.id


def device_of(row: Measured, catalogue: Catalogue) -> Gpu:
    """Device of a measurement, by its data sheet."""
    slug = slug_of(row, catalogue)
    if slug is not None:
        return catalogue.gpus[slug].gpu
    if row.kind == "cpu":
        return processor_of(environment_of(row))
    message = "the catalogue holds no GPU of the device's name, so there is no peak to measure rates by"
    fix = "create the GPU at POST /v1/gpus, with the words of the device's name as its slug, and fit again"
    raise Refused(Problem(field="device", code="unknown_device", message=message, fix=fix))


def constants_of(calibration: Calibration) -> DeviceCalibration:
    """Constants of a calibration, which replace published rates."""
    values = {**calibration.constants, "id": calibration.id}
    constants: DeviceCalibration = adapter_of(DeviceCalibration).validate_python(values)
    return constants
