"""Peaks of live tensors in real steps, counted by torch's profiler, beside their predictions."""

import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path

import torch

from service.calibration.observations import CountedPeak, live_step_bytes
from tests.worker.step_cases import MODELS, counted_peaks, model_of, resolved_step

DEPTHS = (1, 2)
CASES = (*((slug, "fp32", 256, 2) for slug in MODELS), ("smollm2-135m", "bf16-mixed", 64, 1))
"""Model, precision, sequence length and micro batch."""
MOST_OFF_FRACTION = 0.03


def counted(case: tuple[str, str, int, int], depth: int) -> list[tuple[CountedPeak, float]]:
    """The counted peaks of the first and the third step, each beside its prediction."""
    slug, precision, length, batch = case
    step = resolved_step(model_of(slug, depth), precision=precision, sequence_length=length, micro_batch=batch)
    recipe = step.question.recipe
    predicted, found = live_step_bytes(step), []
    source = (
        f"own measurement: step probe, memory events of torch.profiler, torch {torch.__version__}, "
        f"{torch.get_num_threads()} x86-64 cores"
    )
    for number, peak in counted_peaks(step).items():
        row = CountedPeak(
            model=slug,
            layers=depth,
            sequence_length=length,
            micro_batch=batch,
            precision=precision,
            attention=recipe.attention,
            optimizer=recipe.optimizer,
            step=number,
            live_bytes_peak=peak,
            source=source,
            as_of=datetime.now(UTC).date().isoformat(),
        )
        found.append((row, predicted.of_step(number)))
    return found


def main(words: Sequence[str]) -> int:
    rows = [one for case in CASES for depth in DEPTHS for one in counted(case, depth)]
    for row, predicted in rows:
        off = predicted / row.live_bytes_peak - 1
        run = f"{row.model:13} {row.precision:10} {row.layers} layers, step {row.step}"
        print(f"{run}: {row.live_bytes_peak:>14,} bytes, {off:+.3%}")
    largest = max(abs(predicted / row.live_bytes_peak - 1) for row, predicted in rows)
    print(f"{len(rows)} peaks, the farthest prediction {largest:.3%} off; bar {MOST_OFF_FRACTION:.0%}")
    if words:
        with Path(words[0]).open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, [one.name for one in fields(CountedPeak)], lineterminator="\n")
            table.writeheader()
            table.writerows(asdict(row) for row, _ in rows)
    return int(largest > MOST_OFF_FRACTION)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
