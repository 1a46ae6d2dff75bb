"""The guide to keeping data agrees with the settings and the commands."""

import os
import re
import shlex
from pathlib import Path

import httpx

from service.settings import PREFIX, Settings
from tests.guide_pages import blocks_of
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED, serving
from tests.prestarted import ran

PAGE = SERVICE / "web" / "guide" / "keeping.html"
SAID = PAGE.read_text(encoding="utf-8")


def test_the_page_is_served_and_its_commands_take_the_data_from_one_database_to_another(
    tmp_path: Path,
) -> None:
    backup, restore = (block.text for block in blocks_of(PAGE) if block.kind == "shell")
    with serving(tmp_path) as address:
        page = httpx.get(f"http://{address}/guide/keeping", timeout=30)
        _run(backup, tmp_path, "traincost.db")
    assert (page.status_code, page.text) == (200, SAID)
    assert f"http://{DOCUMENTED}/guide/keeping" in (ROOT / "README.md").read_text(encoding="utf-8")
    _run(restore, tmp_path, "other.db")


def _run(command: str, folder: Path, database: str) -> None:
    """Run a command of the page in this process's own Python, on a database of the test."""
    words = [word.replace("/backups", str(folder)) for word in shlex.split(command) if "=" not in word]
    environment = {**os.environ, "TRAINCOST_DATABASE_URL": f"sqlite:///{folder / database}", "PYTHONPATH": str(ROOT)}
    assert words.pop(0) == "traincost"
    done = ran(["service", *words], env=environment)
    assert done.returncode == 0, done.stderr


def test_days_are_those_of_the_settings() -> None:
    told = dict(re.findall(rf"<code>{PREFIX}(KEEP_\w+_DAYS)</code></td><td>(\d+)</td>", SAID))
    fields = {name.upper(): field for name, field in Settings.model_fields.items() if name.startswith("keep_")}
    assert {name: float(days) for name, days in told.items()} == {name: one.default for name, one in fields.items()}
