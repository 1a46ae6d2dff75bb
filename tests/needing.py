"""Extras and real programs that some tests need: one table, one marker, and one way to skip.

`@needs("torch")` skips a test where torch is not installed; fixtures and helpers call `need("torch")`. Both say what is
missing and how to install it. TRAINCOST_REQUIRE_REAL=1 turns each of these skips into a failure.

A run of everything takes the same time wherever it runs: it skips what the test extra does not bring, installed or not,
and remembers which tests it skipped. `pytest --skipped` runs exactly these, once what they need is installed. A run of
named files or chosen tests skips only what is missing.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.immutable import lacks_immutable_files

TOOLS = "TRAINCOST_TOOLS"
"""Variable that names the folder that .ci/tools makes."""

REMEMBERED = "traincost/skipped"
"""Key under which pytest's cache holds the names of skipped tests."""

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
"""Where programs are looked for: those of daemons too."""

SYSTEM_PYTHON = "/usr/bin/python3"
"""The Python to which LibreOffice brings its bridge."""

SLURM = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "srun")
ACCOUNTING = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacctmgr", "sacct")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def _package(module: str, install: str) -> Callable[[], str | None]:
    return lambda: None if find_spec(module) else f"{module} is not installed: pip install {install}"


def _programs(names: tuple[str, ...], install: str) -> Callable[[], str | None]:
    def lacks() -> str | None:
        absent = [name for name in names if shutil.which(name, path=PATH) is None]
        return f"{', '.join(absent)} not found: apt-get install {install}" if absent else None

    return lacks


def _chromium() -> str | None:
    if any(shutil.which(name) for name in CHROMIUM):
        return None
    return "Chromium is not installed: apt-get install chromium"


def _libreoffice() -> str | None:
    install = "apt-get install --no-install-recommends libreoffice-calc-nogui python3-uno"
    if not shutil.which("soffice"):
        return f"LibreOffice is not installed: {install}"
    bridge = [SYSTEM_PYTHON, "-c", "import uno"]
    if not Path(SYSTEM_PYTHON).exists() or subprocess.run(bridge, capture_output=True, check=False).returncode:
        return f"the bridge to LibreOffice is not installed: {install}"
    return None


def _slurm() -> str | None:
    absent = _programs(SLURM, "slurm-wlm munge")()
    return absent or (None if os.geteuid() == 0 else "Slurm's daemons want to be started as root")


def _accounting() -> str | None:
    return _programs(ACCOUNTING, "slurmdbd mariadb-server")() or _slurm()


def _namespaces() -> str | None:
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "true"]
    if shutil.which(unshare[0]) and subprocess.run(unshare, capture_output=True, check=False).returncode == 0:
        return None
    return "only root makes namespaces, with unshare of util-linux"


def tool(*parts: str) -> Path:
    """A file or folder that .ci/tools makes, whether it exists or not."""
    return Path(os.environ.get(TOOLS) or os.devnull).joinpath(*parts)


def _tool(*parts: str) -> Callable[[], str | None]:
    def lacks() -> str | None:
        return None if tool(*parts).exists() else f"{TOOLS} names no folder with {'/'.join(parts)}: see .ci/tools"

    return lacks


NEEDS: Mapping[str, Callable[[], str | None]] = {
    "torch": _package("torch", "'.[measure]'"),
    "ray": _package("ray", "'.[ray]'"),
    "torch-tb-profiler": _package("torch_tb_profiler", "torch-tb-profiler"),
    "playwright": _package("playwright", "'.[test]'"),
    "chromium": _chromium,
    "node": _programs(("node",), "nodejs"),
    "haproxy": _programs(("haproxy",), "haproxy"),
    "redis": _programs(("redis-server",), "redis-server"),
    "libreoffice": _libreoffice,
    "slurm": _slurm,
    "slurm-accounting": _accounting,
    "namespaces": _namespaces,
    "immutable-files": lacks_immutable_files,
    "axe": _tool("axe", "node_modules", "axe-core", "axe.min.js"),
    "exporters": _tool("torch", "bin", "python"),
    "openapi-tools": _tool("openapi", "node_modules"),
    "schemathesis": _tool("schemathesis", "bin", "st"),
    "trace-viewer": _tool("trace-viewer", "node_modules", "webcomponents.js", "webcomponents.min.js"),
}
"""For each thing that a test may need, a function that returns what is missing, or None."""

