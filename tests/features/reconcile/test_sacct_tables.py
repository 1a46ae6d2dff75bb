"""Tables of `sacct --parsable2` are read, and their faults are named."""

import pytest

from service.errors import Refused
from service.features.reconcile.reconcile import read_sacct
from service.features.reconcile.slurm import COMMAND, finished_jobs, read_parsable

ESTIMATE = "est_0123456789abcdef0123456789abcdef"
OTHER = "est_fedcba9876543210fedcba9876543210"

HEADER = "JobID|State|ElapsedRaw|AllocTRES|Start|Comment"

REAL = """\
JobID|JobIDRaw|State|ElapsedRaw|Elapsed|AllocTRES|Start|End|Comment|AdminComment
1|1|COMPLETED|1|00:00:01|billing=1,cpu=1,gres/gpu:h100=1,gres/gpu=1|2026-11-23T07:27:37|2026-11-23T07:27:38|a|b {id}|
1.batch|1.batch|COMPLETED|1|00:00:01|cpu=1,gres/gpu:h100=1,gres/gpu=1,mem=0,node=1|2026-11-23T07:27:37|2026-11-23T07:27:38||
2|2|REQUEUED|4|00:00:04|billing=1,cpu=1,gres/gpu:h100=1,gres/gpu=1|2026-11-23T07:27:37|2026-11-23T07:27:41|{id}|
2.batch|2.batch|CANCELLED|4|00:00:04|cpu=1,gres/gpu:h100=1,gres/gpu=1,mem=0,node=1|2026-11-23T07:27:37|2026-11-23T07:27:41||
3|3|CANCELLED by 0|1|00:00:01|billing=1,cpu=1,gres/gpu:h100=1,gres/gpu=1|2026-11-23T07:27:40|2026-11-23T07:27:41|{id}|
6+0|6|PENDING|0|00:00:00||Unknown|Unknown||
6+1|7|PENDING|0|00:00:00||Unknown|Unknown||
""".replace("{id}", ESTIMATE)
"""What Slurm 22.05.8 printed on loopback, 2026-11-23."""

MIG = """\
JobID|AllocTRES
8117657|billing=64,cpu=9,gres/cpu=9,gres/gpu:a100_3g.20gb=1,gres/gpu=1,mem=60G,node=1
8117678|billing=192,cpu=16,gres/cpu=16,gres/gpu:h100=1,gres/gpu=1,mem=180G,node=1
"""
"""Source: https://github.com/neilmunday/slurm-mail/issues/142 (a comment of 2024-10-08)."""


def table(*rows: str, header: str = HEADER) -> str:
    return "\n".join((header, *rows)) + "\n"


def row(
    job: str = "7",
    state: str = "COMPLETED",
    elapsed: str = "3600",
    tres: str = "gres/gpu=8",
    start: str = "2026-11-23T07:00:00",
) -> str:
    return f"{job}|{state}|{elapsed}|{tres}|{start}|{ESTIMATE}"


def test_what_slurm_printed_is_read() -> None:
    found = read_parsable(REAL)
    assert (len(found.records), found.steps, found.faults) == (5, 2, ())
    jobs, others = finished_jobs(found.records)
    assert [(job.job_id, job.state, job.gpus, job.estimate_id) for job in jobs] == [
        ("1", "COMPLETED", 1, ESTIMATE), ("3", "CANCELLED", 1, ESTIMATE),
    ]  # fmt: skip
    assert {one.reason: one.jobs for one in others} == {"not_ended": 2}


def test_slices_are_told_from_gpus() -> None:
    rows = [line.split("|") for line in MIG.splitlines()[1:]]
    found = read_parsable(table(*(row(job, tres=tres) for job, tres in rows)))
    assert [(record.gpus, record.is_partition) for record in found.records] == [(1, True), (1, False)]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("1-02:03:04", 93_784.0), ("02:03.456", 123.456), ("00:00:02", 2.0), ("25:00:00", 90_000.0),
        ("365-00:00:00", 3.1536e7),
    ],
)  # fmt: skip
def test_lengths_of_time_are_read(written: str, seconds: float) -> None:
    found = read_parsable(table(row(elapsed=written), header=HEADER.replace("ElapsedRaw", "Elapsed")))
    assert [record.elapsed_seconds for record in found.records] == [seconds]


def test_models_are_added_up_where_the_sum_is_not_counted() -> None:
    found = read_parsable(table(row(tres="cpu=4,gres/gpu:a100=2,gres/gpu:h100=6,mem=1.5T")))
    assert [record.gpus for record in found.records] == [8]


def test_what_was_asked_for_stands_in_for_what_is_not_told() -> None:
    header = HEADER.replace("AllocTRES", "AllocTRES|ReqTRES")
    found = read_parsable(table(f"7|FAILED|60||gres/gpu=4,mem=10G|2026-11-23T07:00:00|{ESTIMATE}", header=header))
    assert [record.gpus for record in found.records] == [4]


def test_attempts_are_added_and_the_last_one_tells_the_end() -> None:
    rows = [row(state="NODE_FAIL", elapsed="1800"), row(state="PREEMPTED", elapsed="900"), row(elapsed="3600")]
    (job,), _ = finished_jobs(read_parsable(table(*rows)).records)
    assert (job.attempts, job.state, job.elapsed_seconds, job.gpu_hours) == (3, "COMPLETED", 6300, 8 * 6300 / 3600)


