"""A worker needs nothing but the standard library, httpx and annotated-types, where it measures and where not."""

import subprocess
import sys
from importlib.metadata import requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.source import ROOT

PROGRAM = """
import sys
from importlib.machinery import PathFinder
class OnlySome:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        return PathFinder.find_spec(name, path, target) if top in {allowed!r} | sys.stdlib_module_names else None
sys.meta_path[sys.meta_path.index(PathFinder)] = OnlySome()
sys.argv = ["traincost", *{words!r}]
from service.__main__ import main
import importlib
for module in {modules!r}:
    importlib.import_module(module)
main()
"""


def needed_by(name: str) -> set[str]:
    """A distribution and all that it asks for, under the names of their modules."""
    found = {name}
    for line in requires(name) or ():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            found |= needed_by(canonicalize_name(wanted.name))
    return {one.replace("-", "_") for one in found}


def run(words: list[str], modules: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    """The command in a process that finds nothing else."""
    program = PROGRAM.format(allowed={"service", "annotated_types", *needed_by("httpx")}, words=words, modules=modules)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_a_worker_needs_the_standard_library_httpx_and_annotated_types() -> None:
    modules = tuple(f"service.worker.{name}" for name in ("probe_process", "supervisor", "supported"))
    done = run(["worker", "--help"], modules)
    assert done.returncode == 0, done.stderr
    assert "--max-idle" in done.stdout


def test_a_worker_ends_where_nobody_answers() -> None:
    done = run(["worker", "--url", "http://127.0.0.1:1", "--max-idle", "0.2"])
    assert done.returncode == 0, done.stderr
    assert "no answer from http://127.0.0.1:1" in done.stderr


def test_the_other_commands_say_in_a_line_that_they_need_more() -> None:
    for words in (["serve"], ["--help"], []):
        done = run(words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith("traincost: typer is not installed here, so of its commands only ")


def test_what_is_wrong_with_its_arguments_is_said() -> None:
    for words, said in (
        (["--slots", "0"], "between 1 and"),
        (["--label", "rack"], "NAME=VALUE"),
        (["--max-idle", "soon"], "a number of seconds"),
        (["--runner", "nowhere"], "invalid choice"),
        (["--url", "nowhere"], "not the address of a service"),
    ):
        done = run(["worker", *words])
        assert done.returncode == 2
        assert said in done.stderr, done.stderr
