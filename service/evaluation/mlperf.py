"""Runs of MLPerf Training: logs, a configuration script and the system's description as a row of the table of steps."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import exp, floor, log
from statistics import median, median_low
from typing import Any

from service.answers.accuracy import BenchmarkErrors, BenchmarkRun, BenchmarkRuns
from service.calibration.scores import Comparison, errors_of, spread_fraction
from service.calibration.steps import HeldOutStep
from service.calibration.tables import MeasuredRow, refused, shipped_table
from service.catalogue import Catalogue
from service.estimator.answer import Interval
from service.estimator.time.step import LEAST_RESIDUAL, StepClass, spread_scale, waiting_fraction
from service.evaluation.frameworks import table_of
from service.evaluation.scoring import Evaluation, Predicted, evaluate_step
from service.formats.shell.expander import expanded

MARK = ":::MLLOG"
TABLE = "mlperf.toml"
FRAMEWORK = "NeMo/Megatron-Core (MLPerf)"

HERE = re.compile(r"\$\(\s*dirname\s+\"?\$\{?BASH_SOURCE(?:\[\d\])?\}?\"?\s*\)")
"""The folder of a script, in which it looks for others."""

QUESTION = "__row_of_a_table"
"""Command that stands for the question which values the variables of a script have at its end."""

MOST_LOGS = 64
"""Logs of one system. Source: a choice; rules ask for ten runs at most."""
MOST_CHARACTERS = 1 << 26
"""Characters of one log. Source: a choice; those of thousands of steps have some 1e6."""
ON = ("true", "1", "yes")
SECONDS_OF_MS = 1e-3
SECONDS_OF_HOUR = 3600
PASSED = "success"


@dataclass(frozen=True, slots=True)
class RunLog:
    """What one log says of a run that reached its target."""

    benchmark: str
    batch: int
    sequence_length: int | None
    samples: int
    """Samples trained until the target was reached."""
    run_seconds: float
    """From the first sample to the target, evaluations included."""
    step_seconds: float
    """Median of its steps."""


@dataclass(frozen=True, slots=True)
class Submission:
    """The runs of one system as a row of the table of steps, and what the table of whole runs holds of them."""

    cells: Mapping[str, str]
    samples: int
    run_seconds: float
    runs: int


def _events(text: str) -> Iterator[Mapping[str, Any]]:
    """The events of a log; lines that other processes cut are left out."""
    for line in text.splitlines():
        _, found, rest = line.partition(MARK)
        if found:
            with suppress(ValueError):
                event = json.loads(rest)
                if isinstance(event, Mapping) and isinstance(event.get("metadata"), Mapping):
                    yield event


def read_log(text: str) -> RunLog | None:
    """The run of a log; None if it did not reach its target."""
    if len(text) > MOST_CHARACTERS:
        raise refused("", "too_long", f"a log has at most {MOST_CHARACTERS} characters", "send its lines :::MLLOG only")
    events = list(_events(text))
    first: dict[str, Mapping[str, Any]] = {}
    for event in events:
        first.setdefault(str(event.get("key")), event)
    if "run_start" not in first or "submission_benchmark" not in first:
        message = "the log has no line :::MLLOG of a run's start, or of its benchmark"
        raise refused("", "no_run", message, "send result_*.txt of a submission")
    stop = first.get("run_stop")
    if stop is None or stop["metadata"].get("status") != PASSED:
        return None
    batch, length = _whole(first, "global_batch_size"), _value(first, "max_sequence_length")
    tracked = [event["value"] for event in events if event.get("key") == "tracked_stats" and _is_mapping(event)]
    steps = [one for stats in tracked if "throughput" not in stats for one in _numbers(stats, "train_step_time")]
    rates = [one for stats in tracked for one in _numbers(stats, "throughput")] or list(_block_rates(events, length))
    trained = _numbers(stop["metadata"], "samples_count") or [(_value(first, "trained_samples") or 0) / (length or 1)]
    if not steps and not rates:
        message = "no step of the log has a time: no train_step_time, no throughput, and no block of known samples"
        raise refused("tracked_stats", "no_steps", message, "send the whole log")
    return RunLog(
        benchmark=str(first["submission_benchmark"].get("value")),
        batch=batch,
        sequence_length=None if length is None else int(length),
        samples=round(trained[0]),
        run_seconds=(float(stop["time_ms"]) - float(first["run_start"]["time_ms"])) * SECONDS_OF_MS,
        step_seconds=median(steps) if steps else batch / median(rates),
    )


def _is_mapping(event: Mapping[str, Any]) -> bool:
    return isinstance(event.get("value"), Mapping)


def _block_rates(events: Sequence[Mapping[str, Any]], length: float | None) -> Iterator[float]:
    """Samples a second of each block between evaluations, where a log counts their tokens and states no rate."""
    started = 0.0
    for event in events:
        if event.get("key") == "block_start":
            started = float(event["time_ms"])
        elif event.get("key") == "block_stop" and length and started:
            seconds = (float(event["time_ms"]) - started) * SECONDS_OF_MS
            yield from (tokens / length / seconds for tokens in _numbers(event["metadata"], "epoch_count") if seconds)


def _numbers(values: Mapping[str, Any], name: str) -> list[float]:
    value = values.get(name)
    return [float(value)] if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else []


def _value(events: Mapping[str, Mapping[str, Any]], key: str) -> float | None:
    found = _numbers(events.get(key, {}), "value")
    return found[0] if found else None


def _whole(events: Mapping[str, Mapping[str, Any]], key: str) -> int:
    value = _value(events, key)
    if value is None:
        raise refused(key, "required", f"the log does not state {key}", "send the whole log")
    return int(value)


def read_config(script: str, beside: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables of a configuration script that the table reads, and the files that it looks for in vain.

    Scripts beside it are followed by their names; what depends on the machine is not known, and left out.
    """
    known = table_of(TABLE)
    names = [*dict.fromkeys([name for own in known["variables"].values() for name in own]), *known["switches"]]
    names += ["DGXNNODES", "DGXNGPU", "ACG", "ACM", "ACL"]
    question = " ".join([QUESTION, *(f'"{name}=${{{name}-}}"' for name in names)])
    text, files = HERE.sub(".", script), dict[str, str]()
    for file in expanded(text, {}, (), files).sourced:
        files[file.plain] = HERE.sub(".", beside.get(file.plain.rpartition("/")[2], ""))
    missing = [name.removeprefix("./") for name, content in files.items() if not content]
    followed = expanded(f"{text}\n{question}\n", {}, (), files)
    words = next(one.words for one in followed.commands if one.words and one.words[0].plain == QUESTION)
    pairs = [word.plain.partition("=") for word in words[1:] if followed.unknown_in(word.plain) is None]
    return {name: value for name, _, value in pairs if value}, tuple(missing)


