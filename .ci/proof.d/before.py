"""Seeded questions to an earlier version and to this one, side by side: statuses, errors and every number."""

import argparse
import asyncio
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
from attacks.record import leaves

from tests.api.asking import paged_items
from tests.house.source import ROOT

QUESTIONS = 2_000
AT_ONCE = 4
"""Questions that are asked at the same time."""
SHOWN = 8
"""Differences of each kind that are printed."""

QUESTION_PATHS = ("/v1/estimates", "/v1/check", "/v1/memory", "/v1/flops", "/v1/gpu-hours", "/v1/memory/timeline")
"""Operations whose body is a question."""
METRICS = ("gpu_hours", "cost_usd", "step_seconds", "device_peak_bytes", "mfu_fraction", "total_flop", "fits", "why")
MISTAKES = ("field", "misspelt", "text", "huge", "negative", "null", "name", "degree")
DEGREES = (1, 2, 4, 8)
OPTIONAL_FIELDS = (0, 0, 0, 1, 1, 2, 4)
"""How many optional fields of a part a question gives: many together are seldom legal."""
MISTAKE_SHARE = 0.15
"""Share of questions with a mistake."""
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    body: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.body or dict(self.query)}"


class Questions:
    """Requests drawn from the contract of the earlier version, the same for the same seed.

    Args:
        contract: its OpenAPI document
        models: names of models in its catalogue
        gpus: names of GPUs
        clusters: names of clusters
        seed: which questions
    """

    def __init__(
        self, contract: dict[str, Any], models: list[str], gpus: list[str], clusters: list[str], seed: int
    ) -> None:
        self._schemas, self._paths = contract["components"]["schemas"], contract["paths"]
        self._models, self._gpus, self._clusters = models, gpus, clusters
        self._random = Random(seed)  # noqa: S311 - repeatable

    def drawn(self, count: int) -> Iterator[Asked]:
        """So many requests of every kind, after one with each example of the contract.

        Args:
            count: how many are drawn

        Yields:
            the requests
        """
        yield from self._examples()
        for _ in range(count):
            yield self._request()

    def _examples(self) -> Iterator[Asked]:
        pure = (
            *QUESTION_PATHS,
            "/v1/compare",
            "/v1/sensitivity",
            "/v1/solve",
            "/v1/plans",
            "/v1/batch",
            "/v1/diagnose",
        )
        for path in pure:
            content = self._paths[path]["post"]["requestBody"]["content"]["application/json"]
            for example in content.get("examples", {}).values():
                yield Asked("POST", path, example["value"])

    def _request(self) -> Asked:
        choose = self._random
        question = self._question()
        forms = {
            self._whole: 55, self._flat: 15, self._compared: 6, self._varied: 8, self._solved: 5, self._planned: 3,
            self._batched: 8,
        }  # fmt: skip
        (form,) = choose.choices(list(forms), list(forms.values()))
        return form(question)

    def _whole(self, question: dict[str, Any]) -> Asked:
        return Asked("POST", self._random.choice(QUESTION_PATHS), question)

    def _flat(self, question: dict[str, Any]) -> Asked:
        path = self._random.choice(("/v1/estimates", *(f"/v1/cell/{metric}" for metric in METRICS)))
        return Asked("GET", path, query=_flat(question))

    def _compared(self, question: dict[str, Any]) -> Asked:
        rest = {name: part for name, part in question.items() if name not in {"cluster", "price"}}
        return Asked("POST", "/v1/compare", {"question": rest, "clusters": self._random.sample(self._clusters, 3)})

    def _varied(self, question: dict[str, Any]) -> Asked:
        vary = {"recipe.micro_batch": [1, 2, 4], "layout.tensor": self._random.sample((1, 2, 4, 8), 2)}
        return Asked("POST", "/v1/sensitivity", {"question": question, "vary": vary})

    def _solved(self, question: dict[str, Any]) -> Asked:
        unknown = self._random.choice(("recipe.micro_batch", "recipe.sequence_length", "cluster.gpus"))
        return Asked("POST", "/v1/solve", {"question": question, "unknown": unknown})

    def _planned(self, question: dict[str, Any]) -> Asked:
        cluster = {"gpu": self._random.choice(self._gpus), "gpus": 16}
        recipe = {**question["recipe"], "global_batch": 256}
        return Asked("POST", "/v1/plans", {**question, "recipe": recipe, "layout": {}, "cluster": cluster, "top": 3})

    def _batched(self, question: dict[str, Any]) -> Asked:
        several = [
            {"kind": self._random.choice(("memory", "flops")), "body": one} for one in (question, self._question())
        ]
        return Asked("POST", "/v1/batch", {"questions": several})

    def _question(self) -> dict[str, Any]:
        choose = self._random
        recipe = {"sequence_length": choose.choice((512, 2048, 4096, 8192, 32768)), **self._some("Recipe")}
        degrees = choose.sample(("tensor", "pipeline", "context", "expert"), choose.choice((0, 1, 1, 2)))
        layout = {**{axis: choose.choice(DEGREES) for axis in degrees}, **self._some("Layout")}
        question = {
            "model": choose.choice(self._models),
            "recipe": recipe,
            "layout": layout if choose.random() < 0.8 else {},
            "cluster": {"gpu": choose.choice(self._gpus), "gpus": choose.choice((1, 8, 16, 64, 512))},
        }
        if choose.random() < 0.5:
            question["price"] = {"usd_per_gpu_hour": round(choose.uniform(0.5, 9), 2)}
        if choose.random() < MISTAKE_SHARE:
            self._spoil(question, choose.choice(MISTAKES))
        return question

    def _some(self, name: str) -> dict[str, Any]:
        """Some optional fields of a part, with values that its schema takes."""
        properties = self._schemas[name]["properties"]
        required = set(self._schemas[name].get("required", ()))
        optional = [one for one in properties if one not in required]
        given = self._random.sample(optional, self._random.choice(OPTIONAL_FIELDS))
        return {one: self._value(properties[one]) for one in given}

    def _value(self, schema: dict[str, Any]) -> Any:
        choose = self._random
        if "$ref" in schema:
            return self._value(self._schemas[schema["$ref"].rpartition("/")[2]])
        if "anyOf" in schema:
            return self._value(choose.choice([one for one in schema["anyOf"] if one.get("type") != "null"]))
        if "enum" in schema or "const" in schema:
            return choose.choice(schema.get("enum", [schema.get("const")]))
        if schema.get("type") == "array":
            return [self._value(schema["items"]) for _ in range(choose.choice((1, 2)))]
        if schema.get("type") == "object":
            return {one: self._value(schema["properties"][one]) for one in schema.get("required", ())}
        return self._single(schema)

    def _single(self, schema: dict[str, Any]) -> Any:
        choose = self._random
        match schema.get("type"):
            case "boolean":
                return choose.random() < 0.5
            case "integer":
                return max(schema.get("minimum", 0), choose.choice((1, 1, 2, 4, 8, 64)))
            case "number":
                least = schema.get("minimum", schema.get("exclusiveMinimum", 0.0))
                most = schema.get("maximum", schema.get("exclusiveMaximum", 1e12))
                return choose.choice((least or most / 8, (least + most) / 2, most / 16 + least))
        return choose.choice(self._models)

    def _spoil(self, question: dict[str, Any], mistake: str) -> None:
        part = question[self._random.choice(("recipe", "layout", "cluster"))]
        name = self._random.choice(list(part) or ["tensor"])
        match mistake:
            case "field":
                part["no_such_field"] = 1
            case "misspelt":
                part[f"{name[:-1]}x"] = part.pop(name, 1)
            case "text":
                part[name] = "eight"
            case "huge":
                part[name] = 1 << 70
            case "negative":
                part[name] = -1
            case "null":
                part[name] = None
            case "name":
                question["model"] = f"{question['model'][:-2]}zz"
            case "degree":
                question["layout"] = {"tensor": 3, "pipeline": 7}


