"""The guide to keys: its keys are made, its requests sent live, and the answers compared."""

import json
import re
import shlex
from pathlib import Path
from typing import get_args

import httpx
import pytest

from service.settings import PREFIX, RoleScope, Settings
from tests.commands import Command
from tests.guide_pages import blocks_of, by_request, differences, walk
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED, serving

PAGE = SERVICE / "web" / "guide" / "keys.html"
HOLDERS = ("KEY_OF_VISION", "KEY_OF_SPEECH", "KEY_OF_AN_ADMIN")


def test_every_answer_is_the_one_that_the_page_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", f"sqlite:///{tmp_path}/traincost.db")
    run = Command("keys", capsys, monkeypatch)
    commands = [line for block in blocks_of(PAGE) if block.kind == "shell" for line in block.text.splitlines()]
    made = [run(*shlex.split(command)[2:]).out.strip() for command in commands]
    keys = dict(zip(HOLDERS, made, strict=True))

    def filled(command: str) -> str:
        return re.sub("|".join(HOLDERS), lambda held: keys[held[0]], command)

    (limits,) = [block.text.splitlines() for block in blocks_of(PAGE) if block.kind == "limits"]
    assert [run(*shlex.split(filled(command))[2:]).code for command in limits] == [0, 0]
    with serving(tmp_path) as address:
        plain = by_request(address, tmp_path)

        def send(command: str) -> bytes:
            return plain(filled(command))

        asked = {"Authorization": f"Bearer {keys['KEY_OF_SPEECH']}"}
        first = httpx.get(f"http://{address}/v1/choices", headers=asked, timeout=30).headers
        told = walk(blocks_of(PAGE), send, address, tmp_path)
        page = httpx.get(f"http://{address}/guide/keys", timeout=30)
    (create, look, end) = next(block.text.splitlines() for block in blocks_of(PAGE) if block.kind == "rotation")
    taking = run(*shlex.split(create)[2:]).out.strip()
    assert "last_used_at" in run(*shlex.split(look)[2:]).out
    assert run(*shlex.split(end.replace("KEY_OF_VISION", taking))[2:]).out.startswith("revoked tck_")
    (shown,) = [block.text for block in blocks_of(PAGE) if block.kind == "headers"]
    assert {name: first[name] for name in ("RateLimit-Policy", "RateLimit")} == dict(
        line.split(": ", 1) for line in shown.splitlines()
    )
    assert len(told) == 7
    for text, answered in told:
        assert differences(json.loads(text), answered) == []
    assert (page.status_code, page.text) == (200, PAGE.read_text(encoding="utf-8"))
    assert f"http://{DOCUMENTED}/guide/keys" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_settings_of_tokens_are_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    said = PAGE.read_text(encoding="utf-8")
    known = {PREFIX + name.upper() for name in Settings.model_fields if name.startswith("oidc_")}
    assert set(re.findall(rf"{PREFIX}OIDC_[A-Z_]+", said)) == known
    (lines,) = [block.text.splitlines() for block in blocks_of(PAGE) if block.kind == "lines"]
    for line in lines:
        monkeypatch.setenv(*line.split("=", 1))
    settings = Settings()
    assert settings.oidc_roles == (("ml-engineers", "write"), ("finance", "read"), ("platform", "admin"))
    (started,) = [block.text for block in blocks_of(PAGE) if block.kind == "tokens"]
    for word in shlex.split(started)[:-2]:
        monkeypatch.setenv(*word.split("=", 1))
    assert Settings().oidc_roles == (("ml-engineers", "write"), ("platform", "admin"))


def test_every_scope_is_listed() -> None:
    (table,) = [block.text for block in blocks_of(PAGE) if block.kind == "scopes"]
    rows = [line.split("\t")[0].strip() for line in table.strip().splitlines()[1:] if line.strip()]
    assert rows == ["read", "write", "sheet", "worker", "admin"]
    assert set(rows) == set(get_args(RoleScope))