def submission_of(
    logs: Sequence[str], config: str, beside: Mapping[str, str], system: str, *, name: str, source: str
) -> Submission:
    """The row of one system, from the logs of its runs, its configuration script and its description."""
    if not 0 < len(logs) <= MOST_LOGS:
        message = f"a row takes 1 to {MOST_LOGS} logs, and there are {len(logs)}"
        raise refused("logs", "out_of_range", message, "send the logs of one system and benchmark")
    runs = [run for log in logs if (run := read_log(log)) is not None]
    if not runs:
        raise refused("logs", "no_run", "no run of the logs reached its target", "send logs of runs that passed")
    kinds = {(run.benchmark, run.batch) for run in runs}
    if len(kinds) > 1:
        message = f"the logs are of {len(kinds)} benchmarks or batches"
        raise refused("logs", "contradiction", message, "send the logs of one system and benchmark")
    benchmark = benchmark_of(runs[0].benchmark)
    variables, missing = read_config(config, beside)
    described = _described(system)
    gpus, per_node = _gpus(described, variables)
    layout = _layout(variables, gpus)
    if not layout["precision"] and not missing:
        layout["precision"] = "bf16"
    features = (benchmark["cells"].get("other_features"), layout["other_features"])
    cells = {
        "id": name,
        "source_key": "mlperf",
        "source": source,
        **benchmark["cells"],
        "framework": FRAMEWORK,
        "framework_version": f"MLPerf Training {described.get('framework', '')}".strip(),
        "gpu": str(described.get("accelerator_model_name", "")),
        "gpu_mem_gb": _gigabytes(str(described.get("accelerator_memory_capacity", ""))),
        "n_gpus": str(gpus),
        "gpus_per_node": str(per_node),
        "interconnect": f"{described.get('accelerator_interconnect', '')}; {described.get('host_networking', '')}",
        **layout,
        "other_features": "; ".join(filter(None, features)),
        "gbs": str(runs[0].batch),
        "optimizer": "AdamW",
        "flash_attention": "yes",
        "derived_step_time_s": f"{median(run.step_seconds for run in runs):.6g}",
        "notes": f"median of {len(runs)} runs" + "".join(f"; {file} is not beside the script" for file in missing),
    }
    if runs[0].sequence_length:
        cells["seq_len"] = str(runs[0].sequence_length)
    return Submission(
        cells={column: cell for column, cell in cells.items() if cell},
        samples=median_low(run.samples for run in runs),
        run_seconds=median(run.run_seconds for run in runs),
        runs=len(runs),
    )