def _flat(question: Mapping[str, Any]) -> dict[str, Any]:
    """A question as a query: only what has one value."""
    parts = [part if isinstance(part, dict) else {name: part} for name, part in question.items()]
    pairs = {name: value for part in parts for name, value in part.items() if not isinstance(value, dict | list)}
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in pairs.items()}


@dataclass(frozen=True, slots=True)
class Answer:
    """The parts of an answer that both versions must agree in."""

    status: int
    errors: tuple[tuple[str, str], ...]
    """Code and pointer of each problem, in order."""
    numbers: Mapping[str, Any]
    """Numbers, true and false by their JSON pointer; the numbers of a text by their position."""


def read(response: httpx.Response) -> Answer:
    """Read the parts that both versions must agree in."""
    if "json" not in response.headers.get("content-type", ""):
        found = enumerate(NUMBER.findall(response.text))
        return Answer(response.status_code, (), {str(place): number for place, number in found})
    document = response.json()
    errors = document.get("errors", ()) if response.is_error else ()
    problems = [(one["code"], one.get("pointer", one.get("parameter", ""))) for one in errors]
    if response.is_error:
        return Answer(response.status_code, ((document["code"], ""), *sorted(problems)), {})
    numbers = {place: value for place, value in leaves(document) if isinstance(value, int | float)}
    return Answer(response.status_code, (), numbers)


