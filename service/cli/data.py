"""Commands for measurements of other tools, accuracy, and the comparison of jobs with their estimates."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.console import AsCsv, AsJson, Key, Url, connected, database, print_answer

if TYPE_CHECKING:
    from service.answers.accuracy import Accuracy

app = typer.Typer()

Format = Annotated[str, typer.Argument(help="nccl-tests, gemm-csv, memory-snapshot, or records (a worker's own).")]
File = Annotated[Path, typer.Argument(help="The file; - for what is piped in.", allow_dash=True)]
Facts = Annotated[
    list[str] | None,
    typer.Option("--tell", help="Facts that the file lacks: device=NAME, operation=all_gather, run=NAME; repeat it."),
]


@app.command("import-measurements")
def import_measurements(kind: Format, file: File, *, tell: Facts = None, as_json: AsJson = False) -> None:
    """Store measurements of another tool with their predictions, for calibrations."""
    import sys

    from service.features.accounts.audit import by_command
    from service.features.measurements.importing import import_file
    from service.store.history import load_catalogue
    from service.store.keys import TEAM

    content = sys.stdin.buffer.read() if str(file) == "-" else _content(file)
    with database() as engine, by_command("importMeasurements"):
        stored = import_file(engine, load_catalogue(engine).view(TEAM), kind, content, file.name, tell or [])
    print_answer(
        stored,
        lambda run: f"{run.measurements} measurements came in as run {run.run}; {run.quarantined} are in quarantine",
        as_json=as_json,
    )


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from None


@app.command()
def accuracy(
    file: Annotated[str | None, typer.Argument(help="Table of measurements; the shipped ones where absent.")] = None,
    *,
    as_json: AsJson = False,
    rows: Annotated[str | None, typer.Option(help="Write the result of each row to this CSV file.")] = None,
    own: Annotated[
        bool, typer.Option("--own", help="Add custom measurements, from the database of the settings.")
    ] = False,
    totals: Annotated[bool, typer.Option("--totals", help="Compare the GPU-hours of published runs instead.")] = False,
) -> None:
    """Compare predictions with published measurements of memory and of step time."""
    from service.cli.accuracy_report import accuracy_text, totals_text

    if totals:
        if own:
            raise typer.BadParameter("--totals compares published runs, and own measurements are none: leave --own out")
        if file is not None or rows is not None:
            message = "--totals compares the published runs that ship with the package; it takes no table and no --rows"
            raise typer.BadParameter(message)
        from service.evaluation.totals import totals_accuracy

        print_answer(totals_accuracy(), totals_text, as_json=as_json)
        return
    scored = _scored(file, rows)
    print_answer(_with_own(scored) if own else scored, accuracy_text, as_json=as_json)


def _scored(file: str | None, rows: str | None) -> "Accuracy":
    """Predictions scored against a table, or against the shipped ones; the result of each row goes into a CSV file."""
    from service.calibration.tables import shipped_rows
    from service.catalogue import shipped_catalogue
    from service.evaluation.accuracy import accuracy_of_evaluations, shipped_accuracy
    from service.evaluation.scoring import evaluate_rows, read_file, refuse_same_file, write_file
    from service.evaluation.tables import PUBLISHED, rows_csv

    if rows is not None:
        refuse_same_file(PUBLISHED if file is None else file, rows)
    elif file is None:
        return shipped_accuracy()
    published = (*shipped_rows(), *shipped_rows("throughput")) if file is None else read_file(file)
    evaluations = evaluate_rows(published, shipped_catalogue())
    scored = accuracy_of_evaluations(evaluations, shipped_catalogue())
    if rows is not None:
        write_file(rows, rows_csv(evaluations))
    return scored


def _with_own(scored: "Accuracy") -> "Accuracy":
    """The figures with those of custom measurements."""
    from service.evaluation.measured import own_groups
    from service.store.history import load_catalogue
    from service.store.keys import TEAM, UNRESTRICTED

    with database() as engine:
        own = own_groups(engine, UNRESTRICTED, load_catalogue(engine).view(TEAM))
        return replace(scored, measured=replace(scored.measured, own=own))


SacctFile = Annotated[
    str | None,
    typer.Argument(help="Output of sacct --parsable2 or --json; - for standard input; absent: sacct is called."),
]
Since = Annotated[
    str | None, typer.Option(help="Jobs since then, as sacct's --starttime takes it. Default: a week ago.")
]
Until = Annotated[str | None, typer.Option(help="Jobs until then, as sacct's --endtime takes it.")]
Cluster = Annotated[str | None, typer.Option(help="Jobs of these clusters, as sacct's --clusters takes it.")]


@app.command()
def reconcile(  # noqa: PLR0913 - each is an option of the command
    file: SacctFile = None,
    *,
    since: Since = None,
    until: Until = None,
    cluster: Cluster = None,
    url: Url = "http://localhost:8000",
    key: Key = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Compare jobs that ran with their estimates; the service reads the accounting of Slurm's sacct."""
    from service.cli.reports import reconciliation_csv, reconciliation_report
    from service.features.reconcile.reconcile import SacctQuery, reconcile_output, sacct_output

    text = sacct_output(file, SacctQuery(since=since, until=until, cluster=cluster))
    with connected(url, key) as client:
        reconciled = reconcile_output(client.reconcile, text)
    print_answer(reconciled, reconciliation_report, as_json=as_json, as_csv=as_csv, csv=reconciliation_csv)
