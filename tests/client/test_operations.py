"""Every operation of the contract has a method, or a reason why it has none."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from service.client import Client, ClientError
from service.openapi.document import COMMITTED

ROW = {"slug": "a"}

CALLS: tuple[Callable[[Client], Any], ...] = (
    lambda client: client.estimate({}),
    lambda client: client.ask("llama 3.1 8b on 8 H100"),
    lambda client: client.memory({}),
    lambda client: client.flop({}),
    lambda client: client.gpu_hours({}),
    lambda client: client.timeline({}),
    lambda client: client.plans({}),
    lambda client: client.solve({}),
    lambda client: client.compare({}),
    lambda client: client.sensitivity({}),
    lambda client: client.differences({}),
    lambda client: client.check({}),
    lambda client: list(client.batch([("memory", {})])),
    lambda client: client.stored_estimate("est_a"),
    lambda client: client.share("scn_a"),
    lambda client: client.shares("scn_a"),
    lambda client: client.revoke_share("scn_a", "shr_a"),
    lambda client: client.export("torchtitan", {}),
    lambda client: client.export_targets(),
    lambda client: client.import_formats(),
    lambda client: client.import_file("deepspeed", "{}"),
    lambda client: client.recognise_file('{"train_micro_batch_size_per_gpu": 1}'),
    lambda client: client.reconcile(""),
    lambda client: client.diagnose({}),
    lambda client: client.profile(b"{}"),
    lambda client: client.choices(),
    lambda client: client.workers(),
    lambda client: client.cell("gpu_hours"),
    lambda client: client.launch_checks.create({}),
    lambda client: client.launch_checks.read("lch_a"),
    lambda client: client.launch_checks.cancel("lch_a"),
    lambda client: client.launch_checks.trace("lch_a"),
    lambda client: list(client.launch_checks.rows()),
    lambda client: next(client.launch_checks.events("lch_a")),
    lambda client: list(client.revisions.rows()),
    lambda client: list(client.sweeps.rows()),
    lambda client: client.sweeps.create({}),
    lambda client: client.sweeps.read("swp_a"),
    lambda client: client.sweeps.cancel("swp_a"),
    lambda client: client.sweeps.resume("swp_a"),
    *(
        call
        for name in ("models", "gpus", "clusters", "prices", "rate_cards", "regions", "scenarios")
        for call in (
            lambda client, name=name: list(getattr(client, name).rows()),
            lambda client, name=name: getattr(client, name).read("a"),
            lambda client, name=name: getattr(client, name).create(ROW),
            lambda client, name=name: getattr(client, name).replace("a", ROW, "*"),
            lambda client, name=name: getattr(client, name).update("a", ROW, "*"),
            lambda client, name=name: getattr(client, name).delete("a", "*"),
        )
    ),
)

LEFT_OUT = {
    r"get /v1/(estimates|memory|flops|gpu-hours|compare)": "what POST answers, flat; a program has objects",
    r"\w+ /v1/.*\.(csv|xlsx|ods|xml|md|html)": "tables and files for spreadsheets; a program has the rows",
    r"get /v1/cell/why": "says in a cell what a problem says",
    r"post /v1/models/import": "models.create takes the same config under hf_config",
    r"post /v1/prices/import": "the table of a spreadsheet; prices.create takes each of its rows",
    r"\w+ /v1/adapters(/.*)?": "schedulers ask in their own words, by the files that they fetch",
    r"get /v1/accuracy(/totals|/points)?": "how near predictions come is for people to read",
    r"get /v1/sweeps/{sweep_id}/rows.parquet": "sweeps.save writes it to a file, whichever form its name says",
    r"get /v1/sweeps/{sweep_id}/events": "sweeps.wait tells the same, and asks again where a connection broke",
    r"\w+ /v1/worker/.*": "a worker says this, which has a client of its own",
    r"\w+ /v1/(measurements|calibrations).*": "whoever runs the service measures and calibrates",
    r"get /v1/audit": "whoever runs the service looks into it",
    r"get /(healthz|readyz|metrics)": "whoever runs the service asks, not whoever asks it",
}
"""Operations without a method, and why."""


def operations() -> Iterator[str]:
    for path, methods in httpx.Response(200, content=COMMITTED.read_bytes()).json()["paths"].items():
        for method in methods:
            yield f"{method} {path}"


def asked() -> set[str]:
    """What all methods together ask for."""
    requests: set[str] = set()

    def answer(request: httpx.Request) -> httpx.Response:
        requests.add(f"{request.method.lower()} {request.url.path}")
        return httpx.Response(200, json={"items": [], "next_cursor": None})

    with Client("http://t", transport=httpx.MockTransport(answer)) as client:
        for call in CALLS:
            with suppress(ClientError, KeyError):  # what is answered is no answer to it
                call(client)
    return requests


def test_every_operation_has_a_method_or_a_reason() -> None:
    known = sorted(operations(), key=lambda operation: operation.count("{"))
    assert len(known) > 80
    patterns = {operation: re.sub(r"\{\w+\}", "[^/]+", operation.replace(".", r"\.")) for operation in known}
    reached = {
        next(operation for operation, pattern in patterns.items() if re.fullmatch(pattern, request))
        for request in asked()
    }
    left_out = {operation for operation in known if any(re.fullmatch(reason, operation) for reason in LEFT_OUT)}
    assert reached & left_out == set()
    assert reached | left_out == set(known)


@pytest.mark.parametrize("reason", LEFT_OUT)
def test_every_reason_is_needed(reason: str) -> None:
    assert any(re.fullmatch(reason, operation) for operation in operations())
