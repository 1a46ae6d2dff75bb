"""How does Slurm want a question written? As a script for sbatch.

Source: Slurm 22.05 and 26.11, sbatch(1), srun(1); torch 2.13.0 torch/distributed/run.py.
"""

from service.exports.launchers.launched import NAME, written_as
from service.exports.program import Meeting, Nodes, Program, script_of
from service.exports.target import Job, Target, Version

MEETING = Meeting(rank='"$SLURM_NODEID"', address='"$MASTER_ADDR"')

_FIRST = 'export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"\n'

_STEP = "TRAINCOST_STEP"
"""Ends the commands of a node."""


def _script(job: Job, program: Program, nodes: Nodes) -> str:
    head = (
        "#!/bin/bash",
        f"#SBATCH --job-name={NAME}",
        f"#SBATCH --nodes={nodes.count}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={nodes.gpus_each}",
        "#SBATCH --exclusive",
    )
    commands = script_of(program, nodes, MEETING)
    step = f'commands="$(cat <<\'{_STEP}\'\n{commands}{_STEP}\n)"\nsrun --ntasks-per-node=1 bash -c "$commands"\n'
    return "\n".join(head) + f"\n\nset -euo pipefail\n{_FIRST}{step}"


SBATCH = Target(
    name="sbatch",
    tool="Slurm",
    kind="launcher",
    versions={"22.05": Version(covers="22.05 to 26.11", file_name="train.sbatch", media_type="text/x-shellscript")},
    write=written_as(_script, "partition, account and --time are yours to add"),
    source="Slurm 22.05 sbatch(1)",
)
"""A script for sbatch."""
