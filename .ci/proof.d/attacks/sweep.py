"""Every operation of the contract with ids of another owner, and other ways to see or do what a key does not allow."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx
from attacks.poisoning import GPU_BODY, TINY, records
from attacks.record import Report, expect
from attacks.service import QUESTION, Caller, Target, changed, serving

FAMILY, LINE = "sweep", 0
MARK, SLUG = "zq7note", "zq7slug"
"""Words in whatever alpha makes, and in the names of its rows; no one else may ever read them."""
BODIES: Sequence[Any] = ({}, [], None, {"a": {"b": [1, None, "x"]}}, "x", 0)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the contract."""

    method: str
    path: str
    scope: str | None
    body: Any
    media: str


def operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    """What the contract lists, each with its first example body."""
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            if method not in ("get", "post", "put", "patch", "delete"):
                continue
            content = told.get("requestBody", {}).get("content", {})
            media = next(iter(content), "")
            examples = content.get(media, {}).get("examples", {})
            body = next((one["value"] for one in examples.values() if "value" in one), None)
            yield Operation(method.upper(), path, told.get("x-scope"), body, media)


class Victim:
    """What alpha made, by the name of the path parameter that reads it."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        note = {"note": MARK}
        caller.made("/v1/models", {**TINY, "slug": f"{SLUG}-model", "name": MARK, **note})
        self.gpu = caller.post("/v1/gpus", {**GPU_BODY, "slug": f"{SLUG}-gpu", "name": MARK, **note})
        caller.made("/v1/clusters", {"slug": f"{SLUG}-cluster", "gpu": "h100", "gpus": 16, "name": MARK, **note})
        rates = [{"gpu": "h100-sxm5-80gb", "usd_per_gpu_hour": 1.5}]
        caller.made("/v1/rate-cards", {"slug": f"{SLUG}-card", "rates": rates, "name": MARK, **note})
        caller.made("/v1/regions", {"slug": f"{SLUG}-region", "grid_kg_co2e_per_kwh": 0.31, "pue": 1.25, **note})
        price = {"provider": f"{SLUG}-cloud", "gpu": "h100", "usd_per_gpu_hour": 2.5, "as_of": "2026", **note}
        self.price = caller.made("/v1/prices", price)["id"]
        self.scenario_body = {"name": MARK, "note": MARK, "question": changed(QUESTION, model=f"{SLUG}-model")}
        made = caller.post("/v1/scenarios", self.scenario_body, headers={"Idempotency-Key": "key-of-alpha"})
        self.scenario, self.scenario_etag = made.json()["id"], caller.get(made.headers["location"]).headers["etag"]
        caller.made("/v1/scenarios", {**self.scenario_body, "name": f"{MARK} 2"})
        body = records(MARK, lambda shape: 1e-3 * shape[0] / 1024) | {"source": MARK}
        self.measurements = caller.made("/v1/measurements", body)["ids"]
        chosen = {"gpu": "h100-sxm5-80gb", "runs": [MARK], "probes": ["gemm"], "note": MARK}
        self.calibration = caller.made("/v1/calibrations", chosen)["id"]
        question = changed(QUESTION, model=f"{SLUG}-model", layout={})
        self.estimate = caller.made("/v1/check", question)["id"]
        self.check = caller.made("/v1/launch-checks", {"question": question, "probes": ["gemm"], "on": "any"})["id"]
        sweep = {
            "name": MARK, "models": [f"{SLUG}-model"], "clusters": ["dgx-h100"],
            "recipes": [{"sequence_length": 4096, "training_tokens": 1e10}],
        }  # fmt: skip
        self.sweep = caller.made("/v1/sweeps", sweep)["id"]
        self.view = caller.made("/v1/estimates", QUESTION)["versions"]["catalogue"]

    def path(self, path: str) -> Iterator[str]:
        """The paths of an operation that speak of what alpha made."""
        names = {
            "scenario_id": [self.scenario], "estimate_id": [self.estimate], "measurement_id": self.measurements[:1],
            "calibration_id": [self.calibration], "check_id": [self.check], "sweep_id": [self.sweep],
            "job_id": [self.check], "metric": ["gpu_hours"], "target": ["sbatch"], "scheduler": ["kueue"],
            "token": ["none"], "file_name": ["trace.json.gz"], "format": ["torchtitan"],
        }  # fmt: skip
        rows = {"models": "model", "gpus": "gpu", "clusters": "cluster", "rate-cards": "card", "regions": "region"}
        listed = path.removeprefix("/v1/").partition("/")[0]
        names["name"] = [self.price] if listed == "prices" else [f"{SLUG}-{rows.get(listed, 'x')}"]
        parameters = re.findall(r"{(\w+)}", path)
        first = {name: names.get(name, ["none"])[0] for name in parameters}
        yield path.format_map(first)


def leaks(answer: httpx.Response, sent: str) -> list[str]:
    """Words of alpha's in an answer to someone else, but for those of the request itself."""
    text = f"{answer.text} {dict(answer.headers)}"
    return [word for word in (MARK, SLUG) if word in text and word not in sent]


