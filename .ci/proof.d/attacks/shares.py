"""Share links, streams of revoked keys, stored estimates, formulas in tables, a second server, the end of a stream."""

import csv
import io
import re
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import normalize

import httpx
from attacks.poisoning import GPU_BODY, TINY, records
from attacks.record import Report, expect
from attacks.service import QUESTION, Caller, HttpError, Service, Target, changed, serving

FAMILY, LINE = "shares", 5
HEARD_SECONDS = 1.0
"""Time within which a service hears of a revoked key."""
SLACK_SECONDS = 1.5
"""Allowance for a machine that is busy with other things."""
FORMULAS = (
    "=1+1", "+1+1", "-1+1", "@SUM(1)", "\uff1d1+1", "\uff0b1+1", "\uff0d1+1", "\uff20SUM(1)", "\ufe661+1", "\ufe621+1",
    "\ufe631+1", "\ufe6bSUM(1)", "\u207a1", "\u207c1", "\u208b1", " =1+1", "\t=1+1", "\u200b=1+1", "\ufeff=1+1",
    "\u3000\uff1d1", ";=1+1", "\u00a0=1+1", "\u2060\uff1d1", "\u00ad=1", "\u202e=1+1",
)  # fmt: skip


def opens(answer: httpx.Response) -> bool:
    """Whether a link opened something."""
    return answer.status_code == 200


def until(condition: Callable[[], object], seconds: float) -> float | None:
    """Seconds until a condition holds; None where it does not in time."""
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        if condition():
            return time.monotonic() - started
        time.sleep(0.05)
    return None


def revoke(service: Service, key: str) -> float:
    """Revoke a key by the command line; the moment at which that was done."""
    service.command("keys", "revoke", key.partition(".")[0])
    return time.monotonic()


