"""Accuracy answers: predictions against published rows, workers' measurements, and whole published runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from service.answers.estimates import Versions
from service.calibration.kernels import MeasuredProducts
from service.calibration.scores import RelativeErrors
from service.estimator.answer import Interval, MemoryLine, StepPart, Verdict
from service.estimator.question import Documented

Quantity = Literal["peak", "static", "step"]
"""The largest bytes of a step, what stays allocated between steps, or the time of a step."""

HeldOutQuantity = Literal["step", "peak"]
"""The time of a step, or the largest bytes of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures(RelativeErrors, Documented):
    """Errors of some rows, and counts of the rows without a prediction."""

    rows: int
    """Rows in all: scored, not expressible, and those that ran out of memory and so have no peak."""
    ran_out: int
    """Rows that ran out of memory; the verdicts judge them."""
    not_expressible: Mapping[str, int]
    """Rows that were not compared, by reason."""
    median_bytes: float | None
    """Median of the absolute errors in bytes; null for steps."""
    p95_bytes: float | None
    """95th percentile of the absolute errors in bytes; null for steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScores(Documented):
    """Held-out scores of steps stated in full, and scores of single-number baselines."""

    held_out: RelativeErrors
    """By constants and intervals from all other sources; of the rows that ship with the service."""
    half_width_fraction: float | None
    """Median of how far the upper end of those intervals lies above the prediction."""
    held_out_classes: tuple[str, ...]
    """Classes of those rows while their source was left out: a stack that no other source runs is another stack."""
    constant_mfu: RelativeErrors
    """By the MFU that all other sources reach on the same GPU."""
    six_pd: RelativeErrors
    """By 6 x parameters x tokens at the utilisation that all other sources reach on the same GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized(Figures):
    """Figures, and the same for large and for small values, whose relative errors mean different things."""

    large_from_bytes: float | None
    """Measured value from which a row is large: 4 GiB for peaks, 1 GB for what stays between steps; null for steps,
    all of which are large."""
    large: Figures
    """Rows at least as large; those without a measured value are here too."""
    small: Figures
    """Rows below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Sized):
    """The rows of one source that measured the same thing."""

    quantity: Quantity
    """Peak, what stays between steps, or the time of a step."""
    source_key: str
    """The source; all for every one."""
    memory_class: str
    """allocated, reserved or device; of steps: known stack, other stack, new GPU, old GPU, adapters, MoE, or apart; not
    asked for steps that cannot be asked about; all for every one."""
    moe: bool | None
    """Mixtures of experts, or dense models; null for both."""
    in_sample: bool
    """A constant was read off rows of this source, so they judge their own constant."""
    constants: tuple[str, ...]
    """Those constants; without them every prediction is of a source that the estimator's constants never saw."""
    coverage80_left_out_fraction: float | None
    """Share of measured values inside an 80 % interval as wide as the errors of all other sources of the same kind of
    stack and model ask for; null where there is no other."""
    full_config: Sized
    """The rows whose configuration is stated in full; of steps those of class A with recompute stated, every parameter
    trained, and nothing newer from the same source."""
    step: StepScores | None
    """What constants that never saw these rows, and single numbers, say of the steps among them; null for memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongVerdict(Documented):
    """A row whose verdict was wrong."""

    id: str
    """Its name in the table."""
    outcome: str
    """The outcome in the table."""
    verdict: Verdict
    """The predicted verdict."""
    reason: str
    """Predicted peak and usable memory, and the notes of the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCounts(Documented):
    """Verdicts against outcomes."""

    ran: int
    """Rows that ran and have a verdict."""
    ran_fits: int
    """Those predicted to fit."""
    ran_at_risk: int
    """Those predicted to be at risk."""
    ran_out_of_memory: int
    """Those predicted to run out of memory."""
    ran_beyond_margin: int
    """Those whose predicted device peak exceeds the usable memory by more than 2 %."""
    roomy: int
    """Rows that ran and measured less than 85 % of the usable memory."""
    roomy_at_risk: int
    """Those of them predicted to be at risk."""
    roomy_at_risk_fraction: float | None
    """Their share."""
    ran_out: int
    """Rows that ran out of memory."""
    ran_out_told: int
    """Those predicted to run out of memory or to be at risk."""
    ran_out_not_expressible: Mapping[str, int]
    """Those without a verdict, by reason."""
    wrong: tuple[WrongVerdict, ...]
    """Rows that ran out but were predicted to fit, or ran but were predicted to exceed the memory by more than 2 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts(VerdictCounts, Documented):
    """Verdicts against outcomes, of all rows and of those stated in full."""

    full_config: VerdictCounts
    """The rows whose configuration is stated in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstRow(Documented):
    """One of the rows with the largest errors."""

    id: str
    """Its name in the table."""
    source_key: str
    """Its source."""
    source: str
    """Where it was published."""
    quantity: Quantity
    """Peak, or what stays between steps."""
    memory_class: str
    """allocated, reserved or device."""
    measured_bytes: float
    """What was measured."""
    low_bytes: float
    """Lower end of the predicted interval."""
    value_bytes: float
    """The prediction."""
    high_bytes: float
    """Upper end of the predicted interval."""
    error_fraction: float
    """Signed error."""
    lines: tuple[MemoryLine, ...]
    """Largest lines of the prediction."""
    reason: str
    """What of the row the question does not say, and where the prediction's bytes lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstStep(Documented):
    """One of the steps stated in full with the largest errors."""

    id: str
    """Its name in the table."""
    source_key: str
    """Its source."""
    source: str
    """Where it was published."""
    step_class: str
    """Its class of models, GPUs and stacks."""
    measured_seconds: float
    """What was measured."""
    low_seconds: float
    """Lower end of the predicted interval."""
    value_seconds: float
    """The prediction."""
    high_seconds: float
    """Upper end of the predicted interval."""
    error_fraction: float
    """Signed error."""
    parts: tuple[StepPart, ...]
    """Largest parts of the prediction."""
    reason: str
    """What of the row the question does not say, and which of its figures was compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRow(Documented):
    """The counted peak of one step beside its prediction."""

    model: str
    """Preset, at full width."""
    layers: int
    """Layers that it was cut to."""
    step: int
    """Step, from 1."""
    counted_bytes: float
    """Most bytes of live tensors at once."""
    predicted_bytes: float
    """What was predicted."""
    error_fraction: float
    """predicted / counted - 1."""
    source: str
    """Who counted, with what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPeaks(Documented):
    """How near predictions come to live tensors that were counted while real steps ran."""

    rows: tuple[PeakRow, ...]
    """One a model, depth and step."""
    mape_fraction: float | None
    """Mean of the absolute errors; null where there are none."""
    largest_fraction: float | None
    """The largest of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGroup(Documented):
    """A team's own measurements of one device and probe, beside what was predicted when they came in."""

    device: str
    """Name of the device."""
    gpu: str | None
    """Its catalogue name; null where the catalogue does not hold it."""
    probe: str
    """Which probe."""
    quantity: str
    """What was measured, by the suffix of its unit."""
    calibration: str | None
    """Calibration that predicted; null where none did."""
    measurements: int
    """Measurements that count."""
    quarantined: int
    """Measurements in quarantine, which are not scored."""
    scored: int
    """Measurements that had a prediction."""
    mape_fraction: float | None
    """Mean of the absolute errors, predicted / measured - 1; null where nothing was predicted."""
    median_fraction: float | None
    """Median of the absolute errors."""
    bias_fraction: float | None
    """Mean of the signed errors: positive where too much was predicted."""
    p90_fraction: float | None
    """90th percentile of the absolute errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAccuracy(Documented):
    """How near predictions come to what workers measured."""

    counted_peaks: CountedPeaks
    """Live tensors of real steps, which ship with the service."""
    products: MeasuredProducts | None
    """Matrix products of a processor, which ship with the service; null where none do."""
    own: tuple[OwnGroup, ...] | None
    """Own measurements, by device and probe; null where no database was asked, or it does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyPoint(Documented):
    """One published figure beside a prediction whose constants and interval never saw its source."""

    id: str
    """Its name in the table."""
    source_key: str
    """Its source."""
    quantity: HeldOutQuantity
    """Time of a step, or the largest bytes of one."""
    memory_class: str
    """Class of the question: known stack, other stack, new GPU, old GPU, adapters, MoE, or apart; of peaks allocated,
    reserved or device."""
    unit: Literal["seconds", "bytes"]
    """Unit of the figures."""
    measured: float
    """What was published."""
    low: float | None
    """Lower end of the predicted 80 % interval; null where no other source gives its width."""
    predicted: float
    """The prediction."""
    high: float | None
    """Upper end of the predicted 80 % interval."""
    error_fraction: float
    """predicted / measured - 1."""
    is_inside: bool | None
    """Whether the published figure lies inside the interval; null without one."""
    known_difference: str | None
    """Why the prediction is off, where the source or its software gives a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMethod(RelativeErrors, Documented):
    """Errors of another method on the rows that it can be asked about."""

    name: str
    """Constant MFU or 6PD, at the utilisation that all other sources reach on the same GPU; or another tool."""
    ours_mape_fraction: float | None
    """Mean of the absolute errors of these predictions on the same rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutScore(RelativeErrors, Documented):
    """Errors on rows of a class or source that neither constants nor intervals have seen."""

    quantity: HeldOutQuantity
    """Time of a step, or the largest bytes of one."""
    memory_class: str
    """Class of the questions; all for every one."""
    source_key: str
    """The source; all for every one."""
    half_width_fraction: float | None
    """Median of how far the upper end of the intervals lies above the prediction."""
    others: tuple[OtherMethod, ...]
    """Other methods on the same rows; empty for peaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRun(Documented):
    """One submission to MLPerf Training: the GPU-hours of its runs beside their prediction."""

    organisation: str
    """Who submitted it."""
    system: str
    """Name of the system."""
    benchmark: str
    """Name of the benchmark."""
    gpu: str
    """The GPU as the submission names it."""
    gpus: int
    """Number of GPUs."""
    samples: int
    """Samples trained until the target: an input, as tokens are."""
    measured_gpu_hours: float
    """GPU-hours of the median run, evaluations included."""
    gpu_hours: Interval | None
    """GPU-hours as predicted; null where the submission does not state its configuration. The interval of adapters
    never saw their submitter."""
    held_out: bool
    """Whether the constants of the prediction never saw a row of MLPerf; otherwise they never saw this benchmark."""
    error_fraction: float | None
    """predicted / measured - 1; null without a prediction."""
    is_inside: bool | None
    """Whether the measured GPU-hours lie inside the interval; null without a prediction."""
    reason: str
    """Why there is no prediction; empty where there is one."""
    source: str
    """Where it was published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkErrors(RelativeErrors, Documented):
    """Errors of predicted GPU-hours of the runs of one benchmark."""

    benchmark: str
    """Name of the benchmark; all for every one."""
    runs: int
    """Submissions in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRuns(Documented):
    """How near predicted GPU-hours come to whole runs of MLPerf Training."""

    scores: tuple[BenchmarkErrors, ...]
    """Errors by benchmark, and of all."""
    runs: tuple[BenchmarkRun, ...]
    """Every submission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoreboard(Documented):
    """How near predictions come to sources that they have never seen."""

    classes: tuple[HeldOutScore, ...]
    """By class of question, over all sources."""
    sources: tuple[HeldOutScore, ...]
    """By source and class."""
    worst: tuple[AccuracyPoint, ...]
    """The points farthest off, the farthest first."""
    mlperf: BenchmarkRuns | None
    """Whole runs of MLPerf Training that ship with the service; null for another table of measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy(Documented):
    """Accuracy of predictions against measurements."""

    versions: Versions
    """Versions behind the predictions."""
    held_out: Scoreboard
    """Errors on sources that the predictions have never seen: the figures that a new question can expect."""
    groups: tuple[Group, ...]
    """Figures by quantity, source, class and kind of model, by the constants that are served: in sample where a group
    says so."""
    all: Group
    """The peaks of all rows together."""
    verdicts: Verdicts
    """How often the verdict was right."""
    rows_worst: tuple[WorstRow, ...]
    """Rows whose prediction is farthest off, the farthest first."""
    steps: tuple[Group, ...]
    """The steps of all sources together, by class."""
    steps_worst: tuple[WorstStep, ...]
    """Steps whose prediction is farthest off, the farthest first."""
    measured: MeasuredAccuracy
    """Workers' measurements: live tensors, matrix products, and own measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction(Documented):
    """Seconds of a step of one row, predicted without its measured columns."""

    id: str
    """Name of the row in the table."""
    memory_class: str
    """Class of the question."""
    low_seconds: float
    """Lower end of the 80 % interval."""
    value_seconds: float
    """The prediction."""
    high_seconds: float
    """Upper end of the 80 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow(Documented):
    """A row that is not predicted, or not scored."""

    id: str
    """Name of the row in the table."""
    reason: str
    """Why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions(Documented):
    """Predictions of a table of steps, made before anyone looks at what was measured."""

    formulas: str
    """Version of the formulas that predicted."""
    catalogue: str
    """Revision of the catalogue."""
    rows_digest: str
    """SHA-256 of the rows without their measured columns."""
    predictions: tuple[StepPrediction, ...]
    """Every row that a question expresses, in the order of the table."""
    refused: tuple[RefusedRow, ...]
    """The other rows, each with its reason."""
    predictions_digest: str
    """SHA-256 of all that stands above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealedClass(RelativeErrors, Documented):
    """Errors of the predictions of one class."""

    memory_class: str
    """Class of the questions; all for every one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed(Documented):
    """Predictions beside what was measured."""

    formulas: str
    """Version of the formulas that predicted."""
    predictions_digest: str
    """SHA-256 of the predictions, as it was published with them."""
    classes: tuple[RevealedClass, ...]
    """Errors by class, and of all."""
    points: tuple[AccuracyPoint, ...]
    """Every row that was compared, in the order of the table."""
    refused: tuple[RefusedRow, ...]
    """Rows that were not predicted, or have no measured figure, each with its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsRow(Documented):
    """One published run beside its prediction."""

    id: str
    """Its name in the table."""
    model: str
    """The model that it trained."""
    source: str
    """Where it was published."""
    describes_main_run: bool
    """Whether its GPU-hours are those of one pre-training run."""
    decided: str
    """Why that was decided, before anything was predicted."""
    published_gpu_hours: float | None
    """GPU-hours as published; null if not published."""
    gpu_hours: Interval | None
    """GPU-hours as predicted, goodput counted; null where the row cannot be asked."""
    held_out_gpu_hours: Interval | None
    """The same prediction, as wide as all other sources ask for; null where there is no other."""
    error_fraction: float | None
    """Signed error, predicted / published - 1; null where there is nothing to compare."""
    is_inside: bool | None
    """Whether the published GPU-hours lie inside the predicted interval; null where there is nothing to compare."""
    is_inside_held_out: bool | None
    """Whether they lie inside the interval that never saw their source; null where there is nothing to compare."""
    assumed: tuple[str, ...]
    """Columns that the row leaves empty, which a rule filled."""
    layout: str
    """The layout that was asked about; empty where none was."""
    reason: str
    """Why there is no comparison; empty where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsGroup(Documented):
    """What predictions of some published runs amount to."""

    name: str
    """main runs, or beside them: rows whose hours are not known to be those of one run."""
    rows: int
    """Rows in all."""
    scored: int
    """Rows whose prediction was compared."""
    inside: int
    """Rows whose published GPU-hours lie inside the predicted interval."""
    inside_fraction: float | None
    """Their share of those compared; null where nothing was."""
    held_out_inside: int
    """Rows whose published GPU-hours lie inside the interval that never saw their source."""
    held_out_inside_fraction: float | None
    """Their share of those compared; null where nothing was."""
    mape_fraction: float | None
    """Mean of the absolute errors; null where nothing was compared."""
    bias_fraction: float | None
    """Mean of the signed errors: positive where too many hours are predicted."""
    not_expressible: Mapping[str, int]
    """Rows that were not compared, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsAccuracy(Documented):
    """How near predicted GPU-hours come to those of published runs."""

    main_runs: TotalsGroup
    """Rows that describe one main run: the ones that count."""
    beside: TotalsGroup
    """All other rows, printed beside and counted apart."""
    rows: tuple[TotalsRow, ...]
    """Every row, main runs first."""
