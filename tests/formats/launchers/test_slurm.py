"""Slurm accepts the scripts and starts them on as many nodes, in a Slurm that the tests start."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from service.formats.program import nodes_of
from tests.formats.launchers.shells import LAUNCHERS, place_in, started, told_in, with_programs
from tests.formats.tools import written
from tests.slurm import running

SAID = re.compile(r"sbatch: Job \d+ to start at \S+ using \d+ processors on nodes (\S+) in partition many")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Mapping[str, str]]:
    """The environment in which sbatch reaches a Slurm."""
    with running() as environment:
        yield environment


def hosts_of(listed: str) -> int:
    """How many hosts a list such as off[1-3,7] names."""
    ranges = re.findall(r"(\d+)(?:-(\d+))?", listed)
    return sum(int(last or first) - int(first) + 1 for first, last in ranges)


def judged(slurm: Mapping[str, str], script: str) -> subprocess.CompletedProcess[str]:
    """What sbatch says of a script, nothing started."""
    command = ["sbatch", "--test-only", "--partition=many"]
    return subprocess.run(command, env=slurm, input=script, capture_output=True, text=True, check=False, timeout=60)


def test_slurm_takes_every_script_on_as_many_nodes(slurm: Mapping[str, str]) -> None:
    for question, file in written("sbatch"):
        answer = judged(slurm, file.content)
        assert answer.returncode == 0, answer.stderr
        found = SAID.search(answer.stderr)
        assert found, answer.stderr
        assert hosts_of(found[1]) == nodes_of(question).count


def test_slurm_reads_gpus_and_options_from_the_script(slurm: Mapping[str, str]) -> None:
    question, file = written("sbatch")[0]
    nodes = nodes_of(question)
    more = file.content.replace(f"--gpus-per-node={nodes.gpus_each}\n", "--gpus-per-node=9\n")
    assert "--gpus-per-node=9" in more
    assert judged(slurm, more).returncode != 0
    assert judged(slurm, file.content.replace("#SBATCH --nodes", "#SBATCH --warp-drives")).returncode != 0


def test_slurm_starts_on_a_node_what_the_script_says(slurm: Mapping[str, str], tmp_path: Path) -> None:
    pairs = [pair for pair in written("sbatch") if nodes_of(pair[0]).count == 1][:3]
    assert pairs
    environment = {**slurm, **with_programs(tmp_path, LAUNCHERS, slurm["PATH"])}
    for _, file in pairs:
        place = place_in(tmp_path)
        command = ["sbatch", "--wait", "--partition=here", f"--chdir={place}", f"--output={tmp_path}/said"]
        subprocess.run(command, env=environment, input=file.content, text=True, check=True, timeout=60)
        found = told_in(tmp_path)
        assert found == started(file.content, tmp_path)