def links(report: Report, service: Service) -> None:
    """Links are listed, revoked one by one and with their maker's key, and open nothing else."""
    alpha, beta = service.caller("alpha", "write"), service.caller("beta", "write")
    nobody = Caller(service.address)
    one = alpha.made("/v1/scenarios", {"name": "one", "question": QUESTION})["id"]
    two = alpha.made("/v1/scenarios", {"name": "two", "question": QUESTION})["id"]
    first, second = (alpha.made(f"/v1/scenarios/{one}/share", {"days": 5})["links"] for _ in range(2))
    addresses = list(first.values())
    token = re.search(r"share=([^&]+)", addresses[0])
    share = token[1] if token else ""
    with report.attempt(FAMILY, LINE, "a link opens its scenario without a key"):
        expect(all(opens(nobody.ask("GET", address)) for address in addresses), "a link does not open")
    with report.attempt(FAMILY, LINE, "a link opens no other scenario and no other operation"):
        for method, path in (
            ("GET", f"/v1/scenarios/{two}"), ("GET", "/v1/scenarios"), ("GET", f"/v1/scenarios/{one}/shares"),
            ("DELETE", f"/v1/scenarios/{one}"), ("PATCH", f"/v1/scenarios/{one}"),
            ("POST", f"/v1/scenarios/{one}/share"), ("GET", f"/v1/scenarios/{two}.xlsx"), ("GET", "/v1/prices"),
            ("POST", "/v1/estimates"), ("GET", "/v1/audit"),
        ):  # fmt: skip
            answer = nobody.ask(method, path, params={"share": share})
            expect(answer.status_code in (401, 403, 404), f"{method} {path}: {answer.status_code}")
    with report.attempt(FAMILY, LINE, "changed tokens open nothing"):
        parts = share.split(".")
        ends = [".".join([*parts[:1], str(4_000_000_000), *parts[2:]])] if len(parts) > 2 else []
        for text in (
            *ends,
            share[:-1],
            f"{share}A",
            share.swapcase(),
            f"9{share[1:]}",
            share[::-1],
            "",
            ".",
            "..",
            "9" * 5_000,
            f"{share}&share={share}",
        ):
            answer = nobody.get(f"/v1/scenarios/{one}", share=text)
            expect(answer.status_code in (400, 401, 403, 422), f"{text[:30]!r}: {answer.status_code}")
    with report.attempt(FAMILY, LINE, "links are listed to their owner, without what opens them"):
        listed = alpha.get(f"/v1/scenarios/{one}/shares")
        expect(listed.status_code == 200, f"the list is answered {listed.status_code}")
        items = listed.json()["items"]
        expect(len(items) == 2, f"{len(items)} links listed")
        expect(share not in listed.text, "the list shows the links themselves")
        expect(beta.get(f"/v1/scenarios/{one}/shares").status_code == 404, "another owner reads the list")
    with report.attempt(FAMILY, LINE, "a link is revoked, the other one still opens"):
        items = alpha.get(f"/v1/scenarios/{one}/shares").json()["items"]
        for item in items:
            path = f"/v1/scenarios/{one}/shares/{item['id']}"
            expect(beta.ask("DELETE", path).status_code == 404, "another owner revokes it")
            wrong = alpha.ask("DELETE", f"/v1/scenarios/{two}/shares/{item['id']}")
            expect(wrong.status_code == 404, f"revoked through another scenario: {wrong.status_code}")
        expect(opens(nobody.ask("GET", addresses[0])), "the link ended too early")
        revoked = alpha.ask("DELETE", f"/v1/scenarios/{one}/shares/{items[0]['id']}")
        expect(revoked.status_code == 204, f"answered {revoked.status_code}")
        still = [opens(nobody.ask("GET", address)) for address in (*first.values(), *second.values())]
        expect(sum(still) == len(first), f"{sum(still)} of {len(still)} addresses still open")
    with report.attempt(FAMILY, LINE, "links end with their maker's key, those of other keys stay"):
        maker = service.caller("alpha", "write")
        address = maker.made(f"/v1/scenarios/{two}/share", {"days": 5})["links"]
        stays = alpha.made(f"/v1/scenarios/{two}/share", {"days": 5})["links"]
        expect(all(opens(nobody.ask("GET", one)) for one in address.values()), "a link does not open")
        revoke(service, maker.key)
        took = until(
            lambda: not any(opens(nobody.ask("GET", one)) for one in address.values()), HEARD_SECONDS + SLACK_SECONDS
        )
        expect(took is not None, "the link of a revoked key still opens")
        expect(all(opens(nobody.ask("GET", one)) for one in stays.values()), "a link of another key ended too")
    with report.attempt(FAMILY, LINE, "links end with their scenario"):
        address = alpha.made(f"/v1/scenarios/{two}/share", {"days": 5})["links"]
        alpha.ask("DELETE", f"/v1/scenarios/{two}", headers={"If-Match": "*"})
        expect(not any(opens(nobody.ask("GET", one)) for one in address.values()), "a link outlives its scenario")


class Stream:
    """An event stream that is read until it ends."""

    def __init__(self, caller: Caller, method: str, path: str, body: Any = None) -> None:
        self._caller, self._request = caller, (method, path, body)
        self.status, self.text, self.ended_at = 0, "", 0.0
        self.fault = ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        method, path, body = self._request
        headers = {"accept": "text/event-stream"}
        try:
            with self._caller.http.stream(method, path, json=body, headers=headers, timeout=120) as answer:
                self.status = answer.status_code
                for part in answer.iter_text():
                    self.text += part
        except HttpError as error:
            self.fault = repr(error)
        self.ended_at = time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Whether it ended in time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


def begun(stream: Stream) -> bool:
    """Whether something came, or the stream ended."""
    return bool(stream.text or stream.ended_at)


