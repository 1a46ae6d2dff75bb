"""Records the service's answers to the examples of its contract.

`python -m tests.contract.record` keeps the answers where the contract shows them, those alone whose form is new.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from service.api.openapi import JSON
from service.features.calibrations.routes import EXAMPLE_ID as CALIBRATION_ID
from service.features.scenarios.routes import SCENARIO_ID
from service.features.workers.leases import EXAMPLE_LEASE, JOB_ID
from service.jobs.jobs import NewJob, create_jobs
from service.openapi.document import RECORDED, contract, successes, types_of
from tests.api.asking import ADMISSION_TOKEN, Ask
from tests.contracts import resolved, whole_contract
from tests.fixtures import asking, one_by_one, running
from tests.live import DOCUMENTED

Document = dict[str, Any]

LONGEST = 10_000
"""Characters of an answer from which on each of its lists of objects is shown by its first item."""

MADE = {SCENARIO_ID: ("Scenario", "id"), CALIBRATION_ID: ("Calibration", "id")}
"""What stands in the contract for an id, and the answer that tells the id of what was just made."""

KNOWN = re.compile(r"{(measurement|calibration)_id}|/shares$")
"""Paths of what the examples themselves make."""

JOB = NewJob(
    id=JOB_ID,
    kind="launch-check",
    payload={"tasks": [{"probe": "context", "parameters": {}, "timeout_seconds": 20.0, "ranks": 1}]},
    timeout_seconds=120.0,
    priority=1000,
)
"""What the worker of the examples gets, whatever else there is to do."""

LINES = 3
"""Lines by which a text is shown."""

ASKED_BY = {"ToolAnswer": {"method": "megatron-theoretical"}}
"""What the query has to say for an answer of a type, where a route gives several."""


def recorded(folder: Path) -> dict[str, dict[str, Any]]:
    """An answer of each type, and the beginning of each text, asked for by the examples of the contract."""
    answers: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    with running(f"sqlite:///{folder / 'traincost.db'}") as app, asking(app) as together:
        document, ask = whole_contract(contract(app)), one_by_one(together)
        create_jobs(app.state.engine, [JOB])
        for path, method, operation in _writing_first(document):
            for media_type, content in successes(operation):
                if media_type == JSON:
                    new = [name for name in types_of(content["schema"]) if name not in answers]
                    for name in new:
                        answer = sent(
                            ask,
                            document,
                            (path, method),
                            accept=JSON,
                            query=ASKED_BY.get(name),
                            made=answers,
                        )
                        answers[name] = _shown(answer.json())
                elif content["schema"].get("format") != "binary":
                    text = sent(ask, document, (path, method), accept=media_type).text
                    texts[operation["operationId"]] = _beginning(text)
    answers["JobClaim"]["job"]["lease"] = EXAMPLE_LEASE
    return {"answers": dict(sorted(answers.items())), "texts": dict(sorted(texts.items()))}


def sent(
    ask: Ask,
    document: Document,
    place: tuple[str, str],
    *,
    accept: str,
    query: dict[str, str] | None = None,
    made: Mapping[str, Any] | None = None,
) -> httpx.Response:
    """The answer to the request that the examples of an operation make together."""
    path, method = place
    request = request_of(document, place)
    request["params"] |= query or {}
    request["headers"] |= {"accept": accept, "host": DOCUMENTED}
    for example, (kind, name) in MADE.items():
        request["path"] = request["path"].replace(example, (made or {}).get(kind, {}).get(name, example))
    if made and "JobClaim" in made and "content" in request:
        request["content"] = request["content"].replace(EXAMPLE_LEASE, made["JobClaim"]["job"]["lease"])
    answer = ask(method.upper(), **request)
    assert answer.is_success, (path, answer.text)
    return answer


def request_of(document: Document, place: tuple[str, str]) -> dict[str, Any]:
    """The request that the examples of an operation make together; of a list one row is asked for."""
    path, method = place
    operation = document["paths"][path][method]
    given: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
    for parameter in (resolved(document, one) for one in operation.get("parameters", ())):
        if "example" in parameter:
            given[parameter["in"]][parameter["name"]] = parameter["example"]
        elif parameter["name"] == "limit":
            given["query"]["limit"] = 1
        given["query"] |= next(iter(resolved(document, parameter.get("schema", {})).get("examples", ())), {})
    if "token" in given["path"]:
        given["path"]["token"] = ADMISSION_TOKEN
    headers: dict[str, str] = given["header"]
    request: dict[str, Any] = {"path": path.format(**given["path"]), "params": given["query"], "headers": headers}
    for media_type, content in list(operation.get("requestBody", {}).get("content", {}).items())[:1]:
        value = next(iter(content["examples"].values()))["value"] if "examples" in content else ""
        request["content"] = value if isinstance(value, str) else json.dumps(value)
        headers["content-type"] = media_type
    return request


def _writing_first(document: Document) -> Iterator[tuple[str, str, Document]]:
    """Lists and rows are shown as they are once something was written."""
    every = [(path, method, one) for path, methods in document["paths"].items() for method, one in methods.items()]
    yield from (one for one in every if one[1] == "post")
    yield from (one for one in every if one[1] == "get" and ("_id}" not in one[0] or KNOWN.search(one[0])))


def _shown(answer: Any) -> Any:
    return answer if len(json.dumps(answer)) < LONGEST else _shortened(answer)


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shortened(inner) for name, inner in value.items()}
    if isinstance(value, list):
        kept = value[:1] if value and isinstance(value[0], dict) else value
        return [_shortened(inner) for inner in kept]
    return value


def _beginning(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:LINES])


def form_of(value: Any) -> Any:
    """The names in an answer at every depth; of a list those of its first item."""
    if isinstance(value, dict):
        return {name: form_of(inner) for name, inner in value.items()}
    return [form_of(inner) for inner in value[:1]] if isinstance(value, list) else None


def given_examples() -> dict[str, dict[str, Any]]:
    """The examples that the service shows."""
    answers = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDED.glob("*.json"))}
    return {
        "answers": answers,
        "texts": {path.stem: path.read_text(encoding="utf-8") for path in sorted(RECORDED.glob("*.txt"))},
    }


def main() -> None:
    """Keep each answer of a form that is not shown yet."""
    with tempfile.TemporaryDirectory() as folder:
        found = recorded(Path(folder))
    given = given_examples()["answers"]
    for name, answer in found["answers"].items():
        if name not in given or form_of(given[name]) != form_of(answer):
            text = json.dumps(answer, indent=1, ensure_ascii=False) + "\n"
            (RECORDED / f"{name}.json").write_text(text, encoding="utf-8")
    for name, text in found["texts"].items():
        if not (RECORDED / f"{name}.txt").exists():
            (RECORDED / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
