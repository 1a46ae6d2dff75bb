"""Slurm: a script for sbatch, and the job of a submit hook.

Source: Slurm 22.05 and 26.11, sbatch(1), srun(1); torch 2.13.0 torch/distributed/run.py; Slurm 22.05
src/plugins/job_submit/lua (min_nodes, num_tasks, tres_per_node, tres_per_job, tres_per_task, time_limit, script).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Le, MaxLen

from service.errors import Problem, Refused
from service.estimator.question import Strict
from service.formats.program import NAME, Nodes, Program, Scheduled, launcher, script_of
from service.formats.rules import ExportRequest
from service.formats.text import LONGEST_FILE_BYTES, MOST_FILES
from service.formats.training import Job

_EXPORT_MASTER = 'export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"\n'

_STEP = "TRAINCOST_STEP"
"""Delimiter of the here-document with the commands of a node."""


def _script(job: ExportRequest, program: Program, nodes: Nodes) -> str:
    head = (
        "#!/bin/bash",
        f"#SBATCH --job-name={NAME}",
        f"#SBATCH --nodes={nodes.count}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={nodes.gpus_each}",
        "#SBATCH --exclusive",
    )
    commands = script_of(program, nodes)
    step = f'commands="$(cat <<\'{_STEP}\'\n{commands}{_STEP}\n)"\nsrun --ntasks-per-node=1 bash -c "$commands"\n'
    return "\n".join(head) + f"\n\nset -euo pipefail\n{_EXPORT_MASTER}{step}"


SBATCH = launcher("sbatch", _script)


SECONDS_PER_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob(Strict):
    """A job as Slurm's hooks describe it."""

    script: Annotated[str, MaxLen(LONGEST_FILE_BYTES)]
    """The batch script."""
    nodes: Annotated[int, Ge(1), Le(1 << 20)] = 1
    """Least number of nodes."""
    tres_per_node: Annotated[str, MaxLen(1024)] = ""
    """Resources of each node, such as gres/gpu:h100:8."""
    tres_per_job: Annotated[str, MaxLen(1024)] = ""
    """Resources of all nodes together."""
    tasks: Annotated[int, Ge(1), Le(1 << 24)] | None = None
    """Tasks in all; one for each node where null."""
    tres_per_task: Annotated[str, MaxLen(1024)] = ""
    """Resources of each task; read where neither tres_per_node nor tres_per_job names GPUs."""
    tres_per_socket: Annotated[str, MaxLen(1024)] = ""
    """Resources of each socket, whose number only the node says: such GPUs are not counted."""
    tasks_per_node: Annotated[int, Ge(1), Le(1 << 16)] | None = None
    """Tasks of each node; null where the job does not give them."""
    component: Annotated[int, Ge(0), Le(1 << 16)] | None = None
    """Number of this component of a heterogeneous job; null for a job of one kind of nodes."""
    arguments: Annotated[tuple[Annotated[str, MaxLen(4096)], ...], MaxLen(1024)] | None = None
    """Words after the script's name on the command line; null where they are not known."""
    environment: Annotated[Mapping[str, Annotated[str, MaxLen(4096)]], MaxLen(1024)] = field(default_factory=dict)
    """Variables of the environment that the job is submitted with, as far as the script names them."""
    files: Annotated[Mapping[str, Annotated[str, MaxLen(LONGEST_FILE_BYTES)]], MaxLen(MOST_FILES)] = field(
        default_factory=dict
    )
    """Files that the script names, by name; those that its training does not read are left aside."""
    time_limit_minutes: Annotated[int, Ge(1), Le(1 << 24)] | None = None
    """Requested wall time; null where the job requests none."""


def scheduled_by_slurm(job: SlurmJob, overrides: dict[str, Any]) -> Scheduled:
    """The job that a hook describes, with its GPUs counted."""
    if job.component is not None or _COMPONENT.search(job.script):
        message = "the components of a heterogeneous job are submitted apart, so its GPUs cannot be counted"
        raise _refusal("heterogeneous", message, "check it by hand: POST /v1/check with all of its GPUs")
    tasks = job.nodes if job.tasks is None else job.tasks
    amounts = ((job.tres_per_node, job.nodes), (job.tres_per_job, 1), (job.tres_per_task, tasks))
    requested = ((name, each * times) for resources, times in amounts for name, each in [gpus_in(resources)] if each)
    name, gpus = next(requested, (None, 0))
    if not gpus and gpus_in(job.tres_per_socket)[1]:
        message = "the job asks for GPUs of each socket, and the number of sockets is not known before it runs"
        raise _refusal("gpus_per_socket", message, "ask for GPUs of each node, e.g. --gpus-per-node=8")
    if not gpus:
        message = "the job asks for no GPU, so there is nothing to check"
        raise _refusal("no_gpus", message, "ask for GPUs, e.g. --gpus-per-node=8")
    each = -(-gpus // job.nodes)
    variables = {**job.environment, **_variables(job, tasks, each)}
    limit = None if job.time_limit_minutes is None else job.time_limit_minutes * SECONDS_PER_MINUTE
    return Scheduled(
        script=job.script,
        files=job.files,
        job=Job(variables=variables, arguments=job.arguments),
        gpus=gpus,
        gpus_each=each,
        gpu=name,
        time_limit_seconds=limit,
        overrides=overrides,
    )


def _variables(job: SlurmJob, tasks: int, gpus_each: int) -> dict[str, str]:
    """Variables that Slurm sets for the script. Source: Slurm 22.05, sbatch(1), OUTPUT ENVIRONMENT VARIABLES."""
    found = {
        **dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES"), job.nodes),
        **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), tasks),
        **dict.fromkeys(("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"), gpus_each),
    }
    if job.tasks_per_node is not None:
        found["SLURM_NTASKS_PER_NODE"] = job.tasks_per_node
    return {name: str(value) for name, value in found.items()}


def _refusal(code: str, message: str, fix: str) -> Refused:
    return Refused(Problem(field="tres_per_node", code=code, message=message, fix=fix))


_COMPONENT = re.compile(r"^#SBATCH[ \t]{1,99}(?:hetjob|packjob)\b", re.MULTILINE)
"""Line between the options of two components. Source: Slurm 22.05, sbatch(1)."""


_GPUS = re.compile(r"(?:^|[,/:])gpu(?:[:=]([A-Za-z][\w.-]{0,79}))?[:=](\d{1,6})(?=$|[,(])")
"""GPUs in Slurm's syntax: gpu:8, gres/gpu:h100:8, gres:gpu:h100:8."""


def gpus_in(resources: str) -> tuple[str | None, int]:
    """The GPUs in Slurm's resource syntax.

    >>> gpus_in("gres/gpu:h100:8"), gpus_in("gres:gpu:4"), gpus_in("cpu:4")
    (('h100', 8), (None, 4), (None, 0))
    """
    matches = _GPUS.findall(resources)
    named = next((name for name, _ in matches if name), None)
    return named, sum(int(count) for _, count in matches)
