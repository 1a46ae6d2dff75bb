"""HEAD is GET without its body, and an answer that the caller holds is not sent again."""

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.api.caching import Conditional
from tests.api.asking import Ask

PATHS = [
    "/", "/guide", "/guide/page", "/guide/tuning", "/docs", "/openapi.json", "/healthz", "/readyz", "/v1/choices",
    "/web/docs.js",
    "/v1/memory?model=llama-3.1-8b&sequence_length=8192&gpu=h100-sxm5-80gb&gpus=8",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_head_is_get_without_its_body(ask: Ask, path: str) -> None:
    get, head = ask("GET", path), ask("HEAD", path)
    assert (get.status_code, head.status_code, head.content) == (200, 200, b"")
    for name in ("content-type", "content-length", "etag"):
        assert head.headers[name] == get.headers[name]


def test_head_fails_as_get_fails(ask: Ask) -> None:
    for path in ("/no-such-path", "/v1/memory"):
        get, head = ask("GET", path), ask("HEAD", path)
        assert head.status_code == get.status_code >= 400
        assert head.content == b""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', "*"])
def test_an_answer_that_the_caller_holds_is_not_sent_again(ask: Ask, path: str, form: str) -> None:
    etag = ask("GET", path).headers["etag"]
    assert not etag.startswith("W/")
    again = ask("GET", path, headers={"If-None-Match": form.format(etag)})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)


def test_another_answer_has_another_etag(ask: Ask) -> None:
    tags = {ask("GET", path).headers["etag"] for path in PATHS}
    assert len(tags) == len(PATHS)


def test_an_answer_that_the_caller_does_not_hold_is_sent(ask: Ask) -> None:
    assert ask("GET", "/v1/choices", headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_problem_is_never_not_modified(ask: Ask) -> None:
    answer = ask("GET", "/no-such-path", headers={"If-None-Match": "*"})
    assert answer.status_code == 404
    assert "etag" not in answer.headers


def test_a_stream_with_an_etag_of_its_own_is_judged_before_its_end() -> None:
    sent: list[Message] = []

    async def streaming(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"etag", b'"mine"'), (b"content-type", b"text/csv")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in (b"a", b"b", b""):
            await send({"type": "http.response.body", "body": chunk, "more_body": bool(chunk)})

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def keep(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "headers": [(b"if-none-match", b'"mine"')]}
    asyncio.run(Conditional(streaming)(scope, receive, keep))
    start, body = sent
    assert (start["status"], start["headers"]) == (304, [(b"etag", b'"mine"')])
    assert (body["body"], body["more_body"]) == (b"", False)
