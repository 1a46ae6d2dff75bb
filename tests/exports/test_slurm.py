"""Does Slurm's own parser take the scripts? Asked of the cluster that sbatch reaches; skipped where it reaches none.

TRAINCOST_SLURM_PARTITION names a partition with nodes of 8 GPUs; `sbatch --test-only` starts nothing.
"""

import os
import re
import shutil
import subprocess

import pytest

from service.exports.program import nodes_of
from tests.exports.tools import written

PARTITION = "TRAINCOST_SLURM_PARTITION"

SAID = re.compile(r"sbatch: Job \d+ to start at \S+ using (\d+) processors on nodes \S+ in partition")


def judged(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """What sbatch says of a script."""
    command = ["sbatch", "--test-only", "--partition", os.environ[PARTITION], *options]
    return subprocess.run(command, input=script, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def slurm() -> None:
    if not shutil.which("sbatch") or PARTITION not in os.environ:
        pytest.skip(f"sbatch is not installed, or {PARTITION} names no partition")


@pytest.mark.usefixtures("slurm")
def test_slurm_takes_every_script() -> None:
    for _, file in written("sbatch"):
        answer = judged(file.content)
        assert answer.returncode == 0, answer.stderr
        assert SAID.search(answer.stderr), answer.stderr


@pytest.mark.usefixtures("slurm")
def test_slurm_reads_nodes_and_gpus_from_the_script() -> None:
    question, file = written("sbatch")[0]
    nodes = nodes_of(question)
    more = file.content.replace(f"--gpus-per-node={nodes.gpus_each}\n", "--gpus-per-node=1000\n")
    assert "--gpus-per-node=1000" in more
    assert judged(more).returncode != 0
    assert judged(file.content.replace("#SBATCH --nodes", "#SBATCH --warp-drives")).returncode != 0