def everything(report: Report, victim: Victim, callers: Mapping[str, Caller]) -> None:
    """Every operation, by every kind of key, with another owner's ids."""
    document = callers["admin"].get("/openapi.json").json()
    mine = victim.caller
    before = {path: mine.get(path).text for path in victim_paths(victim)}
    for operation in operations(document):
        name = f"{operation.method} {operation.path}"
        with report.attempt(FAMILY, LINE, f"{name} by {len(callers) - 1} strangers") as attempt:
            for who, caller in callers.items():
                if who != "admin" and not operation.path.endswith("/events"):
                    for answer, sent in answers_of(caller, operation, victim):
                        attempt.worst_status = max(attempt.worst_status, answer.status_code)
                        found = leaks(answer, sent)
                        expect(
                            not found, f"{who} reads {found} at {sent[:120]}: {answer.status_code} {excerpt(answer)}"
                        )
                        expect(
                            answer.status_code < 500 or answer.status_code == 503,
                            f"{who}: {answer.status_code} at {sent[:160]}",
                        )
                        says_why = "/v1/cell/" in operation.path and "key" in answer.text  # cells show errors as texts
                        allowed = scoped(who, operation.scope) or answer.status_code >= 400 or says_why
                        expect(allowed, f"{who} is answered {answer.status_code}, the contract wants {operation.scope}")
    for path, text in before.items():
        with report.attempt(FAMILY, LINE, f"{path.split('/')[2]} of alpha as before"):
            expect(mine.get(path).text == text, f"{path} changed")


def excerpt(answer: httpx.Response) -> str:
    """Where alpha's word stands."""
    place = max(answer.text.find(MARK), answer.text.find(SLUG), 0)
    return answer.text[max(0, place - 80) : place + 60]


def scoped(who: str, scope: str | None) -> bool:
    """Whether a kind of key has a scope."""
    held = {
        "nobody": (),
        "reader": ("read", "sheet"),
        "writer": ("read", "write", "sheet"),
        "sheet": ("sheet",),
        "worker": ("worker",),
    }
    return scope is None or scope in held[who]


def answers_of(caller: Caller, operation: Operation, victim: Victim) -> Iterator[tuple[httpx.Response, str]]:
    """Answers to an operation with its example, with wrong bodies, and in place of alpha; with what was sent."""
    for path in victim.path(operation.path):
        sent = [operation.body] if operation.method in ("POST", "PUT", "PATCH") else [None]
        if operation.media == "application/json":
            sent += BODIES
        for body in sent:
            text = body if isinstance(body, str) and operation.media != "application/json" else json.dumps(body)
            content = text.encode() if operation.media else b""
            headers = {"content-type": operation.media} if operation.media else {}
            if operation.method in ("PUT", "PATCH", "DELETE"):
                headers["If-Match"] = "*"
            answer = caller.ask(operation.method, path, content=content, headers=headers)
            yield answer, f"{operation.method} {path} {text[:400]}"


def victim_paths(victim: Victim) -> tuple[str, ...]:
    """What alpha made."""
    return (
        f"/v1/models/{SLUG}-model", f"/v1/gpus/{SLUG}-gpu", f"/v1/clusters/{SLUG}-cluster",
        f"/v1/rate-cards/{SLUG}-card", f"/v1/prices/{victim.price}", f"/v1/scenarios/{victim.scenario}",
        f"/v1/measurements/{victim.measurements[0]}",
        f"/v1/calibrations/{victim.calibration}", f"/v1/launch-checks/{victim.check}", f"/v1/sweeps/{victim.sweep}",
        f"/v1/estimates/{victim.estimate}",
    )  # fmt: skip


