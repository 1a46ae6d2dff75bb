"""A number is the same in the JSON of an estimate, in a cell, in a table and in XML."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any
from xml.etree import ElementTree

from service.catalogue import Catalogue
from service.features.scenarios.budgets import flat_question
from tests.api.asking import Ask

PATHS: Mapping[str, str] = {
    "parameters.total": "parameters.total",
    "total_flop": "flop.total_flop",
    "6n": "flop.conventions.6n",
    "device_peak_bytes": "memory.device_peak_bytes",
    "step_seconds": "step.step_seconds",
    "mfu_fraction": "step.mfu_fraction",
    "gpu_hours": "totals.gpu_hours",
    "days": "totals.days",
    "cost_usd": "totals.cost_usd",
}
"""By the name that cells give a number, where it stands in the JSON; a list would be in an order of its own."""

TAGS = {"6n": "flop.conventions.6n"}
"""Names of elements, which begin with no digit."""

DENSE = ("llama-3.1-8b", "llama-3.1-70b", "qwen2.5-7b", "llama-2-7b", "qwen3-8b")
SPARSE = ("mixtral-8x7b",)
ENDS = ("value", "low", "high")


@dataclass(slots=True)
class Compared:
    """What came of it."""

    cases: int = 0
    wrong: list[tuple[Any, ...]] = field(default_factory=list)
    """Question, form, number, what the form says, what the JSON says."""


def questions(count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Different questions, the same each time."""
    choose = Random(seed)  # noqa: S311 - repeatable
    for _ in range(count):
        yield {
            "model": choose.choice((*DENSE, *SPARSE)),
            "recipe": {
                "sequence_length": choose.choice((512, 1024, 4096, 8192)) + 64 * choose.randrange(8),
                "micro_batch": choose.choice((1, 2)),
                "training_tokens": choose.uniform(1e9, 2e13),
                "recompute": choose.choice(("none", "selective", "full")),
            },
            "layout": {"tensor": choose.choice((1, 2, 4)), "zero_stage": choose.choice((0, 1, 2, 3))},
            "cluster": {"gpu": choose.choice(("h100", "a100-sxm4-80gb", "b200")), "gpus": choose.choice((16, 64, 512))},
            "price": {"usd_per_gpu_hour": choose.uniform(0.5, 9)},
        }


def compared(ask: Ask, catalogue: Catalogue, count: int, seed: int = 1) -> Compared:
    """Ask so many questions in every form."""
    found, choose = Compared(), Random(seed)  # noqa: S311 - repeatable
    for question in questions(count, seed):
        whole = ask("POST", "/v1/estimates", json=question)
        assert whole.status_code == 200, whole.text
        said = {name: _ends(whole.json(), path) for name, path in PATHS.items()}
        flat = {**flat_question(question, catalogue), "metrics": ";".join(PATHS)}
        table = ask("GET", "/v1/cell/table.csv", params=flat)
        rows = {row["metric"]: row for row in csv.DictReader(io.StringIO(table.text, newline=""))}
        root = ElementTree.fromstring(ask("GET", "/v1/cell/estimate.xml", params=flat).text)  # noqa: S314 - our own
        elements = {element.tag: {"value": element.text or "", **element.attrib} for element in root}
        del flat["metrics"]
        name = choose.choice(list(PATHS))
        cell = ask("GET", f"/v1/cell/{name}", params=flat).text
        _judge(found, (question, "cell", name), cell, said[name]["value"])
        for name, ends in said.items():
            for end in ENDS:
                _judge(found, (question, "csv", f"{name}.{end}"), rows[name][end], ends[end])
                _judge(
                    found, (question, "xml", f"{name}.{end}"), elements[TAGS.get(name, name)].get(end, ""), ends[end]
                )
    return found


def _ends(document: Any, path: str) -> dict[str, float | None]:
    """A number and the ends of its interval; an exact one has none."""
    for step in path.split("."):
        document = document[step]
    return (
        {end: document[end] for end in ENDS}
        if isinstance(document, dict)
        else {"value": document, "low": None, "high": None}
    )


def _judge(found: Compared, place: tuple[Any, ...], text: str, number: float | None) -> None:
    """Sheets take 15 digits, so that many are told; a number that is not known is an empty text."""
    found.cases += 1
    is_same = text == "" if number is None else text != "" and float(text) == float(f"{number:.15g}")
    if not is_same:
        found.wrong.append((*place, text, number))