def streams(report: Report, service: Service) -> None:
    """Streams of a revoked key end, whatever they stream."""
    alpha = service.caller("alpha", "write")
    asked = changed(QUESTION, model="smollm2-135m", recipe={"sequence_length": 2048}, layout={})
    check = alpha.made("/v1/launch-checks", {"question": asked, "probes": ["gemm"], "on": "any"})["id"]
    sweep = {
        "models": ["qwen3-0.6b"], "clusters": ["dgx-h100"],
        "recipes": [{"sequence_length": 4096, "training_tokens": 1e10}],
    }  # fmt: skip
    made = alpha.made("/v1/sweeps", sweep)["id"]
    plan = changed(
        QUESTION,
        model="llama-3.1-405b",
        layout={},
        cluster={"gpu": "h100", "gpus": 16_384},
        recipe={"sequence_length": 8192, "global_batch": 2048},
    )
    for name, method, path, body in (
        ("a launch check", "GET", f"/v1/launch-checks/{check}/events", None),
        ("a sweep", "GET", f"/v1/sweeps/{made}/events", None),
        ("a plan", "POST", "/v1/plans", plan),
    ):
        with report.attempt(FAMILY, LINE, f"the stream of {name} ends within a second of its key's end"):
            caller = service.caller("alpha", "read")
            stream = Stream(caller, method, path, body)
            expect(until(partial(begun, stream), 20) is not None, "the stream did not begin")
            moment = revoke(service, caller.key)
            ended = stream.wait(HEARD_SECONDS + SLACK_SECONDS)
            expect(stream.status == 200, f"answered {stream.status}: {stream.text[:160]}")
            expect(ended, f"still open {time.monotonic() - moment:.1f} s after its key was revoked")
    with report.attempt(FAMILY, LINE, "a worker whose key is revoked while it waits gets no job"):
        alpha.post(f"/v1/launch-checks/{check}/cancel")
        alpha.post(f"/v1/sweeps/{made}/cancel")
        worker = service.caller("alpha", "worker")
        found: list[httpx.Response] = []
        body = {
            "worker": "late",
            "kinds": ["launch-check"],
            "wait_seconds": 20,
            "capabilities": {"measures": True, "cpu_threads": 2},
        }
        thread = threading.Thread(target=lambda: found.append(worker.post("/v1/worker/claim", body)))
        thread.start()
        time.sleep(0.5)
        revoke(service, worker.key)
        time.sleep(HEARD_SECONDS + SLACK_SECONDS)
        alpha.made("/v1/launch-checks", {"question": asked, "probes": ["gemm"], "on": "any"})
        thread.join(30)
        expect(found and found[0].status_code != 200, "a revoked worker key was given a job")


def estimates(report: Report, service: Service) -> None:
    """A stored estimate is read by those who may read what it came from."""
    alpha, beta, admin = (service.caller(*words) for words in (("alpha", "write"), ("beta", "write"), ("ops", "admin")))
    secret = changed(QUESTION, price={"usd_per_gpu_hour": 1.2345})
    saved = {"name": "x", "question": changed(secret, layout={"tensor": 4})}
    launched = {"question": changed(secret, layout={"tensor": 8}), "probes": ["gemm"], "on": "any"}
    sources: dict[str, Callable[[], str]] = {
        "check": lambda: alpha.made("/v1/check", secret)["id"],
        "scenario": lambda: alpha.made("/v1/scenarios", saved)["links"]["estimate"].rpartition("/")[2],
        "launch check": lambda: alpha.made("/v1/launch-checks", launched)["estimate_id"],
    }
    for name, source in sources.items():
        with report.attempt(FAMILY, LINE, f"the estimate of a {name} is its owner's"):
            estimate = source()
            path = f"/v1/estimates/{estimate}"
            expect(
                until(partial(found_by, alpha, path), 10) is not None,
                f"its owner is answered {alpha.get(path).status_code}",
            )
            answer = beta.get(path)
            expect(answer.status_code == 404, f"another owner is answered {answer.status_code}")
            for other in ("/v1/launch-checks", "/v1/exports/sbatch", "/v1/estimates"):
                answer = beta.post(other, {"estimate_id": estimate})
                expect(
                    answer.status_code in (400, 403, 404, 422),
                    f"{other} of another owner is answered {answer.status_code}",
                )
            expect(admin.get(path).status_code == 200, f"an administrator is answered {admin.get(path).status_code}")
    with report.attempt(FAMILY, LINE, "who asked the same reads it too"):
        estimate = beta.made("/v1/check", secret)["id"]
        expect(
            until(lambda: beta.get(f"/v1/estimates/{estimate}").status_code == 200, 10) is not None, "it is not found"
        )
    with report.attempt(FAMILY, LINE, "a keyless reader and a worker read none"):
        for caller in (Caller(service.address), service.caller("alpha", "worker"), service.caller("alpha", "sheet")):
            expect(caller.get(f"/v1/estimates/{estimate}").status_code in (401, 403), "it is read")