def oracles(report: Report, victim: Victim, beta: Caller) -> None:
    """What tells whether another owner has something."""
    for path in victim_paths(victim):
        with report.attempt(FAMILY, LINE, f"{path.split('/')[2]}: another's id is answered as one that does not exist"):
            none = re.sub(r"[^/]+$", lambda found: found[0][:-3] + "000", path)
            mine, other = beta.get(path), beta.get(none)
            same = (mine.status_code, shape(mine, path)) == (other.status_code, shape(other, none))
            expect(same, f"{mine.status_code} {mine.text[:160]} against {other.status_code} {other.text[:160]}")
    with report.attempt(FAMILY, LINE, "no 304 and no 412 of another's ETag"):
        path = f"/v1/scenarios/{victim.scenario}"
        for name in ("If-None-Match", "If-Match"):
            for method in ("GET", "DELETE", "PATCH"):
                answer = beta.ask(
                    method, path, headers={name: victim.scenario_etag, "content-type": "application/json"}
                )
                expect(answer.status_code in (400, 404, 422, 428), f"{method} with {name}: {answer.status_code}")
    with report.attempt(FAMILY, LINE, "another's Idempotency-Key gives nothing of theirs"):
        answer = beta.post(
            "/v1/scenarios", {"name": "b", "question": QUESTION}, headers={"Idempotency-Key": "key-of-alpha"}
        )
        expect(
            answer.status_code == 201 and victim.scenario not in answer.text,
            f"{answer.status_code} {answer.text[:200]}",
        )
    for plural in ("models", "gpus", "clusters", "rate-cards", "regions"):
        with report.attempt(FAMILY, LINE, f"{plural}: no suggestion of another's name"):
            answer = beta.get(f"/v1/{plural}/zq7slu-{plural[:-1]}")
            found = leaks(answer, "")
            expect(not found, f"{answer.text[:200]}")
    with report.attempt(FAMILY, LINE, "no suggestion of another's name in a question"):
        for part in (
            {"model": "zq7slu-model"},
            {"cluster": "zq7slu-cluster"},
            {"cluster": {"gpu": "zq7slu-gpu", "gpus": 8}},
        ):
            answer = beta.post("/v1/estimates", changed(QUESTION, **part))
            expect(not leaks(answer, ""), answer.text[:200])
    with report.attempt(FAMILY, LINE, "another's row answers no question"):
        answer = beta.post("/v1/estimates", changed(QUESTION, model=f"{SLUG}-model"))
        expect(answer.status_code in (404, 422), f"answered {answer.status_code}")


def names(report: Report, beta: Caller) -> None:
    """A name that another owner took; made last, for the attacker then has a row of that name."""
    with report.attempt(FAMILY, LINE, "a name that another owner took is free, or its refusal names no one"):
        answer = beta.post("/v1/models", {**TINY, "slug": f"{SLUG}-model", "note": "b"})
        expect("alpha" not in answer.text and MARK not in answer.text, answer.text[:200])
        expect(answer.status_code == 201, f"answered {answer.status_code}: another owner's row shows by its refusal")
        beta.ask("DELETE", f"/v1/models/{SLUG}-model", headers={"If-Match": "*"})


def shape(answer: httpx.Response, path: str) -> str:
    """An answer without ids."""
    text = re.sub(r'"request_id": ?"[^"]*"', "", answer.text)
    return text.replace(path.rpartition("/")[2], "ID").replace(path, "PATH")


