"""Commands for measurements of other tools, accuracy, and the comparison of jobs with their estimates."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.console import AsCsv, AsJson, Key, Url, database

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
    from service.features.measurements.file_formats import import_file
    from service.store.history import load_catalogue
    from service.store.keys import TEAM
    from service.validation.serialization import to_bytes

    content = sys.stdin.buffer.read() if str(file) == "-" else _content(file)
    with database() as engine, by_command("importMeasurements"):
        kept = import_file(engine, load_catalogue(engine).view(TEAM), kind, content, file.name, tell or [])
    if as_json:
        typer.echo(to_bytes(kept))
    else:
        typer.echo(f"{kept.measurements} measurements came in as run {kept.run}; {kept.quarantined} are in quarantine")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from None


if TYPE_CHECKING:
    from service.answers.accuracy import Accuracy
    from service.evaluation.scoring import Evaluation


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
    if totals:
        if own:
            raise typer.BadParameter("--totals compares published runs, and own measurements are none: leave --own out")
        _totals_accuracy(file, rows, as_json=as_json)
        return
    from service.catalogue import shipped_catalogue
    from service.cli.accuracy_report import accuracy_text
    from service.evaluation.accuracy import accuracy_of_evaluations, shipped_accuracy
    from service.evaluation.scoring import refuse_same_file, write_file
    from service.evaluation.tables import PUBLISHED, rows_csv
    from service.validation.serialization import to_bytes

    if rows is not None:
        refuse_same_file(PUBLISHED if file is None else file, rows)
    if file is None and rows is None:
        found = shipped_accuracy()
    else:
        evaluations = _evaluations(file)
        found = accuracy_of_evaluations(evaluations, shipped_catalogue())
        if rows is not None:
            write_file(rows, rows_csv(evaluations))
    if own:
        found = _with_own(found)
    typer.echo(to_bytes(found) if as_json else accuracy_text(found))


def _evaluations(file: str | None) -> "tuple[Evaluation, ...]":
    """Predictions beside the rows of a table, or beside the shipped ones."""
    from service.calibration.tables import shipped_rows
    from service.catalogue import shipped_catalogue
    from service.evaluation.scoring import evaluate_rows, read_file

    rows = (*shipped_rows(), *shipped_rows("throughput")) if file is None else read_file(file)
    return evaluate_rows(rows, shipped_catalogue())


def _with_own(found: "Accuracy") -> "Accuracy":
    """The figures with those of custom measurements."""
    from service.evaluation.measured import own_groups
    from service.store.history import load_catalogue
    from service.store.keys import ANYBODY, TEAM

    with database() as engine:
        own = own_groups(engine, ANYBODY, load_catalogue(engine).view(TEAM))
        return replace(found, measured=replace(found.measured, own=own))


def _totals_accuracy(file: str | None, rows: str | None, *, as_json: bool) -> None:
    from service.cli.accuracy_report import totals_text
    from service.evaluation.totals import totals_accuracy
    from service.validation.serialization import to_bytes

    if file is not None or rows is not None:
        message = "--totals compares the published runs that ship with the package, and takes no table and no --rows"
        raise typer.BadParameter(message)
    typer.echo(to_bytes(totals_accuracy()) if as_json else totals_text(totals_accuracy()))


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
    from service.cli.console import connected
    from service.cli.reports import format_reconciliation
    from service.features.reconcile.sending import SacctQuery, reconcile_output, sacct_output

    text = sacct_output(file, SacctQuery(since=since, until=until, cluster=cluster))
    with connected(url, key) as client:
        found = reconcile_output(client.reconcile, text)
    typer.echo(format_reconciliation(found, "json" if as_json else "csv" if as_csv else "report"), nl=not as_csv)