def found_by(caller: Caller, path: str) -> bool:
    """Whether something is found."""
    return caller.get(path).status_code == 200


def slower(number: int, shape: Sequence[int]) -> float:
    """Seconds of a product that differ with a number."""
    return 1e-6 * (1 + number) * shape[0]


def dangerous(text: str) -> bool:
    """Whether a spreadsheet may take a cell for a formula, in whatever spelling of its first sign."""
    plain = normalize("NFKC", text).lstrip(" \t\r\n\u200b\ufeff\u2060\u00ad\u202e;,\u3000\u00a0")
    if not plain or plain[0] not in "=+-@":
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def formulas(report: Report, service: Service) -> None:
    """Texts that would be formulas, in every table that the owner is given."""
    alpha = service.caller("alpha", "write")
    for number, text in enumerate(FORMULAS):
        own = f"f{number}"
        for path, body in (
            ("/v1/scenarios", {"name": text, "note": text, "question": QUESTION}),
            ("/v1/models", {**TINY, "slug": f"{own}-model", "name": text, "note": text}),
            ("/v1/gpus", {**GPU_BODY, "slug": f"{own}-gpu", "name": text, "note": text, "vendor": text}),
            ("/v1/prices", {"provider": text, "gpu": "h100", "usd_per_gpu_hour": 2, "as_of": "2026", "note": text}),
            ("/v1/regions", {"slug": f"{own}-region", "name": text, "grid_kg_co2e_per_kwh": 0.3, "note": text}),
            ("/v1/measurements", {**records(text, partial(slower, number)), "source": text}),
        ):  # fmt: skip
            answer = alpha.post(path, body)
            if answer.status_code >= 500:
                report.note(f"shares: {path} with {text!r} was answered {answer.status_code}")
    comparison = {
        "question": QUESTION, "prices": [QUESTION["price"]],
        "clusters": [{"name": text, "cluster": QUESTION["cluster"]} for text in FORMULAS],
    }  # fmt: skip
    for plural in ("scenarios", "models", "gpus", "prices", "regions", "measurements", "catalogue/revisions"):
        with report.attempt(FAMILY, LINE, f"{plural} as CSV, XLSX: no cell is a formula"):
            judge_csv(alpha.get(f"/v1/{plural}.csv"))
            judge_book(alpha.get(f"/v1/{plural}.xlsx"))
    with report.attempt(FAMILY, LINE, "comparisons as CSV, XLSX: no cell is a formula"):
        answer = alpha.post("/v1/compare.csv", comparison)
        expect(answer.status_code in (200, 422), f"answered {answer.status_code}: {answer.text[:160]}")
        judge_csv(answer)
        judge_book(alpha.post("/v1/compare.xlsx", comparison))
    with report.attempt(FAMILY, LINE, "budgets of scenarios: names stay texts"):
        listed = alpha.get("/v1/scenarios", limit=1000).json()["items"]
        for item in [one for one in listed if one["name"] in FORMULAS]:
            for ending in (".xlsx", ".ods"):
                book = alpha.get(f"/v1/scenarios/{item['id']}{ending}")
                expect(book.status_code == 200, f"{ending}: {book.status_code}")
                for formula in formulas_in(book.content):
                    expect(
                        item["name"] not in formula,
                        f"{item['name']!r} stands in a formula: {around(formula, item['name'])}",
                    )


def around(text: str, word: str) -> str:
    """A word with what stands beside it."""
    place = text.find(word)
    return text[max(0, place - 60) : place + 60]


def judge_csv(answer: httpx.Response) -> None:
    """No cell of a CSV file is one that a spreadsheet computes."""
    if answer.status_code != 200:
        return
    for row in csv.reader(io.StringIO(answer.text)):
        for cell in row:
            expect(not dangerous(cell), f"a cell is {cell!r}")


