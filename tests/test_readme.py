"""README: its commands are run, its answers, figures and paths compared with what there is."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

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


def _figures(source: str) -> list[list[str]]:
    text = (SERVICE / "calibration" / "README.md").read_text(encoding="utf-8")
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith(source)
    ]


def test_accuracy_is_that_of_the_shipped_figures() -> None:
    """The table of the calibration's README is written by `traincost write-accuracy`, and tested to be fresh."""
    peaks = [row for row in _figures("| peak |") if "*" not in row[1] and row[1] != "all" and row[5] != "0"]
    scored = [int(row[5]) for row in peaks]

    def mean(column: int) -> float:
        return sum(n * float(row[column].removesuffix(" %")) for n, row in zip(scored, peaks, strict=True)) / sum(
            scored
        )

    (memory_error,) = re.findall(rf"mean error ([\d.]+) % over {sum(scored)} peaks", README)
    assert float(memory_error) == pytest.approx(mean(6), abs=0.1)
    assert len({row[1] for row in peaks}) == 6
    assert "from six sources" in README
    assert f"{mean(10):.0f} % lie inside the 80 % interval" in README
    (steps,), (experts,) = _figures("| all * | all |"), _figures("| all * | MoE |")
    assert f"mean error {steps[8]} over {steps[4]} steps; {steps[12]} lie inside the 80 % interval" in README
    assert f"constant MFU errs by {steps[15]}" in " ".join(README.split())
    assert f"Mixtures of experts alone: {experts[8]}" in README
    (runs,) = re.findall(r"(\d+) of the (\d+) main runs", " ".join(_calibration().split()))
    assert "{} of {} published runs".format(*runs) in README
    (least, most) = re.findall(r"took between ([\d.]+) and ([\d.]+) times", _calibration())[0]
    assert f"took {least} to {most} times" in README


def _calibration() -> str:
    return (SERVICE / "calibration" / "README.md").read_text(encoding="utf-8")


def test_every_path_of_the_readme_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("http")]
    assert len(links) >= 4
    assert [name for name in links if not (ROOT / name).exists()] == []