def benchmark_of(name: str) -> Mapping[str, Any]:
    """What the rules fix for a benchmark."""
    known: Mapping[str, Mapping[str, Any]] = table_of(TABLE)["benchmark"]
    if name not in known:
        message = f"{name[:40]} is no language model whose rules are known"
        raise refused("submission_benchmark", "not_a_choice", message, f"send logs of {', '.join(known)}")
    return known[name]


def _described(text: str) -> Mapping[str, Any]:
    try:
        described = json.loads(text)
    except ValueError:
        described = None
    if not isinstance(described, Mapping):
        raise refused("system", "not_json", "the system's description is no JSON object", "send systems/NAME.json")
    return described


def _gpus(described: Mapping[str, Any], variables: Mapping[str, str]) -> tuple[int, int]:
    """GPUs of a system, and of one node: of the script, else of the description."""
    stated = (("number_of_nodes", "DGXNNODES"), ("accelerators_per_node", "DGXNGPU"))
    counts = [variables.get(name) or str(described.get(field, "")) for field, name in stated]
    for (field, name), count in zip(stated, counts, strict=True):
        if not (count.isascii() and count.isdecimal() and len(count) < 7 and int(count)):
            fix = f"state {field} in the description, or {name} in the script"
            raise refused(field, "required", f"neither file says how many: {field}", fix)
    return int(counts[0]) * int(counts[1]), int(counts[1])


def _gigabytes(text: str) -> str:
    """A memory in GB as data sheets state it; empty where the description does not."""
    found = re.match(r"([\d.]+) ?([MGT]?)i?B", text.replace(",", ""))
    if not found:
        return ""
    return str(round(float(found[1]) / {"M": 1024, "G": 1, "T": 1e-3}.get(found[2], 1e9)))


