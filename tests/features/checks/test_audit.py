"""Recorded jobs are checked as hooks would have checked them, whatever the records hold."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.catalogue import Catalogue
from service.errors import Refused
from service.features.checks.audit import JOBS, JobAudit, audit, records_of_file
from tests.features.checks.test_objects import LARGE, MEGATRON, SMALL, public, training

SITE = {"cluster": {"gpu": "h100"}}

TABLE = """\
JobID|Cluster|State|NNodes|ReqTRES|TimelimitRaw
11|hpc|COMPLETED|1|billing=8,cpu=8,gres/gpu:h100=8,gres/gpu=8,node=1|600
12_1|hpc|COMPLETED|1|cpu=8,gres/gpu=8,node=1|UNLIMITED
12_2|hpc|FAILED|1|cpu=8,gres/gpu=8,node=1|UNLIMITED
12_[3-9]|hpc|PENDING|1|cpu=8,gres/gpu=8,node=1|UNLIMITED
13|hpc|CANCELLED by 0|1|cpu=8,gres/gpu=8|10
14+0|hpc|RUNNING|1|cpu=8,gres/gpu=8|10
15|hpc|COMPLETED|1|cpu=8,node=1|10
16|hpc|COMPLETED|1|cpu=8,gres/gpu=8|10
what|is|this
"""


def scripts(**layers: int) -> str:
    texts = (
        f"Batch Script for {job[1:]}\n{'-' * 80}\n#!/bin/bash\nsrun torchrun {MEGATRON.format(layers=count)}\n\n"
        for job, count in layers.items()
    )
    return "".join(texts) + f"Batch Script for 16\n{'-' * 80}\n#!/bin/bash\nhostname\n"


def audited(folder: Path, catalogue: Catalogue, text: str, printed: str | None = None) -> JobAudit:
    (folder / "file").write_text(text, encoding="utf-8")
    (folder / "scripts").write_text(printed or "", encoding="utf-8")
    records = records_of_file(str(folder / "file"), None if printed is None else str(folder / "scripts"), SITE)
    return audit(records, catalogue, lambda _: None)


def test_jobs_of_slurm_are_checked_as_its_hook_checks_them(tmp_path: Path, catalogue: Catalogue) -> None:
    found = audited(tmp_path, catalogue, TABLE, scripts(j11=SMALL, j12=LARGE, j14=SMALL))
    assert [(one.job, one.state, one.gpus, one.verdict, one.not_judged) for one in found.jobs] == [
        ("11", "COMPLETED", 8, "ok", None),
        ("12_1", "COMPLETED", 8, "deny", None),
        ("13", "CANCELLED", 8, "unknown", "no_script"),
        ("14+0", "RUNNING", 8, "unknown", "heterogeneous"),
        ("16", "COMPLETED", 8, "unknown", "no_training"),
    ]
    assert found.verdicts == {"ok": 1, "deny": 1, "unknown": 3}
    assert found.not_judged == {"no_script": 1, "heterogeneous": 1, "no_training": 1}
    assert (found.denied_but_completed, found.passed_over, found.unreadable) == (1, 1, 1)
    assert found.jobs[0].estimate is not None


@pytest.mark.parametrize("form", ["list", "List", "events", "lines"])
def test_objects_of_kubernetes_are_checked_as_the_webhook_checks_them(
    form: str, tmp_path: Path, catalogue: Catalogue
) -> None:
    objects = [
        training("job", SMALL),
        training("jobset", LARGE),
        public("mpijob"),
        public("cronjob"),
        {"kind": "Secret"},
    ]
    for one in objects[:3]:
        one["metadata"].pop("annotations", None)
    objects[1]["status"] = {"conditions": [{"type": "Completed", "status": "True"}]}
    events: list[Any] = [
        {"kind": "Event", "apiVersion": "audit.k8s.io/v1", "verb": verb, "requestObject": one}
        for one in objects
        for verb in ("create", "patch")
    ]
    text = {
        "list": json.dumps(objects),
        "List": json.dumps({"kind": "List", "items": objects}),
        "events": json.dumps({"kind": "EventList", "items": events}),
        "lines": "\n".join(map(json.dumps, events)),
    }[form]
    found = audited(tmp_path, catalogue, text)
    assert [(one.job, one.verdict) for one in found.jobs] == [
        ("Job axolotl-training/gemma3-melanoma-training", "ok"),
        ("JobSet tpu-multislice-jax", "deny"),
        ("MPIJob tensorflow-benchmarks", "unknown"),
    ]
    assert (found.denied_but_completed, found.passed_over, found.unreadable) == (1, 2, 0)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 10_000 + "]" * 10_000,
        '[{"kind": "Job", "spec": {"parallelism": ' + "9" * 5000 + "}}]",
        '{"kind": "Job", "kind": "Job"',
    ],
)
def test_a_file_that_is_no_json_is_refused(text: str, tmp_path: Path, catalogue: Catalogue) -> None:
    with pytest.raises(Refused) as refused:
        audited(tmp_path, catalogue, text)
    assert [one.code for one in refused.value.problems] == ["not_json"]


def test_records_that_cannot_be_read_are_counted(tmp_path: Path, catalogue: Catalogue) -> None:
    records = ['{"kind": "Job", "spec": NaN}', '"\\ud800"', "7", "null", '{"kind": 1e999}', "[" * 9999]
    for text, unreadable in ((f"[{', '.join(records[:-1])}]", 5), ("\n".join(records), 6)):
        found = audited(tmp_path, catalogue, text)
        assert (found.jobs, found.unreadable) == ((), unreadable)


def test_a_table_without_its_columns_is_refused(tmp_path: Path, catalogue: Catalogue) -> None:
    for text in ("", "JobID|State\n1|COMPLETED\n"):
        with pytest.raises(Refused) as refused:
            audited(tmp_path, catalogue, text)
        assert JOBS in refused.value.problems[0].fix
