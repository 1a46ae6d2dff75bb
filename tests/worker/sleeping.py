"""How is a job of tests done? As a launch check is, but by a process that sleeps."""

from typing import Any

from service.worker.jobs import JobContext, JobResult, record_of
from service.worker.runners import Task

MODULE = "tests.worker.sleeper"


async def sleep(desk: JobContext) -> JobResult:
    task: dict[str, Any] = {"probe": "sleep", **desk.job.payload}
    errand = Task(task=task, folder=desk.folder, module=MODULE, most_seconds=60.0)
    record = await record_of(desk.runner, errand, desk.report)
    return JobResult(outcome="succeeded", result={"record": record, "attempt": desk.job.attempt})