AT_HAND = frozenset({"playwright", "namespaces", "immutable-files"})
"""Needs that the test extra or the system meets, in no time; tests of the others are left to `pytest --skipped`."""

LEFT = "is left to `pytest --skipped`"
"""End of the reason of a skip in a run of everything."""

_IS_EVERYTHING = [False]
"""Whether this is a run of everything, which leaves tests of real programs to `--skipped`."""


@cache
def lacks(name: str) -> str | None:
    """What is missing of one thing that tests need; None where all is there."""
    return NEEDS[name]()


def missing(reason: str) -> NoReturn:
    """Skip the test; fail it where nothing may be skipped."""
    if os.environ.get("TRAINCOST_REQUIRE_REAL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def need(*names: str) -> None:
    """Skip the test that asks unless all of these are there; fail it where nothing may be skipped."""
    for name in names:
        if reason := lacks(name):
            missing(reason)
    left = sorted({*names} - AT_HAND)
    if left and _IS_EVERYTHING[0] and os.environ.get("TRAINCOST_REQUIRE_REAL") != "1":
        pytest.skip(f"what drives {', '.join(left)} {LEFT}")


def needs(*names: str) -> pytest.MarkDecorator:
    """Mark a test or a module that needs some of these."""
    unknown = [name for name in names if name not in NEEDS]
    assert not unknown, f"{unknown} stand not in NEEDS"
    return pytest.mark.needs(*names)


class Skipped:
    """Remembers the tests that a run of everything skips, and selects them where `--skipped` asks for them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._names: set[str] = set()
        self._collected: set[str] = set()
        self._wanted: list[str] | None = None
        everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
        chosen = config.option.keyword or config.option.markexpr or config.getoption("--skipped")
        self._is_everything = getattr(config, "workerinput", {}).get(REMEMBERED, bool(everything and not chosen))
        _IS_EVERYTHING[0] = self._is_everything
        if config.getoption("--skipped"):
            self._wanted = config.cache.get(REMEMBERED, None) if config.cache else None
            if self._wanted is None:
                raise pytest.UsageError("no run of everything has remembered what it skipped: run pytest first")

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test that lacks what its marker names."""
        for marker in item.iter_markers("needs"):
            need(*marker.args)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a skipped test."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._names.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that was skipped as a whole, such as one whose examples need torch, and one that was not."""
        if report.skipped:
            self._names.add(report.nodeid)
        elif report.passed:
            self._collected.add(report.nodeid)

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Collect only files that hold a wanted test."""
        if self._wanted is None or collection_path.is_dir():
            return None
        name = collection_path.relative_to(config.rootpath).as_posix()
        return None if any(one.split("::")[0] == name for one in self._wanted) else True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the wanted tests; each must be there, but for modules that turn out to hold none."""
        if self._wanted is None:
            return
        found, others, absent = selected(self._wanted, items)
        absent = [name for name in absent if name not in self._collected]
        if absent:
            raise pytest.UsageError(f"skipped before, and gone now: {', '.join(absent[:5])}")
        config.hook.pytest_deselected(items=others)
        items[:] = found

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Remember what a run of everything skipped."""
        config = session.config
        cache = getattr(config, "cache", None)  # absent with `-p no:cacheprovider`
        if cache and self._is_everything and not config.option.collectonly and not hasattr(config, "workerinput"):
            cache.set(REMEMBERED, sorted(self._names))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Let each of several processes know whether this is a run of everything."""
        node.workerinput[REMEMBERED] = self._is_everything

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the command that runs what was left."""
        if left := sum(LEFT in str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())):
            terminalreporter.line(f"{left} tests drive real programs: run `pytest --skipped` for them")


def selected(wanted: list[str], items: list[Any]) -> tuple[list[Any], list[Any], list[str]]:
    """The items that are wanted, the others, and the wanted names of which no item is there."""
    names = set(wanted)
    is_wanted = [bool(names & {item.nodeid, item.nodeid.partition("::")[0]}) for item in items]
    found = [item for item, is_one in zip(items, is_wanted, strict=True) if is_one]
    there = {name for item in found for name in (item.nodeid, item.nodeid.partition("::")[0])}
    others = [item for item, is_one in zip(items, is_wanted, strict=True) if not is_one]
    return found, others, sorted(names - there)
