"""Matrix products on this processor in two runs: spread of the medians, and error of held-out shapes."""

import csv
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from service.calibration.kernels import observed_rows, scored_products
from service.calibration.records import ProbeTask
from service.catalogue import shipped_catalogue
from service.estimator.question import Model

MODELS = ("gpt2-124m", "smollm2-135m", "qwen3-0.6b")
TOKENS = (256, 512, 1024)
LOGIT_TOKENS = (32,)
LEAST_FLOP, MOST_FLOP = 0.5e9, 3e9
REPEATS = 20
MOST_SECONDS = 900.0
MOST_NOISE_FRACTION = 0.10
MOST_ERROR_FRACTION = 0.15
COLUMNS = (
    "run", "name", "operation", "rows", "columns", "inner", "dtype", "copies", "repeats", "low", "value", "high",
    "device", "threads", "instructions", "memory_bytes", "torch", "as_of",
)  # fmt: skip


def weights(model: Model) -> dict[str, tuple[int, int]]:
    """Input and output width of each linear layer."""
    hidden, inner = model.hidden_size, model.intermediate_size or 4 * model.hidden_size
    head = model.head_dim or hidden // model.num_attention_heads
    heads, shared = head * model.num_attention_heads, head * (model.num_key_value_heads or model.num_attention_heads)
    split = {"q": (hidden, heads), "kv": (hidden, shared)} if shared < heads else {"qkv": (hidden, 3 * heads)}
    return {**split, "o": (heads, hidden), "up": (hidden, inner), "down": (inner, hidden)}


def products() -> list[dict[str, Any]]:
    """Every product of those layers of a size that is worth it, no shape twice."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    catalogue = shipped_catalogue()
    for slug in MODELS:
        model = catalogue.models[slug].model
        if model is None:
            raise SystemExit(f"{slug} has no shape")
        layers = [(name, tokens, shape) for name, shape in weights(model).items() for tokens in TOKENS]
        layers += [("head", tokens, (model.hidden_size, model.vocab_size)) for tokens in LOGIT_TOKENS]
        for name, tokens, (wide, out) in layers:
            for product in of_layer(f"{slug}.{name}", tokens, wide, out):
                found.setdefault(tuple(product[key] for key in ("operation", "rows", "columns", "inner")), product)
    return [one for one in found.values() if LEAST_FLOP <= flop(one) <= MOST_FLOP]


def of_layer(name: str, tokens: int, wide: int, out: int) -> Iterator[dict[str, Any]]:
    """The forward product of one layer, and both backward ones."""
    for operation, rows, columns, inner in (
        ("forward", tokens, out, wide),
        ("input_gradient", tokens, wide, out),
        ("weight_gradient", wide, out, tokens),
    ):
        shape = {"rows": rows, "columns": columns, "inner": inner, "dtype": "fp32", "copies": 1}
        yield {"operation": operation, "name": name, **shape}


def flop(product: Mapping[str, Any]) -> float:
    return 2.0 * int(product["rows"]) * int(product["columns"]) * int(product["inner"])


def measured(asked: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the worker's own probe measures of them, in a process of its own."""
    task = ProbeTask(
        probe="gemm", parameters={"products": list(asked), "repeats": REPEATS}, timeout_seconds=MOST_SECONDS
    )
    with tempfile.TemporaryDirectory(prefix="traincost-products-") as folder:
        file = Path(folder) / "task.json"
        file.write_text(json.dumps(asdict(task)), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "service.worker.probe_process", str(file), folder], check=True)
        record = json.loads((Path(folder) / "record.json").read_text(encoding="utf-8"))
    if record["reason"]:
        raise SystemExit(record["reason"])
    told = record["environment"]
    environment = {name: told[name] for name in ("device", "threads", "memory_bytes", "torch")}
    environment["instructions"] = " ".join(told["instructions"])
    today = {"as_of": datetime.now(UTC).date().isoformat()}
    return [{**one, **environment, **today} for one in record["measurements"]]


def write(runs: Sequence[Sequence[Mapping[str, Any]]], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows_of(runs))


def rows_of(runs: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    return [{"run": number, **row, **row["shape"]} for number, rows in enumerate(runs, start=1) for row in rows]


def noise_fraction(runs: Sequence[Sequence[Mapping[str, Any]]]) -> float:
    """Mean difference of the two medians of a product, over the first."""
    return statistics.fmean(abs(two["value"] / one["value"] - 1) for one, two in zip(*runs, strict=True))


def main(words: Sequence[str]) -> int:
    asked = products()
    runs = [measured(asked) for _ in range(2)]
    for one, two in zip(*runs, strict=True):
        shape = one["shape"]
        sizes = f"{shape['rows']} x {shape['columns']} x {shape['inner']}"
        rates = " ".join(f"{flop(shape) / row['value'] / 1e9:7.1f}" for row in (one, two))
        print(f"{shape['name']:22} {one['operation']:15} {sizes:22} {flop(shape) / 1e9:5.2f} GFLOP {rates} GFLOP/s")
    noise, fewest = noise_fraction(runs), min(row["repeats"] for rows in runs for row in rows)
    print(f"{len(asked)} products, medians of at least {fewest} repeats, two runs: {noise:.1%} apart on average")
    judged = scored_products(observed_rows(rows_of(runs)))
    if judged is None:
        raise SystemExit("too few products were measured")
    print(
        f"predicted by constants of the other half of the shapes: {judged.held_out_fraction:.1%} off on average, "
        f"{judged.before_fraction:.1%} before calibration; two runs are {judged.noise_fraction:.1%} apart"
    )
    if words and noise <= MOST_NOISE_FRACTION:  # a table of a busy machine says little
        write(runs, Path(words[0]))
    is_far = judged.held_out_fraction > MOST_ERROR_FRACTION
    return int(noise > MOST_NOISE_FRACTION or fewest < REPEATS or is_far)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