@dataclass(slots=True)
class Differences:
    """Differences between the two versions, by kind."""

    statuses: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    compared: int = 0
    """Numbers that were compared."""
    answered: Counter[int] = field(default_factory=Counter)
    """Statuses of the earlier version."""
    unsteady: Counter[str] = field(default_factory=Counter)
    """Numbers that differ between two answers of the earlier version, by the part of the answer."""

    def note(self, asked: Asked, first: Answer, again: Answer, now: Answer) -> None:
        """Compare an answer of this version with two of the earlier one."""
        self.answered[first.status] += 1
        if first.status != now.status:
            self.statuses.append(f"{first.status} -> {now.status} {first.errors} -> {now.errors} {asked}")
        elif first.errors != now.errors:
            self.errors.append(f"{first.errors} -> {now.errors} {asked}")
        else:
            self._note_numbers(asked, first.numbers, again.numbers, now.numbers)

    def _note_numbers(
        self, asked: Asked, first: Mapping[str, Any], again: Mapping[str, Any], now: Mapping[str, Any]
    ) -> None:
        steady = {place for place in first.keys() | again.keys() if first.get(place) == again.get(place)}
        self.unsteady.update(place.split("/")[1] for place in (first.keys() | again.keys()) - steady if "/" in place)
        ours = now.keys() - (again.keys() - steady)
        self.compared += len(steady)
        wrong = [
            place
            for place in steady | (ours if steady == first.keys() else set())
            if first.get(place) != now.get(place)
        ]
        if wrong:
            told = ", ".join(f"{place} {first.get(place)} -> {now.get(place)}" for place in sorted(wrong)[:3])
            self.numbers.append(f"{len(wrong)} numbers: {told} {asked}")


@contextmanager
def served(source: Path) -> Iterator[str]:
    """The address of the service of some source tree, on a database of its own."""
    with tempfile.TemporaryDirectory(prefix="traincost-before-") as folder:
        environment = {
            **os.environ, "PYTHONPATH": str(source), "TRAINCOST_DATABASE_URL": f"sqlite:///{folder}/traincost.db",
            "TRAINCOST_REQUESTS_PER_MINUTE": "0",
        }  # fmt: skip
        words = [sys.executable, "-m", "service", "serve", "--port", "0", "--no-worker"]
        process = subprocess.Popen(words, cwd=source, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            found = next(
                (re.search(r"http://[\d.]+:\d+", line) for line in process.stdout or () if "http://" in line), None
            )
            if found is None:
                sys.exit(f"the service of {source} ended before it printed its address")
            yield found[0]
        finally:
            process.terminate()
            process.communicate(timeout=60)


async def compare(questions: list[Asked], before: str, now: str) -> Differences:
    """Ask everything of both, the earlier version twice."""
    found, turns = Differences(), asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(timeout=120) as http:

        async def one(address: str, asked: Asked) -> Answer:
            given = {"json": asked.body} if asked.method == "POST" else {"params": dict(asked.query)}
            return read(await http.request(asked.method, f"{address}{asked.path}", **given))

        async def ask(asked: Asked) -> None:
            async with turns:
                found.note(asked, *[await one(address, asked) for address in (before, before, now)])

        await asyncio.gather(*map(ask, questions))
    return found


def names_of(address: str, plural: str) -> list[str]:
    """The names of all rows of a list, in its order."""

    def ask(method: str, path: str, **request: Any) -> httpx.Response:
        return httpx.request(method, f"{address}{path}", **request).raise_for_status()

    return [item["slug"] for item in paged_items(ask, f"/v1/{plural}?limit=500")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", help="of the version before, as git names it")
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="traincost-source-")))
        packed = subprocess.run(["git", "archive", given.revision], cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S607 - the one that is on the path
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        before, now = stack.enter_context(served(folder)), stack.enter_context(served(ROOT))
        contract = httpx.get(f"{before}/openapi.json", timeout=60).json()
        models, gpus, clusters = (names_of(before, plural) for plural in ("models", "gpus", "clusters"))
        questions = [*Questions(contract, models, gpus, clusters, given.seed).drawn(given.questions)]
        found = asyncio.run(compare(questions, before, now))
    print(
        f"{len(questions)} requests to {given.revision} and to this version, answered "
        f"{dict(sorted(found.answered.items()))}: {len(found.statuses)} statuses and {len(found.errors)} lists of "
        f"errors differ, and numbers of {len(found.numbers)} answers; {found.compared} numbers compared, "
        f"{found.unsteady.total()} left out that differ between two answers of the version before "
        f"{dict(found.unsteady) or ''}"
    )
    for kind in (found.statuses, found.errors, found.numbers):
        print(*(line[:600] for line in kind[:SHOWN]), sep="\n")
    if found.statuses or found.errors or found.numbers:
        sys.exit("the versions differ")


if __name__ == "__main__":
    main()