def _layout(variables: Mapping[str, str], gpus: int) -> dict[str, str]:
    """Columns that follow from the variables of a script."""
    known = table_of(TABLE)
    set_by = {
        column: next((variables[name] for name in names if name in variables), "1")
        for column, names in known["variables"].items()
    }
    degrees = {column: set_by[column] for column in ("tp", "pp", "cp", "mbs")}
    whole = {column: int(text) for column, text in degrees.items() if text.isdecimal() and int(text)}
    if len(whole) < len(degrees) or gpus % (whole["tp"] * whole["pp"] * whole["cp"]):
        split = ", ".join(f"{column} {text}" for column, text in degrees.items())
        message = f"{gpus} GPUs are no multiple of the degrees of the script: {split}"
        raise refused("config", "contradiction", message, "send the script that these runs were started with")
    words: dict[str, list[str]] = {"precision": [], "other_features": []}
    for switch, (column, text) in known["switches"].items():
        if variables.get(switch, "").lower() in ON and text not in words[column]:
            words[column].append(text)
    is_parallel = set_by["sequence_parallel"].lower() in ON and whole["tp"] > 1
    recompute = variables.get("ACG", "none")
    return {
        **degrees,
        **({"vpp": set_by["vpp"]} if whole["pp"] > 1 else {}),
        "dp": str(gpus // (whole["tp"] * whole["pp"] * whole["cp"])),
        "sequence_parallel": "1" if is_parallel else "0",
        "zero_stage": "1",
        "precision": words["precision"][0] if words["precision"] else "",
        "recompute": recompute,
        **({"recompute_detail": f"{variables.get('ACM', 'block')} {variables['ACL']}"} if "ACL" in variables else {}),
        "other_features": "; ".join(words["other_features"]),
    }


def _evaluated_samples(benchmark: str, batch: int, samples: int) -> int:
    """Samples that a run evaluates on its way to the target: every so many that it trains, but for the first times.

    >>> _evaluated_samples("llama31_405b", 1152, 276480), _evaluated_samples("llama2_70b_lora", 8, 3072)
    (34560, 865)
    """
    rules = benchmark_of(benchmark)
    skipped = floor(rules.get("skipped_by_batch", 0.0) * batch + rules.get("skipped", 0))
    times = max(1, round(samples / rules["evaluate_every"]) - skipped)
    return int(times * rules["evaluated"])


FORWARD_FRACTION = {"pretrain": 1 / 3, "lora": 1 / 2}
"""Share of a step's time that its forward pass takes, by what is trained. Source: a forward pass is a third of the FLOP
of a step that trains every weight, and half of one that computes no gradients of weights (Kaplan et al. 2020,
arXiv:2001.08361, section 2.1)."""

EVERY = "all"


def benchmark_runs(steps: Mapping[str, HeldOutStep], catalogue: Catalogue) -> BenchmarkRuns:
    """The shipped runs of MLPerf Training beside predictions, held out where the table of steps has their step.

    Intervals of adapters never saw their submitter; their steps give no constants.
    """
    evaluated = evaluated_runs(catalogue)
    residuals = adapter_residuals(evaluated)
    runs = tuple(_run(row, steps.get(row["row"]), step, residuals) for row, step in evaluated)
    names = sorted({run.benchmark for run in runs})
    groups = {**{name: [run for run in runs if run.benchmark == name] for name in names}, EVERY: list(runs)}
    return BenchmarkRuns(scores=tuple(_errors(name, own) for name, own in groups.items()), runs=runs)


ADAPTERS: StepClass = "adapters"


def evaluated_runs(catalogue: Catalogue) -> list[tuple[Mapping[str, str], Evaluation]]:
    """The shipped runs, each with the evaluation of its step."""
    return [(row, evaluate_step(_step_of(row), catalogue)) for row in shipped_table("mlperf_runs")]


def adapter_residuals(evaluated: Sequence[tuple[Mapping[str, str], Evaluation]]) -> dict[str, list[float]]:
    """ln(measured / predicted) over the scale of each step of adapters, by submitter."""
    residuals: dict[str, list[float]] = {}
    for row, step in evaluated:
        if step.figure_class == ADAPTERS and step.predicted is not None:
            error = log(float(row["step_s"]) / step.predicted.estimate.step.step_seconds.value)
            residuals.setdefault(row["org"], []).append(error / _scale(step.predicted))
    return residuals


def _scale(predicted: Predicted) -> float:
    parts = {part.kind: part.seconds for part in predicted.estimate.step.parts}
    return spread_scale(waiting_fraction(parts))


def _without(submitter: str, residuals: Mapping[str, Sequence[float]], predicted: Predicted) -> Interval:
    """A step of adapters in the interval that all other submitters give."""
    spread = spread_fraction({name: own for name, own in residuals.items() if name != submitter}, by_root=True)
    width, seconds = max(LEAST_RESIDUAL, (spread or 0.0) * _scale(predicted)), predicted.estimate.step.step_seconds
    return replace(seconds, low=seconds.value * exp(-width), high=seconds.value * exp(width))


def _errors(name: str, runs: Sequence[BenchmarkRun]) -> BenchmarkErrors:
    compared = [
        Comparison(run.measured_gpu_hours, run.gpu_hours.low, run.gpu_hours.value, run.gpu_hours.high)
        for run in runs
        if run.gpu_hours is not None
    ]
    return BenchmarkErrors(benchmark=name, runs=len(runs), **asdict(errors_of(compared)))


def _run(
    row: Mapping[str, str], held_out: HeldOutStep | None, step: Evaluation, residuals: Mapping[str, Sequence[float]]
) -> BenchmarkRun:
    measured, hours, reason = float(row["gpu_hours"]), None, ""
    is_adapter = step.predicted is not None and step.figure_class == ADAPTERS
    if held_out is not None:
        compared = held_out.comparison
        hours = _gpu_hours(row, Interval(compared.low, compared.value, compared.high, "calibrated"))
    elif step.predicted is not None:
        seconds = step.predicted.estimate.step.step_seconds
        hours = _gpu_hours(row, _without(row["org"], residuals, step.predicted) if is_adapter else seconds)
    else:
        reason = step.reason
    return BenchmarkRun(
        organisation=row["org"],
        system=row["system"],
        benchmark=row["benchmark"],
        gpu=row["gpu"],
        gpus=int(row["n_gpus"]),
        samples=int(row["samples"]),
        measured_gpu_hours=measured,
        gpu_hours=hours,
        held_out=held_out is not None,
        error_fraction=None if hours is None else hours.value / measured - 1,
        is_inside=None if hours is None else hours.low <= measured <= hours.high,
        reason=reason,
        source=row["source"],
    )


def _step_of(row: Mapping[str, str]) -> MeasuredRow:
    """The step of a run, as a row of the table of steps."""
    columns = ("n_gpus", "gbs", "gpu", "tp", "pp", "vpp", "cp", "sequence_parallel", "mbs", "precision", "recompute",
               "recompute_detail", "gpus_per_node", "framework_version", "other_features")  # fmt: skip
    cells = {**benchmark_of(row["benchmark"])["cells"], **{name: row[name] for name in columns if row[name]}}
    if cells.get("tp"):
        replica = int(cells["tp"]) * int(cells["pp"]) * int(cells["cp"])
        cells["dp"] = str(int(cells["n_gpus"]) // replica)
    more = {
        "id": row["system"],
        "source_key": "mlperf_v50",
        "framework": FRAMEWORK,
        "derived_step_time_s": row["step_s"],
    }
    return MeasuredRow(0, {**cells, **more, "zero_stage": "1", "optimizer": "AdamW"}, "throughput")


def _gpu_hours(row: Mapping[str, str], step: Interval) -> Interval:
    """GPU-hours of a run, of its steps and its evaluations."""
    samples = int(row["samples"])
    evaluated = _evaluated_samples(row["benchmark"], int(row["gbs"]), samples)
    kind = benchmark_of(row["benchmark"])["cells"]["training_kind"]
    steps = (samples + evaluated * FORWARD_FRACTION[kind]) / int(row["gbs"])
    each = steps * int(row["n_gpus"]) / SECONDS_OF_HOUR
    return Interval(step.low * each, step.value * each, step.high * each, step.basis)