def views(report: Report, victim: Victim, beta: Caller) -> None:
    """Revisions and pages of another owner's view."""
    with report.attempt(FAMILY, LINE, "`rev` of another owner's view answers nothing of it"):
        for question in (QUESTION, changed(QUESTION, model=f"{SLUG}-model")):
            for path in ("/v1/estimates", "/v1/check", "/v1/compare.csv"):
                body = question if "compare" not in path else {
                    "question": question, "clusters": [question["cluster"]], "prices": [question["price"]],
                }  # fmt: skip
                answer = beta.post(f"{path}?rev={victim.view}", body)
                expect(not leaks(answer, json.dumps(body)), answer.text[:200])
                expect(answer.status_code in (400, 404, 410, 422), f"{path}: answered {answer.status_code}")
    with report.attempt(FAMILY, LINE, "`owner` picks a row for administrators alone"):
        for path in (f"/v1/models/{SLUG}-model", f"/v1/gpus/{SLUG}-gpu", f"/v1/prices/{victim.price}"):
            answer = beta.get(path, owner="alpha")
            expect(answer.status_code in (400, 403, 404, 422), f"{path}: {answer.status_code}")
            expect(not leaks(answer, path), f"{path}: {excerpt(answer)}")
    with report.attempt(FAMILY, LINE, "revisions of the catalogue show no rows of others"):
        for path in ("/v1/catalogue/revisions", "/v1/catalogue/revisions.csv"):
            answer = beta.get(path, limit=1000) if path.endswith("s") else beta.get(path)
            expect(not leaks(answer, ""), f"{path}: {excerpt(answer)}")
    cursor = victim.caller.get("/v1/scenarios", limit=1).json()["next_cursor"]
    with report.attempt(FAMILY, LINE, "a cursor of another owner's list"):
        answer = beta.get("/v1/scenarios", limit=1, cursor=cursor)
        expect(not leaks(answer, ""), answer.text[:200])
        for text in (
            cursor[:-4],
            cursor[::-1],
            "%00",
            "AAAA",
            "e30",
            "W10",
            "bnVsbA",
            "eyJhIjogMX0",
            "WzFlOTk5XQ",
            "9" * 300,
        ):
            for path in ("/v1/scenarios", "/v1/prices", "/v1/measurements", "/v1/sweeps", "/v1/calibrations"):
                answer = beta.get(path, limit=1, cursor=text)
                expect(answer.status_code < 500, f"{path} with cursor {text[:20]!r}: {answer.status_code}")
                expect(not leaks(answer, ""), answer.text[:200])
    with report.attempt(FAMILY, LINE, "filters and sorting by owner"):
        for path in (
            "/v1/scenarios",
            "/v1/measurements",
            "/v1/sweeps",
            "/v1/calibrations",
            "/v1/models",
            "/v1/prices",
            "/v1/launch-checks",
        ):
            for query in (
                {"owner": "alpha"},
                {"sort": "owner"},
                {"owner": "*"},
                {"owner": ""},
                {"owner": "alpha,beta"},
            ):
                answer = beta.get(path, limit="1000", **query)
                expect(answer.status_code < 500, f"{path} {query}: {answer.status_code}")
                expect(not leaks(answer, ""), f"{path} {query}: {excerpt(answer)}")


def doors(report: Report, victim: Victim, callers: Mapping[str, Caller], keys: Mapping[str, str]) -> None:
    """Roads round the checks of keys and paths."""
    reader, address = callers["reader"], str(callers["reader"].http.base_url).rstrip("/")
    with report.attempt(FAMILY, LINE, "the audit log by other spellings of its path"):
        for path in (
            "//v1/audit",
            "/v1//audit",
            "/v1/audit/",
            "/V1/audit",
            "/v1/%61udit",
            "/v1/audit%00",
            "/v1/./audit",
            "/v1/x/../audit",
            "/v1/audit;a",
            "/v1/audit%2f",
            "/v1/audit?scope=admin",
            "/v1/audit.csv",
        ):
            answer = reader.ask("GET", f"{address}{path}")
            expect(answer.status_code in (301, 307, 308, 400, 401, 403, 404, 405), f"{path}: {answer.status_code}")
    with report.attempt(FAMILY, LINE, "headers that claim another method, path or caller"):
        for headers in (
            {"X-HTTP-Method-Override": "DELETE"}, {"X-Original-URL": "/v1/audit"}, {"X-Rewrite-URL": "/v1/audit"},
            {"X-Forwarded-User": "alpha"}, {"X-Owner": "alpha"}, {"Forwarded": "for=127.0.0.1"},
            {"X-Forwarded-For": "127.0.0.1"},
        ):  # fmt: skip
            answer = reader.ask("GET", f"/v1/scenarios/{victim.scenario}", headers=headers)
            expect(answer.status_code == 404, f"{headers}: {answer.status_code}")
    with report.attempt(FAMILY, LINE, "a key in the query counts for sheets alone"):
        for path in ("/v1/prices", f"/v1/scenarios/{victim.scenario}", "/v1/audit", "/metrics"):
            for name in ("reader", "writer"):
                answer = callers["nobody"].get(path, key=keys[name])
                expect(
                    answer.status_code in (400, 401, 403, 422), f"{path} with the {name}'s key: {answer.status_code}"
                )
    with report.attempt(FAMILY, LINE, "tokens that are none"):
        for text in (
            "x",
            "tck_",
            "Bearer",
            keys["reader"][:-1],
            keys["reader"] + "=",
            keys["reader"].upper(),
            "é" * 10,
            "a" * 7_000,
            f"{keys['reader'].split('.')[0]}.",
            "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbHBoYSJ9.",
        ):
            sent = [(b"authorization", f"Bearer {text}".encode())]
            answer = callers["nobody"].ask("GET", "/v1/prices", headers=sent)
            expect(answer.status_code in (400, 401, 431), f"{text[:20]!r}: {answer.status_code}")
    for path in (
        "/metrics",
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/docs",
        "/",
        "/v1/choices",
        "/v1/workers",
        "/v1/accuracy/totals",
    ):
        with report.attempt(FAMILY, LINE, f"{path} tells nothing of owners and keys"):
            for who in ("nobody", "reader"):
                text = callers[who].get(path).text
                found = [
                    word for word in (MARK, SLUG, victim.scenario, victim.check, victim.sweep, "tck_0") if word in text
                ]
                found += [name for name, key in keys.items() if key.split(".")[0] in text]
                expect(not found, f"{who} reads {found}")