def test_components_are_one_job_unless_each_has_an_estimate() -> None:
    parts = [row("9+0", tres="gres/gpu=8"), row("9+1", "FAILED", "1800", "gres/gpu=4").replace(ESTIMATE, "")]
    (job,), _ = finished_jobs(read_parsable(table(*parts)).records)
    assert (job.job_id, job.state, job.gpus, job.elapsed_seconds, job.gpu_hours) == ("9", "FAILED", 12, 3600, 10.0)
    both = [parts[0], parts[1] + OTHER]
    jobs, _ = finished_jobs(read_parsable(table(*both)).records)
    assert [(one.estimate_id, one.gpus) for one in jobs] == [(ESTIMATE, 8), (OTHER, 4)]


def test_tasks_are_jobs_and_those_that_wait_are_left_out() -> None:
    rows = [row("12_3"), row("12_4", "OUT_OF_MEMORY"), row("12_[5-9%2]", "PENDING", "0", "", "Unknown")]
    jobs, others = finished_jobs(read_parsable(table(*rows)).records)
    assert [(one.job_id, one.state) for one in jobs] == [("12_3", "COMPLETED"), ("12_4", "OUT_OF_MEMORY")]
    assert {one.reason: one.jobs for one in others} == {"not_ended": 1}


def test_jobs_that_never_began_are_left_out() -> None:
    _, others = finished_jobs(
        read_parsable(table(row(state="CANCELLED by 1000", elapsed="0", tres="", start="None"))).records
    )
    assert {one.reason: one.jobs for one in others} == {"never_started": 1}


@pytest.mark.parametrize("mark", ["|", "\x1f", ";", "\t"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_delimiters_and_line_ends_are_found_out(mark: str, ending: str) -> None:
    text = "\ufeff" + table(row(), row("8")).replace("|", mark).replace("\n", ending)
    assert [record.job_id for record in read_sacct(text).records] == ["7", "8"]


def test_rows_may_end_in_the_delimiter() -> None:
    text = table(row(), row("8").replace(ESTIMATE, f"a|b {ESTIMATE}")).replace("\n", "|\n")
    (one, other), _ = finished_jobs(read_parsable(text).records)
    assert (one.estimate_id, other.estimate_id) == (ESTIMATE, ESTIMATE)


WRONG = [
    ("", "empty", "sacct"),
    ("\n\n", "empty", "sacct"),
    (row() + "\n", "no_header", "--noheader"),
    ("sacct: error: Problem talking to the database\n", "no_header", "--noheader"),
    ("JobID             State  AllocTRES \n------------ ---------- ----------\n", "not_parsable", "--parsable2"),
    (table(row()).replace("|", ","), "comma", "between the columns"),
    (table(row(), header=HEADER.replace("AllocTRES", "AlocTRES")), "missing_column", "AllocTRES"),
    (table(header="JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode"), "missing_column", "--format"),
    (table(row(tres="gres/gpu=8K")), "unreadable", "without a unit"),
    (table(row(tres="gres/gpu:h100=eight")), "unreadable", "without a unit"),
    (table(row(elapsed="01:00:00")), "unreadable", "Elapsed"),
    (table(row(elapsed="1,5"), header=HEADER.replace("Raw", "")), "unreadable", "LC_ALL=C"),
    (table(row(start="Ystday 10:15")), "unreadable", "SLURM_TIME_FORMAT"),
    (table(row(state="OUT_OF_ME+")), "unreadable", "--parsable2"),
    (table(row(state="abgeschlossen")), "unreadable", "as it is printed"),
    (table(row(job="twelve")), "unreadable", "sacct itself"),
    (table("7|COMPLETED|3600"), "unreadable", "comments"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "fix"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_what_is_wrong_is_named_with_what_to_do(text: str, code: str, fix: str) -> None:
    with pytest.raises(Refused) as refused:
        read_sacct(text)
    problem = refused.value.problems[0]
    assert problem.code == code
    assert fix in problem.fix


def test_rows_that_cannot_be_read_are_named_and_others_read() -> None:
    found = read_parsable(table(row(), row("8", tres="gres/gpu=secret"), row("9"), "10|COMPLETED"))
    assert [record.job_id for record in found.records] == ["7", "9"]
    assert [(fault.place, fault.field) for fault in found.faults] == [("row 3", "AllocTRES"), ("row 5", "")]
    assert "secret" not in str(found.faults)


def test_the_command_that_is_told_prints_what_is_needed() -> None:
    columns = COMMAND.rpartition("=")[2].split(",")
    assert read_parsable("|".join(columns) + "\n").records == ()


def test_hostile_rows_are_named_and_many_others_read() -> None:
    long = [row(tres="gres/gpu=" + "," * 50_000), row(job="1_" + "[" * 50_000), row(elapsed="1" * 50_000)]
    many = table(*long, *[row(str(number)) for number in range(5_000)])
    found = read_parsable(many)
    assert (len(found.records), len(found.faults)) == (5_000, 3)
