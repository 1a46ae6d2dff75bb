"""Which kinds of jobs does a worker know? One function each."""

from collections.abc import Mapping
from typing import Any

from service.worker import launch_check, sweep_shard
from service.worker.claimed import Work

SWEEP = "sweep-shard"

WORK: dict[str, Work] = {
    "launch-check": launch_check.carry_out,
    SWEEP: sweep_shard.carry_out,
}
"""What does a job, by its kind."""


def work_of(capabilities: Mapping[str, Any]) -> dict[str, Work]:
    """What a worker asks for.

    Args:
        capabilities: what it can do

    Returns:
        what does a job, by each kind that it can do

    >>> sorted(work_of({"sweeps": True})), sorted(work_of({"sweeps": False}))
    (['launch-check', 'sweep-shard'], ['launch-check'])
    """
    return {kind: work for kind, work in WORK.items() if kind != SWEEP or capabilities.get("sweeps")}