def noise(report: Report, callers: Mapping[str, Caller], rng: Random) -> None:
    """Questions with random parts replaced: refusals, never failures."""
    odd: Sequence[Any] = (
        None,
        -1,
        0,
        1e308,
        5e-324,
        "",
        "x" * 300,
        [],
        {},
        [[]],
        True,
        2**63,
        10**30,
        "\u0000",
        "\ud7ff",
        [1] * 300,
        {"a": 1},
        0.1,
        "1",
        "h100",
    )
    paths = (
        "/v1/estimates",
        "/v1/check",
        "/v1/plans",
        "/v1/solve",
        "/v1/compare",
        "/v1/sensitivity",
        "/v1/memory/timeline",
        "/v1/diagnose",
        "/v1/exports/sbatch",
    )
    for path in paths:
        with report.attempt(FAMILY, LINE, f"{path}: 60 bodies with random parts") as attempt:
            for _ in range(60):
                body = json.loads(json.dumps(whole(path)))
                for _ in range(rng.randint(1, 3)):
                    place = rng.choice(list(places(body)))
                    put(body, place, deepcopy(rng.choice(odd)))
                answer = callers["reader"].post(path, body)
                attempt.worst_status = max(attempt.worst_status, answer.status_code)
                expect(answer.status_code < 500, f"{answer.status_code} for {json.dumps(body)[:500]}")


def whole(path: str) -> dict[str, Any]:
    """A body that a route takes."""
    if path == "/v1/solve":
        return {
            "unknown": "cluster.gpus",
            "question": changed(QUESTION, cluster={"gpu": "h100"}),
            "limits": {"days": 14},
        }
    if path == "/v1/compare":
        return {"question": QUESTION, "clusters": [QUESTION["cluster"]], "prices": [QUESTION["price"]]}
    if path == "/v1/sensitivity":
        return {"question": QUESTION, "vary": {"recipe.micro_batch": [2, 4]}}
    if path == "/v1/diagnose":
        return {
            **QUESTION,
            "message": "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB",
        }
    return QUESTION


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside a body."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield (*before, name)
        yield from places(part, (*before, name))


def put(body: Any, place: Sequence[Any], value: Any) -> None:
    """Replace what stands at a place."""
    for name in place[:-1]:
        body = body[name]
    body[place[-1]] = value


def run(target: Target, report: Report, seed: int) -> None:
    """Try everything that a valid key can reach."""
    with serving(target) as service:
        victim = Victim(service.caller("alpha", "write"))
        scopes = {"reader": "read", "writer": "write", "sheet": "sheet", "worker": "worker"}
        callers = {name: service.caller("beta", scope) for name, scope in scopes.items()}
        keys = {name: caller.key for name, caller in callers.items()}
        callers |= {"nobody": Caller(service.address), "admin": service.caller("ops", "admin")}
        oracles(report, victim, callers["writer"])
        views(report, victim, callers["writer"])
        doors(report, victim, callers, keys)
        everything(report, victim, callers)
        names(report, callers["writer"])
        noise(report, callers, Random(seed))  # noqa: S311 - repeatable
        with report.attempt(FAMILY, LINE, "the service kept running, its log without keys and tracebacks"):
            expect(service.answers(), "the service does not answer")
            found = [name for name, key in keys.items() if key.partition(".")[2] in service.log]
            expect(not found, f"the log holds keys of {found}")
            expect("Traceback" not in service.log, service.log[service.log.find("Traceback") :][:600])
