"""Two owners and an administrator: no action of one owner changes a digit of the other's answers; a promotion does."""

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import httpx
from attacks.record import Report, expect, leaves
from attacks.service import QUESTION, Caller, Service, Target, changed, serving
from attacks.worker import ENVIRONMENT, FalseWorker

FAMILY, LINE = "poisoning", 2
PEAK_FLOP_PER_S = 989.4e12
"""Dense bf16 peak of an H100 SXM."""
A100 = {"device": "NVIDIA A100-SXM4-80GB", "memory_bytes": 85_899_345_920}
A100_TIMES = 989.4 / 312
"""Peak of an H100 over that of an A100."""
SHAPES = (
    (8192, 6144, 4096), (8192, 4096, 4096), (8192, 28672, 4096), (8192, 4096, 14336), (4096, 6144, 4096),
    (2048, 4096, 14336), (4096, 4096, 4096), (4096, 28672, 4096), (16384, 6144, 4096), (16384, 4096, 4096),
    (16384, 28672, 4096), (16384, 4096, 14336), (2048, 6144, 4096), (2048, 28672, 4096), (8192, 8192, 8192),
    (4096, 8192, 8192),
)  # fmt: skip
TINY = {
    "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
}  # fmt: skip
GPU_BODY = {"memory_bytes": 96e9, "memory_bytes_per_s": 3e12, "bf16_flop_per_s": 8e15, "board_watts": 500}
LISTS = ("models", "gpus", "clusters", "prices", "rate-cards", "regions")
REQUEST_ID = re.compile(r'"request_id": ?"[^"]*"')
WATCHED = (
    "estimate on h100-sxm5-80gb",
    "gpu-hours by provider",
    "compare",
    "estimate on a100-sxm4-80gb",
    "own model",
)
"""Answers that are compared after each attack; all are compared after each kind."""
SETTLE_SECONDS = 1.5
"""Longest time after which another process or thread has seen a change."""

Answers = dict[str, str]


def product(shape: Sequence[int], seconds: float) -> dict[str, Any]:
    """The measurement of one matrix product."""
    rows, columns, inner = shape
    return {
        "operation": "forward",
        "shape": {"rows": rows, "columns": columns, "inner": inner, "dtype": "bf16", "copies": 1},
        "quantity": "seconds", "value": seconds, "low": seconds, "high": seconds, "repeats": 20,
    }  # fmt: skip


def at_peak(shape: Sequence[int]) -> float:
    """Seconds of a matrix product at the peak rate."""
    return 2.0 * shape[0] * shape[1] * shape[2] / PEAK_FLOP_PER_S


def records(run: str, seconds: Callable[[Sequence[int]], float], **environment: Any) -> dict[str, Any]:
    """What POST /v1/measurements takes: sixteen rows, their times chosen by a function."""
    one = {
        "probe": "gemm", "status": "succeeded", "seconds": 2.5, "environment": {**ENVIRONMENT, **environment},
        "measurements": [product(shape, seconds(shape)) for shape in SHAPES],
    }  # fmt: skip
    return {"source": "a probe", "run": run, "records": [one]}


def plain(answer: httpx.Response) -> str:
    """Status and text of an answer, without the request's id."""
    return f"{answer.status_code} {REQUEST_ID.sub('', answer.text)}"