def judge_book(answer: httpx.Response) -> None:
    """No sheet of a workbook holds a formula."""
    if answer.status_code == 200:
        found = formulas_in(answer.content)
        expect(not found, f"{len(found)} formulas, such as {found[:1]}")


def formulas_in(content: bytes) -> Sequence[str]:
    """Formulas of a workbook, XLSX or ODS."""
    found: list[str] = []
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        for name in book.namelist():
            if name.endswith(".xml"):
                text = book.read(name).decode("utf-8", "replace")
                found += re.findall(r"<f[ >][^<]*", text) + re.findall(r'table:formula="([^"]*)"', text)
    return found


def second_server(report: Report, target: Target) -> None:
    """Two servers on one SQLite file: what one wrote the other finds, or it does not start and says so."""
    with (
        TemporaryDirectory(prefix="traincost-attack-") as name,
        serving(target) as first,
        report.attempt(FAMILY, LINE, "a second server on one SQLite file"),
    ):
        second = Service(target, Path(name), TRAINCOST_DATABASE_URL=first.url)
        writer = first.caller("alpha", "write")
        try:
            second.start()
        except RuntimeError as error:
            expect("another" in str(error) or "SQLite" in str(error), f"it does not say why: {str(error)[-300:]}")
            return
        try:
            missed = list(missed_reads(writer, Caller(second.address, writer.key)))
            expect(not missed, f"{len(missed)} of 80 reads missed what was just written, such as {missed[:2]}")
        finally:
            second.stop()


def missed_reads(writer: Caller, reader: Caller) -> Iterator[str]:
    """What a second server does not find right after the first has answered."""
    for number in range(20):
        model = writer.made("/v1/models", {**TINY, "slug": f"second-{number}"})["slug"]
        scenario = writer.made("/v1/scenarios", {"name": f"s{number}", "question": QUESTION})["id"]
        estimate = writer.made("/v1/check", changed(QUESTION, price={"usd_per_gpu_hour": 3 + number}))["id"]
        for path in (f"/v1/models/{model}", f"/v1/scenarios/{scenario}", f"/v1/estimates/{estimate}"):
            if reader.get(path).status_code != 200:
                yield path.rpartition("/")[0]
        if reader.post("/v1/estimates", changed(QUESTION, model=model)).status_code != 200:
            yield "a question about the model"


def last_event(report: Report, target: Target) -> None:
    """A plan's stream ends with an event when the service is told to end."""
    plan = changed(
        QUESTION,
        model="llama-3.1-405b",
        layout={},
        cluster={"gpu": "h100", "gpus": 16_384},
        recipe={"sequence_length": 8192, "global_batch": 2048},
    )
    with serving(target) as service, report.attempt(FAMILY, LINE, "a plan's stream ends with an event on SIGTERM"):
        stream = Stream(service.caller("alpha", "read"), "POST", "/v1/plans", plan)
        expect(
            until(lambda: "data:" in stream.text, 30) is not None, f"no event came: {stream.status} {stream.text[:100]}"
        )
        expect(not stream.ended_at, "the search was over before SIGTERM; it proves nothing")
        service.terminate()
        expect(stream.wait(20), "the stream did not end")
        events = [part for part in stream.text.split("\n\n") if part.strip()]
        names = [found[1] for part in events if (found := re.search(r"^event: ?(\S+)", part, re.MULTILINE))]
        report.note(f"shares: the plan's stream ended with {names[-2:]} {stream.fault or 'in order'}")
        expect(stream.text.endswith("\n\n"), "the last event is cut off")
        expect(names and names[-1] != "progress", f"the last event is {names[-1:]}, as if more followed")


def run(target: Target, report: Report, seed: int) -> None:  # noqa: ARG001 - nothing here is random
    """Attack links, streams, stored estimates and tables."""
    with serving(target) as service:
        links(report, service)
        streams(report, service)
        estimates(report, service)
        formulas(report, service)
    second_server(report, target)
    last_event(report, target)
