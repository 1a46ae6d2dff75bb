"""Launch checks as JSON, CSV or terminal lines."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Literal

from service.answers.launch_checks import Compared, LaunchCheck, Outlook, ProbeAnswer
from service.cli.console import table
from service.tabular.lists import cell_text
from service.units import BYTES, SECONDS, in_units, readable
from service.validation.serialization import to_bytes

HEADS = ("probe", "operation", "shape", "quantity", "measured", "predicted", "ratio")
"""Columns of the table."""

MOST_SHOWN = 12
"""Measurements of one probe in the report. Source: a choice; --csv and --json list all."""


def format_launch_check(found: LaunchCheck, form: Literal["json", "csv", "report"]) -> str | bytes:
    """Format a launch check for a terminal."""
    if form == "json":
        return to_bytes(found)
    return _csv(found) if form == "csv" else _report(found)


def describe_event(name: str, data: str) -> Iterator[str]:
    """Lines that describe an event."""
    if name != "progress":
        yield name
        return
    for probe in json.loads(data)["data"].get("probes", ()):
        if probe.get("status") == "running":
            yield f"{probe.get('probe')} {float(probe.get('done_fraction') or 0):.0%}"


def _csv(found: LaunchCheck) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow((*HEADS[:-1], "low", "high", "predicted_low", "predicted_high", "ratio", "repeats", "count"))
    for probe in found.probes:
        for one in probe.measurements:
            predicted: tuple[float | None, ...] = (None, None, None)
            if one.predicted is not None:
                predicted = (one.predicted.value, one.predicted.low, one.predicted.high)
            cells = (
                probe.probe, one.operation, _shape(one), one.quantity, one.measured.value, predicted[0],
                one.measured.low, one.measured.high, *predicted[1:], one.ratio, one.measured.repeats, one.count,
            )  # fmt: skip
            writer.writerow([cell_text(cell) for cell in cells])
    return text.getvalue()


def _report(found: LaunchCheck) -> str:
    blocks = [
        "\n".join([_headline(found), *(f"  {one.verdict}: {one.message}; {one.fix}" for one in found.reasons)]),
        *(_probe(probe) for probe in found.probes),
        _outlook(found),
    ]
    if found.depths:
        blocks.append("\n".join(["At full depth, on one device", *_depths(found)]))
    if found.assumptions:
        blocks.append("\n".join(["Assumptions", *(f"  - {one}" for one in found.assumptions)]))
    return "\n\n".join([*blocks, found.id])


def _headline(found: LaunchCheck) -> str:
    if found.verdict is None:
        return f"{found.status}{f': {found.error}' if found.error else ''}"
    device = "" if found.environment is None else f" on {found.environment.device}"
    return f"{found.verdict}: {found.status}{device}"


def _probe(probe: ProbeAnswer) -> str:
    took = "" if probe.seconds is None else f", {in_units(probe.seconds, SECONDS)}"
    head = f"{probe.probe}: {probe.status}{took}{f' ({probe.reason})' if probe.reason else ''}"
    rows = [_row(one) for one in probe.measurements[:MOST_SHOWN]]
    more = len(probe.measurements) - len(rows)
    return "\n".join([head, *table(rows, has_header=False, indent="  "), *([f"  and {more} more"] if more > 0 else [])])


def _row(one: Compared) -> tuple[str, ...]:
    predicted = "" if one.predicted is None else f"predicted {_amount(one.quantity, one.predicted.value)}"
    ratio = "" if one.ratio is None else f"x {readable(one.ratio)}"
    return one.operation, _shape(one), _amount(one.quantity, one.measured.value), predicted, ratio


def _shape(one: Compared) -> str:
    return " ".join(f"{name}={value}" for name, value in one.shape.items())


def _amount(quantity: str, value: float) -> str:
    if quantity == "seconds":
        return in_units(value, SECONDS)
    return f"{in_units(value, BYTES)}/s" if quantity == "bytes_per_s" else in_units(value, BYTES)


def _outlook(found: LaunchCheck) -> str:
    before, after = found.estimate.before, found.estimate.after
    lines = [f"  before: {_describe_outlook(before)}"]
    if after is not None:
        lines.append(f"  after:  {_describe_outlook(after)}")
    return "\n".join(["Estimate", *lines])


def _describe_outlook(outlook: Outlook) -> str:
    peak, usable = in_units(outlook.device_peak_bytes.value, BYTES), in_units(outlook.usable_bytes, BYTES)
    step = in_units(outlook.step_seconds.value, SECONDS)
    return f"{outlook.verdict}, {peak} of {usable}, {step} a step, MFU {outlook.mfu_fraction.value:.1%}"


def _depths(found: LaunchCheck) -> Iterator[str]:
    for one in found.depths:
        quantity = "seconds" if one.quantity == "step" else "bytes"
        predicted = "" if one.predicted is None else f", predicted {_amount(quantity, one.predicted)}"
        each = f"{_amount(quantity, one.each_layer)} a layer"
        yield f"  {one.quantity}: {_amount(quantity, one.measured)} at {one.layers} layers, {each}{predicted}"
