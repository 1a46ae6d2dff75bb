"""README: its commands are run, its answers, figures and paths compared with what there is."""

import json
import re
import shlex
import tomllib
from math import exp
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from service.answers.accuracy import HeldOutScore
from service.estimator.run.totals import RUN_RESIDUALS
from service.evaluation.shipped import shipped_accuracy
from service.evaluation.tables import percent
from service.evaluation.totals import totals_accuracy
from service.settings import Settings
from tests.curl import asked
from tests.guide_pages import differences
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED
from tests.prestarted import ran

README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_LINES = 130
GUIDE = SERVICE / "web" / "guide"


def test_it_stays_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_the_command_prints_what_is_shown(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```console\n\$ traincost (.*?)```", README, re.DOTALL)
    command, _, output = shown.partition("\n")
    done = ran(["service", *shlex.split(command)], tmp_path)
    assert done.returncode == 0, done.stderr
    pattern = re.escape(output).replace(re.escape("...\n"), r"(?:.*\n)*?")
    assert re.fullmatch(pattern, done.stdout), done.stdout


def test_the_request_is_answered_as_shown(address: str) -> None:
    (curl,) = [line for line in README.splitlines() if line.startswith("curl ")]
    (shown,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    answer: dict[str, Any] = asked(curl, address).json()
    assert differences(json.loads(shown), answer) == []
    assert "\n" not in answer["reason"]


@pytest.mark.parametrize("path", ["/docs", "/v1/models", "/v1/gpus", "/v1/clusters", "/v1/prices", "/v1/choices"])
def test_named_addresses_answer(address: str, path: str) -> None:
    assert path in README
    assert httpx.get(f"http://{address}{path}", timeout=30).status_code == 200


def test_every_page_of_the_guide_is_linked_and_served(address: str) -> None:
    linked = set(re.findall(rf"http://{DOCUMENTED}/guide/(\w+)", README))
    first = set(re.findall(r'href="/guide/(\w+)"', (GUIDE / "index.html").read_text(encoding="utf-8")))
    pages = {path.stem for path in GUIDE.glob("*.html")} - {"index"}
    assert linked == pages
    assert first == pages
    for name in pages:
        page = httpx.get(f"http://{address}/guide/{name}", timeout=30)
        assert (page.status_code, page.text) == (200, (GUIDE / f"{name}.html").read_text(encoding="utf-8"))


def test_commands_are_the_ones_that_are_checked() -> None:
    assert "\npip install . && traincost serve\n" in README
    assert "\npip install -e '.[test]' && pytest\n" in README
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "traincost" in project["scripts"]
    assert "test" in project["optional-dependencies"]
    assert urlsplit(f"http://{DOCUMENTED}").port == Settings.model_fields["port"].default


def test_accuracy_is_the_held_out_one() -> None:
    """Every figure is of sources that neither the prediction nor its interval has seen."""
    text, board = " ".join(README.split()), shipped_accuracy().held_out
    scores: dict[tuple[str, str], HeldOutScore] = {(one.quantity, one.memory_class): one for one in board.classes}
    for quantity, word in (("peak", "peaks from"), ("step", "steps;")):
        score = scores[quantity, "all"]
        assert f"mean error {percent(score.mape_fraction)} over {score.scored} {word}" in text
        assert f"{percent(score.coverage80_fraction, digits=0)} lie inside the 80 % interval" in text
    assert f"Mixtures of experts alone: {percent(scores['step', 'MoE'].mape_fraction)}" in text
    sources = {one.source_key for one in board.sources if one.quantity == "peak"}
    assert (len(sources), "from six sources" in text) == (6, True)
    (constant,) = (one for one in scores["step", "all"].others if one.name == "constant MFU")
    assert f"constant MFU errs by {percent(constant.mape_fraction)}" in text
    runs = totals_accuracy().main_runs
    assert f"{runs.held_out_inside} of {runs.scored} published runs lie inside an interval that never saw" in text
    least, most = map(exp, RUN_RESIDUALS)
    assert f"80 % took {least:.1f} to {most:.1f} times" in text


def test_every_path_of_the_readme_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("http")]
    assert len(links) >= 4
    assert [name for name in links if not (ROOT / name).exists()] == []
