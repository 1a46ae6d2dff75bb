"""How tests run, and databases for them, of both kinds, each new and empty.

Properties are tried on the same examples each time; `--hypothesis-profile=random` tries others.

Without arguments `pytest` runs everything, on every core; what is named runs in one process, without waiting for others
to start. `-n` decides either way: `pytest -n 0`, `pytest -n 4 tests/api`. Processes share nothing: each makes its own
databases, and a service takes any free port. All of them keep bytecode, also where the environment asks Python not to:
else every service and every command that tests start compiles the package anew.

PostgreSQL is TRAINCOST_TEST_DATABASE_URL (a server on which databases may be made), else one started from the
test extra's own binaries. A run of everything skips, and says so, what drives other programs and extras
(tests/needing.py); `pytest --skipped` runs that where they are there, and TRAINCOST_REQUIRE_REAL=1 skips nothing of it.
"""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from tests.databases import serving
from tests.distribution import longest_first, scheduler
from tests.needing import Skipped, missing

pytest_plugins = ("tests.fixtures",)

collect_ignore = [
    "libreoffice_cells.py",
    "worker/transformers_peaks.py",
    "estimator/memory/torch_counts.py",
    "estimator/time/torch_traffic.py",
]
"""Programs that other Pythons run: the system's has LibreOffice's bridge, that of another tool has transformers."""

MOST_PROCESSES = 8
"""Each collects every test and starts a PostgreSQL server, so more of them gain little."""
WAITING = 2
"""Processes beyond one for each core: many tests wait for other programs, for locks and for time to pass."""

IN_A_PROCESS_OF_MANY = "PYTEST_XDIST_WORKER"
"""Set in each of the processes, which start no others."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--skipped`: run what the last run of everything skipped."""
    parser.addoption(
        "--skipped", action="store_true", help="run only the tests that the last run of everything skipped"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Skip what lacks an extra or a program, and remember it."""
    config.pluginmanager.register(Skipped(config), "skipped")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run everything in more processes than there are cores, unless the command line says how many there are."""
    options = config.option
    if IN_A_PROCESS_OF_MANY in os.environ or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    if getattr(options, "numprocesses", 0) is None and not options.collectonly:
        options.numprocesses = min((os.cpu_count() or 1) + WAITING, options.maxprocesses or MOST_PROCESSES)
        options.dist = "loadfile" if options.dist == "no" else options.dist


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests only in modules that have one: of the others, every function would be searched."""
    collectors = yield
    if file_path.suffix == ".py" and ">>>" not in file_path.read_text(encoding="utf-8"):
        return [one for one in collectors if not isinstance(one, DoctestModule)]
    return collectors


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays: nobody looks for garbage in it, neither meanwhile nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, where there are several processes."""
    if IN_A_PROCESS_OF_MANY in os.environ:
        longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole files where everything runs."""
    return scheduler(config, log) if config.option.dist == "loadfile" else None


@pytest.fixture(scope="session", autouse=True)
def _watched() -> Iterator[None]:
    """Every key that a test makes is looked for in logs and errors."""
    from tests.secrecy import watched

    with watched():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """A test after which a key stands in a log or in an error has failed."""
    yield
    from tests.secrecy import leaks

    found = leaks()
    if found:
        pytest.fail(f"a key was told in {', '.join(found)}")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    with serving() as (url, reason):
        if url is None:
            missing(f"PostgreSQL cannot be started here: {reason}")
        yield url
