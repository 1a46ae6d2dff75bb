"""The operators' guide: its commands are run live, and the figures and settings that it names exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.api.cross_site import EXPOSED_HEADERS
from service.api.limits.rate_limits import Allowance, Quota, limit_headers, limit_of
from service.settings import Settings
from tests.api.test_metrics import NAMES
from tests.guide_pages import Block, blocks_of, by_request, differences
from tests.house.source import ROOT, SERVICE
from tests.live import serving
from tests.prestarted import ran

PAGE = SERVICE / "web" / "guide" / "operating.html"
BLOCKS = blocks_of(PAGE)


def blocks(kind: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind == kind]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address and folder of a service that writes its log as the page says."""
    folder = tmp_path_factory.mktemp("operating")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINCOST_LOG_FORMAT", "json")
        with serving(folder, folder / "log") as address:
            yield address, folder


@pytest.fixture(scope="module")
def answers(served: tuple[str, Path]) -> dict[str, str]:
    """What each command of the page is answered."""
    send = by_request(*served)
    return {block.text: send(block.text).decode() for block in blocks("command")}


def test_commands_are_answered_as_shown(answers: dict[str, str]) -> None:
    (ready,) = [json.loads(text) for command, text in answers.items() if command.endswith("/readyz")]
    (shown,) = blocks("answer")
    assert differences(json.loads(shown.text), ready) == []
    (exposed,) = [text for command, text in answers.items() if command.endswith("/metrics")]
    for line in blocks("figures")[0].text.splitlines():
        series, value = line.rsplit(" ", 1)
        (told,) = [one.rsplit(" ", 1)[1] for one in exposed.splitlines() if one.rsplit(" ", 1)[0] == series]
        assert float(told) >= float(value), line


def test_every_figure_is_listed_with_its_labels() -> None:
    (table,) = blocks("names")
    rows = [line.strip().split("\t") for line in table.text.strip().splitlines()[1:] if line.strip()]
    listed = {row[0].strip(): {one.strip() for one in row[1].split(",")} - {""} for row in rows}
    counters = {name: f"{name}_total" if kind == "counter" else name for name, (kind, _) in NAMES.items()}
    assert listed == {counters[name]: labels for name, (_, labels) in NAMES.items()}


def test_alerts_rest_on_figures_that_there_are() -> None:
    (scrape,) = yaml.safe_load(blocks("scrape")[0].text)["scrape_configs"]
    assert scrape["authorization"]["credentials_file"]
    (group,) = yaml.safe_load(blocks("alerts")[0].text)["groups"]
    assert len(group["rules"]) == 4
    for rule in group["rules"]:
        names = re.findall(r"traincost_\w+", rule["expr"])
        assert names
        for name in names:
            base = re.sub(r"_(count|bucket|sum|total)$", "", name)
            assert base in NAMES, name
            assert NAMES[base][0] == "histogram" or name == base


def test_doctor_says_what_is_shown(served: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", f"sqlite:///{served[1]}/traincost.db")
    monkeypatch.setenv("TRAINCOST_PORT", "0")
    (command,) = blocks("shell")
    done = ran(["service", *command.text.split()[1:]])
    assert done.returncode == 0, done.stderr
    shown, said = blocks("findings")[0].text.splitlines(), done.stdout.splitlines()
    assert len(shown) == len(said)
    for one, other in zip(shown, said, strict=True):
        assert re.fullmatch(re.escape(one).replace("…", ".+"), other), other


def test_a_line_of_the_log_has_the_fields_that_are_shown(served: tuple[str, Path], answers: dict[str, str]) -> None:
    assert answers
    lines = [json.loads(line) for line in (served[1] / "log").read_text().splitlines()]
    (found,) = [line for line in lines if line.get("path") == "/readyz"]
    shown: dict[str, Any] = json.loads(blocks("line")[0].text)
    assert list(found) == list(shown)
    same = ("level", "logger", "method", "path", "status")
    assert [found[name] for name in same] == [shown[name] for name in same]


def test_headers_are_those_of_the_shipped_limit() -> None:
    limit = limit_of(Settings(database_url="sqlite:////x.db"))
    assert limit is not None
    standing = Allowance(limit.burst - 1, limit.interval_seconds, 0.0)
    told = {name.decode(): value.decode() for name, value in limit_headers(Quota("default", "x", limit), standing)}
    shown = dict(line.split(": ", 1) for line in blocks("headers")[0].text.splitlines())
    assert {name.lower(): value for name, value in shown.items()} == told
    assert shown.keys() <= set(EXPOSED_HEADERS)


def test_settings_are_there_and_the_page_is_served() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"TRAINCOST_(\w+)", page))
    assert {name.lower() for name in named} <= Settings.model_fields.keys()
    assert "http://localhost:8000/guide/operating" in (ROOT / "README.md").read_text(encoding="utf-8")