def questions(price: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Questions of every kind: a name, a path and a body."""
    for gpu in ("h100-sxm5-80gb", "a100-sxm4-80gb", "h200", "mi300x", "b200"):
        yield f"estimate on {gpu}", "/v1/estimates", changed(QUESTION, cluster={"gpu": gpu, "gpus": 8})
    priced = changed(QUESTION, price=price)
    yield "gpu-hours by provider", "/v1/gpu-hours", priced
    yield "explained estimate", "/v1/estimates?explain=true", priced
    yield "estimate on a100-sxm4-80gb", "/v1/estimates", changed(QUESTION, cluster="dgx-h100")
    yield "memory", "/v1/memory", QUESTION
    yield "flops", "/v1/flops", QUESTION
    yield "timeline", "/v1/memory/timeline", QUESTION
    yield "check", "/v1/check", priced
    yield (
        "batch",
        "/v1/batch",
        {"questions": [{"kind": "estimate", "body": QUESTION}, {"kind": "check", "body": priced}]},
    )
    comparison = {
        "question": {name: QUESTION[name] for name in ("model", "recipe", "layout")},
        "clusters": [{"gpu": gpu, "gpus": 8} for gpu in ("h100", "a100-sxm4-80gb")],
        "prices": [{"provider": "*"}],
    }
    yield "compare", "/v1/compare", comparison
    yield "compare as CSV", "/v1/compare.csv", comparison
    yield "plans", "/v1/plans", changed(QUESTION, layout={}, top=3)
    varied = {
        "question": QUESTION,
        "vary": {"recipe.recompute": ["selective", "full"], "cluster.gpu": ["a100-sxm4-80gb"]},
    }
    yield "sensitivity", "/v1/sensitivity", varied
    unknown = {"unknown": "recipe.micro_batch", "question": changed(QUESTION, recipe={"sequence_length": 8192})}
    yield "solve", "/v1/solve", unknown
    yield "export", "/v1/exports/sbatch", QUESTION
    yield "own model", "/v1/estimates", changed(QUESTION, model="alpha-model")
    yield "own GPU", "/v1/estimates", changed(QUESTION, cluster={"gpu": "alpha-gpu", "gpus": 8})


class Owner:
    """The owner whose answers may not change, with something of each kind."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        prices = caller.get("/v1/prices", gpu="h100-sxm5-80gb", limit=1000).json()["items"]
        named = ("provider", "region", "price_model")
        for self.price in prices:  # one that the shipped rows answer without doubt
            self.wanted = {name: self.price[name] for name in named}
            if caller.post("/v1/gpu-hours", changed(QUESTION, price=self.wanted)).status_code == 200:
                break
        caller.made("/v1/models", {**TINY, "slug": "alpha-model"})
        caller.made("/v1/gpus", {**GPU_BODY, "slug": "alpha-gpu"})
        caller.made(
            "/v1/rate-cards", {"slug": "alpha-card", "rates": [{"gpu": "h100-sxm5-80gb", "usd_per_gpu_hour": 1.5}]}
        )
        body = records("alpha-run", lambda shape: 1.4 * at_peak(shape))
        self.measurements = caller.made("/v1/measurements", body)["ids"]
        chosen = {"gpu": "h100-sxm5-80gb", "runs": ["alpha-run"], "probes": ["gemm"], "note": "alpha's own"}
        self.calibration = caller.made("/v1/calibrations", chosen)["id"]
        caller.made(f"/v1/calibrations/{self.calibration}/promote")
        self.scenario = caller.made("/v1/scenarios", {"name": "alpha's", "question": QUESTION})["id"]
        self.estimate = caller.made("/v1/check", QUESTION)["id"]
        asked = changed(QUESTION, model="smollm2-135m", recipe={"sequence_length": 2048}, layout={})
        self.launch_check = caller.made("/v1/launch-checks", {"question": asked, "probes": ["gemm"], "on": "any"})["id"]
        sweep = {
            "models": ["qwen3-0.6b"], "clusters": ["dgx-h100"],
            "recipes": [{"sequence_length": 4096, "training_tokens": 1e10}],
        }  # fmt: skip
        self.sweep = caller.made("/v1/sweeps", sweep)["id"]

    def watched(self) -> Answers:
        """The few answers that are compared after each attack."""
        asked = [one for one in questions(self.wanted) if one[0] in WATCHED]
        paths = ("/v1/measurements?limit=1000", "/v1/catalogue/revisions", "/v1/calibrations")
        return {name: plain(self.caller.post(path, body)) for name, path, body in asked} | {
            path: plain(self.caller.get(path)) for path in paths
        }

    def answers(self, *, whole: bool = False) -> Answers:
        """What the owner is answered."""
        found = {name: plain(self.caller.post(path, body)) for name, path, body in questions(self.wanted)}
        paths = [
            *(f"/v1/{name}?limit=1000" for name in LISTS), "/v1/measurements?limit=1000", "/v1/calibrations",
            "/v1/catalogue/revisions", f"/v1/calibrations/{self.calibration}/drift",
            f"/v1/calibrations/{self.calibration}", f"/v1/scenarios/{self.scenario}",
            f"/v1/estimates/{self.estimate}", f"/v1/launch-checks/{self.launch_check}", f"/v1/sweeps/{self.sweep}",
            "/v1/cell/gpu_hours?model=llama-3.1-8b&gpu=h100&gpus=8&sequence_length=8192&training_tokens=1e12",
            f"/v1/cell/cost_usd?model=llama-3.1-8b&gpu=h100&gpus=8&sequence_length=8192&training_tokens=1e12"
            f"&provider={self.price['provider']}&region={self.price['region']}&price_model={self.price['price_model']}",
            "/v1/choices", "/v1/exports", "/v1/gpus/h100", "/v1/models/llama3.1-8b", "/v1/gpus/no-such-gpu",
            "/v1/models/beta-secret-modle",
        ]  # fmt: skip
        paths += ["/v1/accuracy", "/v1/accuracy/totals"] if whole else []
        return found | {path: plain(self.caller.ask("GET", path, timeout=180)) for path in paths}


def numbers(document: Any) -> dict[str, float]:
    """Every number of a document, by its JSON pointer."""
    return {
        place: float(value)
        for place, value in leaves(document)
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def first_change(before: str, after: str) -> str:
    """The number that changed most, or the text where the first change stands."""
    try:
        old, new = (numbers(json.loads(text[4:].replace("{,", "{").replace(",}", "}"))) for text in (before, after))
    except ValueError:
        old, new = {}, {}
    changes = [(abs(math.log(abs(new[name] / old[name]))), name) for name in old if old[name] * new.get(name, 0.0) > 0]
    if changes and max(changes)[0] > 0:
        name = max(changes)[1]
        return f"{name} {old[name]:g} became {new[name]:g}"
    place = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(after))
    start = max(0, place - 60)
    return f"...{before[start : place + 40]!r} became {after[start : place + 40]!r}"


def differences(before: Answers, after: Answers) -> list[str]:
    """Answers that changed, with the place of the first change."""
    changed_names = [name for name, text in after.items() if name in before and before[name] != text]
    return [f"{name}: {first_change(before[name], after[name])}" for name in changed_names]


class Unchanged:
    """Compares the owner's answers after each attack with those before; one change is reported once."""

    def __init__(self, report: Report, owner: Owner) -> None:
        self.report, self.owner = report, owner
        first, again = owner.answers(whole=True), owner.answers(whole=True)
        unsteady = differences(first, again)
        report.note(f"poisoning: {len(first)} answers of the owner watched, {len(unsteady)} differ by themselves")
        for text in unsteady:
            report.note(f"   differs by itself: {text[:300]}")
        self.before = {name: text for name, text in again.items() if first[name] == text}
        wrong = [name for name, text in self.before.items() if not text.startswith("2") and "no-such" not in name]
        report.note(f"poisoning: not answered with 200 before any attack: {', '.join(wrong) or 'none'}")

    def after(self, name: str, attack: Callable[[], object]) -> None:
        """Make an attack and compare the watched answers."""
        with self.report.attempt(FAMILY, LINE, name):
            try:
                attack()
            finally:
                changes = self._changes(self.owner.watched())
            expect(not changes, f"{len(changes)} answers changed: {'; '.join(changes[:2])}")

    def after_all(self, name: str, *, whole: bool = False) -> None:
        """Compare every answer."""
        with self.report.attempt(FAMILY, LINE, f"every answer after {name}"):
            time.sleep(SETTLE_SECONDS)
            changes = self._changes(self.owner.answers(whole=whole))
            expect(not changes, f"{len(changes)} answers changed: {'; '.join(changes[:3])}")

    def _changes(self, now: Answers) -> list[str]:
        changes = differences(self.before, now)
        self.before |= {name: text for name, text in now.items() if name in self.before}
        return changes


def refused(answer: httpx.Response, *statuses: int) -> None:
    """Expect a refusal, never a failure of the service."""
    expected = statuses or (400, 401, 403, 404, 405, 409, 412, 422, 428)
    expect(answer.status_code in expected, f"answered {answer.status_code}: {answer.text[:200]}")


def poison(
    beta: Caller, run: str, seconds: Callable[[Sequence[int]], float], scope: Any = None, **device: Any
) -> httpx.Response:
    """Import invented rows, fit a calibration on them and promote it."""
    beta.made("/v1/measurements", records(run, seconds, driver=run, **device))
    chosen = {"device": device.get("device", ENVIRONMENT["device"]), "runs": [run], "probes": ["gemm"], "note": run}
    fitted = beta.post("/v1/calibrations", chosen)
    if fitted.status_code >= 300:
        return fitted
    return beta.post(f"/v1/calibrations/{fitted.json()['id']}/promote", scope)


def calibrating(watch: Unchanged, beta: Caller, rng: Random) -> None:
    """Calibrations fitted on invented rows."""

    def noise(shape: Sequence[int]) -> float:
        return at_peak(shape) * 10 ** rng.uniform(0.1, 3.5)

    watch.after("16 rows at 50 times peak, fitted and promoted", lambda: (
        refused(poison(beta, "beta-fast", lambda shape: at_peak(shape) / 50))
    ))  # fmt: skip
    watch.after("16 rows at a thousandth of peak, fitted and promoted", lambda: (
        poison(beta, "beta-slow", lambda shape: 1000 * at_peak(shape))
    ))  # fmt: skip
    watch.after("16 rows of noise are promoted only within an error that means something", lambda: (
        refused(poison(beta, "beta-noise", noise))
    ))  # fmt: skip
    watch.after("noise again, better than the noise before", lambda: (
        refused(poison(beta, "beta-noise-2", lambda shape: noise(shape) / 2))
    ))  # fmt: skip
    for scope in ({"scope": "everyone"}, {"scope": "all"}, {"owner": "alpha"}):
        watch.after(f"promotion with {scope}", partial(promoted_with, beta, scope))
    for name, factor in (("50 times peak", 0.02), ("a half of peak", 2.0), ("a thousandth of peak", 1000.0)):
        watch.after(f"16 rows at {name} of a GPU that the owner never calibrated", partial(other_device, beta, factor))


def promoted_with(beta: Caller, scope: Mapping[str, str]) -> None:
    """A writer asks for a promotion that is not a writer's to make."""
    refused(poison(beta, f"beta {scope}", lambda shape: 1.7 * at_peak(shape), dict(scope)))


def other_device(beta: Caller, factor: float) -> None:
    """A calibration of an A100, whose answers rest on published rates alone."""
    poison(beta, f"beta a100 {factor}", lambda shape: A100_TIMES * factor * at_peak(shape), None, **A100)


def measuring(watch: Unchanged, beta: Caller) -> None:
    """Values that no device can give are refused or quarantined."""
    values: Mapping[str, float] = {
        "above peak": 0.5, "50 times peak": 0.02, "below the launch floor": 1e-9, "negative": -1.0, "zero": 0.0,
        "denormal": 5e-324, "smallest normal": 2.3e-308, "a year": 3.2e7, "largest": 1.7e308,
    }  # fmt: skip
    for name, value in values.items():
        relative = name in ("above peak", "50 times peak")

        def attack(name: str = name, value: float = value, relative: bool = relative) -> None:  # noqa: FBT001
            body = records(f"beta {name}", lambda shape: value * at_peak(shape) if relative else value, driver=name)
            answer = beta.post("/v1/measurements", body)
            expect(answer.status_code < 500, f"answered {answer.status_code}")
            if answer.status_code < 300:
                kept = answer.json()
                expect(
                    kept["quarantined"] == len(kept["ids"]), f"{kept['quarantined']} of {len(kept['ids'])} quarantined"
                )

        watch.after(f"import of {name}", attack)
        text = "device,dtype,rows,columns,inner,seconds\n" + "\n".join(
            f"NVIDIA H100 80GB HBM3,bf16,{a},{b},{c},{value * at_peak((a, b, c)) if relative else value!r}"
            for a, b, c in SHAPES
        )

        def table(text: str = text) -> None:
            answer = beta.ask(
                "POST", "/v1/measurements/imports/gemm-csv", content=text, headers={"content-type": "text/plain"}
            )
            expect(answer.status_code < 500, f"answered {answer.status_code}")
            if answer.status_code < 300:
                kept = answer.json()
                expect(
                    kept["quarantined"] == len(kept["ids"]), f"{kept['quarantined']} of {len(kept['ids'])} quarantined"
                )

        watch.after(f"gemm table with {name}", table)


SPELLINGS: Mapping[str, Callable[[str], str]] = {
    "as it is": str,
    "in capitals": str.upper,
    "with underscores": lambda name: name.replace("-", "_"),
    "with spaces": lambda name: name.replace("-", " "),
    "fullwidth": lambda name: "".join(chr(ord(one) + 0xFEE0) if one.isalnum() else one for one in name),
    "mathematical letters": lambda name: "".join(
        chr(0x1D41A + ord(one) - 97) if one.islower() else one for one in name
    ),
    "without separators": lambda name: name.replace("-", ""),
    "with a zero-width space": lambda name: name[:2] + "\u200b" + name[2:],
    "with a soft hyphen": lambda name: name[:2] + "\u00ad" + name[2:],
    "with a dash of another kind": lambda name: name.replace("-", "\u2011"),
    "with a provider before it": lambda name: f"aws {name}",
    "with a trailing full stop": lambda name: f"{name}.",
}
NAMED = {
    "models": ("llama-3.1-8b", {**TINY}),
    "gpus": ("h100-sxm5-80gb", GPU_BODY),
    "clusters": ("dgx-h100", {"gpu": "a100-sxm4-80gb", "gpus": 8}),
    "regions": ("aws:us-east-1", {"grid_kg_co2e_per_kwh": 0.0001, "pue": 1.0}),
}


def naming(watch: Unchanged, beta: Caller) -> None:
    """Custom rows under names that shipped rows answer to."""
    number = 0
    for plural, (name, body) in NAMED.items():
        for spelling, spelled in SPELLINGS.items():
            number += 1

            def attack(
                number: int = number, plural: str = plural, body: Any = body, taken: str = spelled(name)
            ) -> None:
                before = plain(beta.get(f"/v1/{plural}/{name_of[plural]}"))
                for parts in ({"slug": taken}, {"slug": f"beta-{number}", "aliases": [taken]}):
                    answer = beta.post(f"/v1/{plural}", {**body, **parts})
                    expect(answer.status_code < 500, f"answered {answer.status_code}")
                    now = plain(beta.get(f"/v1/{plural}/{name_of[plural]}"))
                    expect(now == before, f"{parts} changed what the shipped name means: {now[:200]}")
                    found = beta.get(f"/v1/{plural}/{taken}")
                    if answer.status_code < 300 and found.status_code == 200:
                        resolved = found.json()
                        same = resolved["owner"] != "catalogue" or parts["slug"] == resolved["slug"]
                        expect(same, f"{parts} is taken and answered by a shipped row: {resolved['slug']}")

            watch.after(f"{plural} named {name} {spelling}", attack)


name_of = {plural: name for plural, (name, _) in NAMED.items()}


def pricing(watch: Unchanged, beta: Caller) -> None:
    """Prices under a shipped provider's name."""
    price = watch.owner.price
    cheap = {
        **{name: price[name] for name in ("provider", "gpu", "region", "price_model")},
        "usd_per_gpu_hour": 0.01, "as_of": "2099-01-01",
    }  # fmt: skip
    watch.after("a price of 0.01 USD under a shipped provider", partial(posted, beta, "/v1/prices", cheap))
    exact = {
        name: price[name]
        for name in ("provider", "gpu", "region", "price_model", "instance_type", "gpu_count", "as_of")
    }
    for name, parts in {
        "of the same date": exact, "of today": {"as_of": "2026-11-24"},
        "in capitals": {"provider": price["provider"].upper()},
        "with a space": {"provider": f" {price['provider']} "}, "verified": {"verified": "yes", "as_of": "2098"},
        "as shipped": {"owner": "catalogue", "as_of": "2097"}, "free": {"usd_per_gpu_hour": 0.0, "as_of": "2096"},
        "denormal": {"usd_per_gpu_hour": 5e-324, "as_of": "2095"},
        "negative": {"usd_per_gpu_hour": -1.0, "as_of": "2094"},
    }.items():  # fmt: skip
        watch.after(f"a cheap price {name}", partial(posted, beta, "/v1/prices", {**cheap, **parts}))
    table = "provider,gpu,region,price_model,usd_per_gpu_hour,as_of\n" + "".join(
        f"{price['provider']},{price['gpu']},{price['region']},{model},0.01,2099-02-0{day}\n"
        for day, model in enumerate(("on-demand", "spot", "reserved"), 1)
    )
    watch.after("cheap prices imported as a table", lambda: (
        beta.ask("POST", "/v1/prices/import", content=table, headers={"content-type": "text/csv"})
    ))  # fmt: skip


def posted(caller: Caller, path: str, body: Any) -> None:
    """Send a body that may be taken or refused."""
    answer = caller.post(path, body)
    expect(answer.status_code < 500, f"answered {answer.status_code}: {answer.text[:200]}")


def refused_each(caller: Caller, method: str, path: str, **request: Any) -> None:
    """Send a request that has to be refused."""
    refused(caller.ask(method, path, **request))


def marking(watch: Unchanged, beta: Caller) -> None:
    """Marks that are not the writer's to set."""
    for plural, (_, body) in NAMED.items():

        def attack(plural: str = plural, body: Any = body) -> None:
            answer = beta.post(f"/v1/{plural}", {**body, "slug": f"beta-verified-{plural}", "verified": "yes"})
            marked = answer.status_code < 300 and answer.json()["verified"] != "no"
            expect(not marked, f"a writer's row is verified: {answer.text[:200]}")
            made = beta.post(f"/v1/{plural}", {**body, "slug": f"beta-plain-{plural}"})
            expect(made.status_code == 201, made.text[:200])
            path = f"/v1/{plural}/beta-plain-{plural}"
            patch = beta.ask("PATCH", path, json={"verified": "yes"}, headers={"If-Match": made.headers["etag"]})
            marked = patch.status_code < 300 and patch.json()["verified"] != "no"
            expect(not marked, "a writer verified a row by changing it")

        watch.after(f"{plural}: a verified mark", attack)

        def widen(plural: str = plural, body: Any = body) -> None:
            refused(beta.post(f"/v1/{plural}", {**body, "slug": f"beta-wide-{plural}", "scope": "everyone"}))
            path = f"/v1/{plural}/beta-plain-{plural}"
            refused(beta.ask("PATCH", path, json={"scope": "everyone"}, headers={"If-Match": "*"}))
            row = beta.get(path)
            whole = {**row.json(), "scope": "everyone"} if row.status_code == 200 else {}
            refused(beta.ask("PUT", path, json=whole, headers={"If-Match": "*"}))
            expect(watch.owner.caller.get(path).status_code == 404, "the row is there for another owner")

        watch.after(f"{plural}: a row for everyone", widen)


def editing(watch: Unchanged, beta: Caller, worker: Caller) -> None:
    """Changes of the owner's things by their ids."""
    owner = watch.owner
    force = {"If-Match": "*"}
    paths = {
        "model": "/v1/models/alpha-model", "GPU": "/v1/gpus/alpha-gpu", "rate card": "/v1/rate-cards/alpha-card",
        "scenario": f"/v1/scenarios/{owner.scenario}", "shipped price": f"/v1/prices/{owner.price['id']}",
        "shipped GPU": "/v1/gpus/h100-sxm5-80gb",
    }  # fmt: skip
    for name, path in paths.items():
        for who, caller in (("write key", beta), ("worker key", worker)):
            watch.after(f"{who} deletes the {name}", partial(refused_each, caller, "DELETE", path, headers=force))
            patch = partial(refused_each, caller, "PATCH", path, json={"note": "mine"}, headers=force)
            watch.after(f"{who} changes the {name}", patch)
    posts = {
        "quarantine": ("/v1/measurements/quarantine", {"ids": owner.measurements[:3], "reason": "mine"}),
        "release": ("/v1/measurements/release", {"ids": owner.measurements[:3]}),
        "retire": (f"/v1/calibrations/{owner.calibration}/retire", None),
        "roll back": (f"/v1/calibrations/{owner.calibration}/rollback", None),
        "promote again": (f"/v1/calibrations/{owner.calibration}/promote", None),
        "cancel the launch check": (f"/v1/launch-checks/{owner.launch_check}/cancel", None),
        "cancel the sweep": (f"/v1/sweeps/{owner.sweep}/cancel", None),
        "resume the sweep": (f"/v1/sweeps/{owner.sweep}/resume", None),
        "share the scenario": (f"/v1/scenarios/{owner.scenario}/share", {"days": 3}),
        "check the estimate": ("/v1/launch-checks", {"estimate_id": owner.estimate}),
        "fit on the measurements": ("/v1/calibrations", {"measurements": owner.measurements}),
    }
    for name, (path, body) in posts.items():
        for who, caller in (("write key", beta), ("worker key", worker)):
            request = {} if body is None else {"json": body}
            watch.after(f"{who}: {name}", partial(refused_each, caller, "POST", path, **request))
    accounting = (
        "JobID|State|ElapsedRaw|AllocTRES|Start|Comment\n"
        f"4711|COMPLETED|86400|gres/gpu:h100=8,gres/gpu=8|2026-11-20T08:00:00|{owner.estimate}\n"
    )
    watch.after("reconciliation of the owner's estimate", lambda: (
        beta.ask("POST", "/v1/reconciliations", content=accounting, headers={"content-type": "text/plain"})
    ))  # fmt: skip
    watch.after("a secret name one letter away from what the owner asks", lambda: (
        beta.made("/v1/models", {**TINY, "slug": "beta-secret-model"})
    ))  # fmt: skip


ABSURD: Mapping[str, float] = {
    "-1 s": -1.0, "0 s": 0.0, "1e-300 s": 1e-300, "5e-324 s": 5e-324, "1e-12 s": 1e-12, "1e-7 s": 1e-7,
    "1e300 s": 1e300,
}  # fmt: skip


def absurd_checks(watch: Unchanged, beta: Caller, worker: Caller) -> None:
    """Launch checks that a false worker finishes with absurd times: never `go`."""
    false_worker = FalseWorker(worker, "beta-node")
    false_worker.claim("nothing")
    asked = changed(
        QUESTION,
        model="smollm2-135m",
        recipe={"sequence_length": 2048},
        layout={},
        cluster={"gpu": "h100-sxm5-80gb", "gpus": 8},
    )
    for name, value in ABSURD.items():

        def attack(value: float = value) -> None:
            made = beta.made("/v1/launch-checks", {"question": asked, "probes": ["gemm"], "on": "matching"})["id"]
            job = false_worker.claim("launch-check")
            while job is not None and job["id"] != made:
                job = false_worker.claim("launch-check")
            if job is None:
                raise RuntimeError("the worker was not given the launch check of its own owner")
            answer = false_worker.finish(job, result=false_worker.records(job, value))
            expect(answer.status_code < 500, f"finish was answered {answer.status_code}")
            verdict = beta.get(f"/v1/launch-checks/{made}").json()["verdict"]
            expect(verdict != "go", f"the verdict is {verdict}")
            rows = beta.get("/v1/measurements", launch_check_id=made, limit=1000).json()["items"]
            counted = [row for row in rows if row["quarantined_at"] is None]
            expect(not counted, f"{len(counted)} of {len(rows)} such measurements are not quarantined")

        watch.after(f"a launch check finished with {name}", attack)


def cross_checks(watch: Unchanged, worker: Caller) -> None:
    """The other owner's worker takes whatever it is given and lies."""
    owner = watch.owner
    asked = changed(
        QUESTION,
        model="smollm2-135m",
        recipe={"sequence_length": 2048},
        layout={},
        cluster={"gpu": "h100-sxm5-80gb", "gpus": 8},
    )

    def attack() -> None:
        made = owner.caller.post("/v1/launch-checks", {"question": asked, "probes": ["gemm"], "on": "matching"})
        if made.status_code >= 300:
            return  # no worker of others is offered to this owner
        false_worker = FalseWorker(worker, "beta-node")
        for _ in range(4):
            job = false_worker.claim("launch-check")
            if job is None:
                break
            false_worker.finish(job, result=false_worker.records(job, 1e-12))
        check = owner.caller.get(f"/v1/launch-checks/{made.json()['id']}").json()
        watch.report.note(
            f"poisoning: the owner's launch check was {check['status']} by the other's worker: {check['verdict']}"
        )
        expect(check["verdict"] != "go", "a false worker of another owner decides the verdict")

    names = [name for name in watch.before if "launch-checks" in name or name.startswith("/v1/measurements")]
    kept = {name: watch.before.pop(name) for name in names}  # a worker that serves all owners may finish their checks
    watch.after("another owner's worker finishes the owner's launch check in 1e-12 s", attack)
    now = owner.answers()
    watch.before |= {name: now[name] for name in kept}


def promoting(report: Report, owner: Owner, gamma: Caller, admin: Caller) -> None:
    """An administrator's promotion for everyone changes the answer, which says so."""
    with report.attempt(FAMILY, LINE, "an administrator promotes for everyone: the answer changes and names it"):
        question = changed(QUESTION, cluster={"gpu": "a100-sxm4-80gb", "gpus": 8})
        before = owner.caller.made("/v1/estimates", question)
        body = records(
            "gamma-good",
            lambda shape: 5.2 * at_peak(shape),
            device="NVIDIA A100-SXM4-80GB",
            memory_bytes=85_899_345_920,
        )
        gamma.made("/v1/measurements", body)
        fitted = gamma.made(
            "/v1/calibrations", {"gpu": "a100-sxm4-80gb", "runs": ["gamma-good"], "probes": ["gemm"], "note": "good"}
        )
        answer = admin.post(f"/v1/calibrations/{fitted['id']}/promote", {"scope": "everyone"})
        if answer.status_code in (400, 415, 422):  # versions without scopes promote for everyone
            answer = admin.post(f"/v1/calibrations/{fitted['id']}/promote")
        expect(answer.status_code == 200, f"promotion was answered {answer.status_code}: {answer.text[:300]}")
        time.sleep(SETTLE_SECONDS)
        after = owner.caller.made("/v1/estimates", question)
        expect(before["step"] != after["step"], "the answer did not change")
        text = json.dumps(after)
        expect(after["versions"]["calibration"] == fitted["id"], f"versions name {after['versions']['calibration']}")
        expect("gamma" in text, "the answer does not name the owner of the calibration")
        expect(any("gamma" in json.dumps(one) for one in after["warnings"]), "no warning names another owner")


def widening(report: Report, owner: Owner, gamma: Caller, admin: Caller) -> None:
    """An administrator's row for everyone is there for everyone, with its owner's name."""
    with report.attempt(FAMILY, LINE, "an administrator lets a row hold for everyone: another owner finds it by name"):
        gamma.made("/v1/gpus", {**GPU_BODY, "slug": "gamma-gpu"})
        path = "/v1/gpus/gamma-gpu"
        expect(owner.caller.get(path).status_code == 404, "the row is there before")
        patch = admin.ask("PATCH", path, json={"scope": "everyone"}, headers={"If-Match": "*"})
        expect(patch.status_code == 200, f"the change was answered {patch.status_code}: {patch.text[:200]}")
        time.sleep(SETTLE_SECONDS)
        row = owner.caller.get(path)
        expect(row.status_code == 200 and row.json()["owner"] == "gamma", f"{row.status_code} {row.text[:200]}")
        answer = owner.caller.made("/v1/estimates", changed(QUESTION, cluster={"gpu": "gamma-gpu", "gpus": 8}))
        expect("gamma" in json.dumps(answer).replace("gamma-gpu", ""), "the answer does not name the row's owner")


def run(target: Target, report: Report, seed: int) -> None:
    """Attack one owner's answers with every key of another."""
    with serving(target) as service:
        keys = {
            "alpha": ("alpha", "write"), "beta": ("beta", "write"), "worker": ("beta", "worker"),
            "admin": ("ops", "admin"), "gamma": ("gamma", "write"),
        }  # fmt: skip
        callers = {name: service.caller(*words) for name, words in keys.items()}
        attack_all(service, report, callers, Random(seed))  # noqa: S311 - repeatable


def attack_all(service: Service, report: Report, callers: Mapping[str, Caller], rng: Random) -> None:
    """Every attack, the gravest last."""
    owner = Owner(callers["alpha"])
    watch = Unchanged(report, owner)
    beta, worker = callers["beta"], callers["worker"]
    kinds: Mapping[str, Callable[[], None]] = {
        "changes by id": lambda: editing(watch, beta, worker),
        "verified marks": lambda: marking(watch, beta),
        "shipped names": lambda: naming(watch, beta),
        "prices": lambda: pricing(watch, beta),
        "impossible measurements": lambda: measuring(watch, beta),
        "absurd launch checks": lambda: absurd_checks(watch, beta, worker),
        "the other's worker": lambda: cross_checks(watch, worker),
        "calibrations": lambda: calibrating(watch, beta, rng),
    }
    for name, attacks in kinds.items():
        attacks()
        watch.after_all(name, whole=name == "calibrations")
    promoting(report, owner, callers["gamma"], callers["admin"])
    widening(report, owner, callers["gamma"], callers["admin"])
    with report.attempt(FAMILY, LINE, "the service kept running"):
        expect(service.answers(), "the service does not answer")
