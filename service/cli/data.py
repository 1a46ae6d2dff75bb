"""Commands for measurements, accuracy and the check of jobs against estimates, and those that write generated files."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from inspect import getdoc, getmembers, getsource, isfunction
from itertools import pairwise
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.console import AsCsv, AsJson, CommandGroup, Key, Url, connected, database, print_answer
from service.source_tree import write_generated

if TYPE_CHECKING:
    from service.answers.accuracy import Accuracy
    from service.calibration.tables import MeasuredRow

app = CommandGroup()

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

    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from None
    with database() as engine, by_command("importMeasurements"):
        stored = import_file(engine, load_catalogue(engine).view(TEAM), kind, content, file.name, tell or [])
    print_answer(
        stored,
        lambda run: f"{run.measurements} measurements came in as run {run.run}; {run.quarantined} are in quarantine",
        as_json=as_json,
    )


@app.command()
def accuracy(  # noqa: PLR0913 - each is an option of the command
    file: Annotated[str | None, typer.Argument(help="Table of measurements; the shipped ones where absent.")] = None,
    *,
    as_json: AsJson = False,
    rows: Annotated[str | None, typer.Option(help="Write the result of each row to this CSV file.")] = None,
    points: Annotated[str | None, typer.Option(help="Write every held-out point to this CSV file.")] = None,
    own: Annotated[
        bool, typer.Option("--own", help="Add custom measurements, from the database of the settings.")
    ] = False,
    totals: Annotated[bool, typer.Option("--totals", help="Compare the GPU-hours of published runs instead.")] = False,
    predict: Annotated[
        bool, typer.Option("--predict", help="Predict the steps of the table; its measured columns are not read.")
    ] = False,
    out: Annotated[str | None, typer.Option(help="File for the predictions of --predict.")] = None,
    reveal: Annotated[
        str | None, typer.Option(help="File of predictions, to be scored against the table's measured columns.")
    ] = None,
) -> None:
    """Compare predictions with published measurements of memory and of step time."""
    from service.cli.data_reports import accuracy_text, revealed_text, totals_text

    modes = {"--totals": totals, "--predict": predict, "--reveal": reveal is not None}
    _refuse_mixed(
        [name for name, is_on in modes.items() if is_on],
        file,
        {"--own": own, "--rows": rows, "--points": points, "--out": out},
    )
    if predict:
        _predict(str(file), out)
    elif reveal is not None:
        from service.catalogue import shipped_catalogue
        from service.evaluation.predictions import read_predictions, revealed

        predictions, table = read_predictions(_content(reveal)), _steps_of(str(file))
        print_answer(revealed(predictions, table, shipped_catalogue()), revealed_text, as_json=as_json)
    elif totals:
        from service.evaluation.totals import totals_accuracy

        print_answer(totals_accuracy(), totals_text, as_json=as_json)
    else:
        print_answer(_with_own(_scored(file, rows, points), own=own), accuracy_text, as_json=as_json)


def _refuse_mixed(modes: list[str], file: str | None, given: dict[str, Any]) -> None:
    """Refuse options that contradict each other, or lack their table."""
    if len(modes) > 1:
        raise typer.BadParameter(f"{' and '.join(modes)} ask for different things: give one of them")
    mode = modes[0] if modes else None
    if mode == "--totals" and (file is not None or given["--rows"] is not None or given["--points"] is not None):
        message = (
            "--totals compares the published runs that ship with the package; it takes no table, no --rows and no "
            "--points"
        )
        raise typer.BadParameter(message)
    if mode == "--totals" and given["--own"]:
        raise typer.BadParameter("--totals compares published runs, and own measurements are none: leave --own out")
    if mode in ("--predict", "--reveal") and file is None:
        raise typer.BadParameter(f"{mode} needs a table of steps: name its CSV file")
    forbidden = ["--own", "--rows", "--points"] if mode in ("--predict", "--reveal") else []
    needless = [name for name in [*forbidden, *(["--out"] if mode != "--predict" else [])] if given[name]]
    if needless:
        beside = f"beside {mode}" if mode else "without --predict"
        raise typer.BadParameter(f"{' and '.join(needless)} cannot be given {beside}: leave it out")


def _content(name: str) -> bytes:
    from service.evaluation.scoring import content_of

    return content_of(name)


def _steps_of(name: str) -> "tuple[MeasuredRow, ...]":
    from service.calibration.tables import THROUGHPUT
    from service.evaluation.scoring import read_file

    return read_file(name, THROUGHPUT)


def _predict(file: str, out: str | None) -> None:
    """Write predictions of a table of steps, and the digest by which they are known later."""
    from service.catalogue import shipped_catalogue
    from service.evaluation.predictions import predicted
    from service.evaluation.scoring import refuse_same_file, write_file
    from service.validation.reading import to_bytes

    predictions = predicted(_steps_of(file), shipped_catalogue())
    text = to_bytes(predictions).replace(b"},{", b"},\n{").decode() + "\n"
    if out is None:
        typer.echo(text, nl=False)
        return
    refuse_same_file(file, out)
    write_file(out, text)
    typer.echo(f"{len(predictions.predictions)} rows are predicted, {len(predictions.refused)} are not", err=True)
    typer.echo(f"digest {predictions.predictions_digest}", err=True)


def _with_own(scored: "Accuracy", *, own: bool) -> "Accuracy":
    """The accuracy with that on own measurements, where it is wanted."""
    if not own:
        return scored
    from service.evaluation.accuracy import own_groups
    from service.store.history import load_catalogue
    from service.store.keys import TEAM, UNRESTRICTED

    with database() as engine:
        groups = own_groups(engine, UNRESTRICTED, load_catalogue(engine).view(TEAM))
    return replace(scored, measured=replace(scored.measured, own=groups))


def _scored(file: str | None, rows: str | None, points: str | None) -> "Accuracy":
    """Predictions scored against a table, or against the shipped ones; rows and points go into CSV files."""
    from service.calibration.tables import shipped_rows
    from service.catalogue import shipped_catalogue
    from service.evaluation.accuracy import scored_rows
    from service.evaluation.scoring import evaluate_rows, read_file, refuse_same_file, write_file
    from service.evaluation.shipped import shipped_accuracy, shipped_points
    from service.evaluation.tables import PUBLISHED, points_csv, rows_csv

    for name in filter(None, (rows, points)):
        refuse_same_file(PUBLISHED if file is None else file, name)
    if file is None and rows is None:
        answer, held_out = shipped_accuracy(), shipped_points()
    else:
        published = (*shipped_rows(), *shipped_rows("throughput")) if file is None else read_file(file)
        evaluations = evaluate_rows(published, shipped_catalogue())
        scored = scored_rows(evaluations, shipped_catalogue(), with_runs=file is None)
        answer, held_out = scored.answer, scored.points
        if rows is not None:
            write_file(rows, rows_csv(evaluations))
    if points is not None:
        write_file(points, points_csv(held_out))
    return answer


@app.command()
def read_mlperf(
    logs: Annotated[list[Path], typer.Argument(help="result_*.txt of one system and benchmark.")],
    *,
    config: Annotated[Path, typer.Option(help="config_*.sh of the submission; scripts beside it are read, too.")],
    system: Annotated[Path, typer.Option(help="The system's description, systems/NAME.json.")],
    name: Annotated[str | None, typer.Option("--id", help="Name of the row; that of the system where absent.")] = None,
    source: Annotated[str, typer.Option(help="Where the files were published: repository, commit, folder.")] = "",
) -> None:
    """Print a submission to MLPerf Training as a table of steps, for `traincost accuracy`."""
    from service.calibration.tables import THROUGHPUT, MeasuredRow, trimmed_table
    from service.evaluation.mlperf import submission_of

    texts = [_content(str(file)).decode(errors="replace") for file in (*logs, config, system)]
    beside = {
        file.name: _content(str(file)).decode(errors="replace")
        for file in sorted(config.parent.glob("*.sh"))
        if file.is_file()
    }
    submission = submission_of(texts[:-2], texts[-2], beside, texts[-1], name=name or system.stem, source=source)
    typer.echo(trimmed_table([MeasuredRow(2, submission.cells, THROUGHPUT.name)], THROUGHPUT), nl=False)
    hours = submission.run_seconds * int(submission.cells["n_gpus"]) / 3600
    reached = f"{submission.runs} of {len(logs)} runs reached the target"
    typer.echo(f"{reached}, after {submission.samples} samples and {hours:.4g} GPU-hours in the median", err=True)


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
    from service.cli.data_reports import reconciliation_csv, reconciliation_report
    from service.features.reconcile.reconcile import SacctQuery, reconcile_output, sacct_output

    text = sacct_output(file, SacctQuery(since=since, until=until, cluster=cluster))
    with connected(url, key) as client:
        reconciled = reconcile_output(client.reconcile, text)
    print_answer(reconciled, reconciliation_report, as_json=as_json, as_csv=as_csv, csv=reconciliation_csv)


AuditFile = Annotated[
    str | None,
    typer.Argument(
        help="Objects of Kubernetes in JSON (kubectl get -o json, or the audit log), or a table of sacct; - for "
        "standard input; absent: sacct is called."
    ),
]
Scripts = Annotated[str | None, typer.Option(help="What sacct --batch-script printed of the jobs of the table.")]
Site = Annotated[str, typer.Option(help="What holds for every job, as in the address of a hook: gpu=h100.")]


@app.command()
def audit_jobs(
    file: AuditFile = None,
    *,
    scripts: Scripts = None,
    since: Since = None,
    until: Until = None,
    site: Site = "",
    as_json: AsJson = False,
) -> None:
    """Report which recorded jobs would have been denied, warned of or not judged. Needs no server."""
    from urllib.parse import parse_qsl

    from service.catalogue import shipped_catalogue
    from service.cli.console import Progress
    from service.cli.data_reports import audit_report
    from service.features.checks.audit import audit, records_of_file, records_of_sacct
    from service.validation.flat import body_of_flat

    if file is not None and (since or until):
        raise typer.BadParameter(
            "--since and --until choose what sacct is asked for, and a file holds what it answered"
        )
    parts = {name: part for name, part in body_of_flat(parse_qsl(site)).items() if part}
    records = records_of_sacct(since, until, parts) if file is None else records_of_file(file, scripts, parts)
    with Progress() as progress:
        audited = audit(records, shipped_catalogue(), progress.report)
    print_answer(audited, audit_report, as_json=as_json)


PANEL = "To work on traincost itself, in its source"


@app.command(rich_help_panel=PANEL)
def write_accuracy() -> None:
    """Score the shipped measurements anew; ship the answer, and write it into service/calibration/README.md."""
    from service.evaluation import tables
    from service.evaluation.shipped import write_shipped

    file, fresh = write_shipped()
    typer.echo(file)
    typer.echo(tables.write_accuracy(fresh))


@app.command(rich_help_panel=PANEL)
def write_measurements(file: Annotated[str, typer.Argument(help="Table of measurements.")]) -> None:
    """Trim a table of measurements to the columns used and ship it (service/calibration/published)."""
    from service.evaluation import tables
    from service.evaluation.scoring import content_of

    typer.echo(tables.write_measurements(content_of(file)))


@app.command(rich_help_panel=PANEL)
def write_held_out() -> None:
    """Fit step times without each source in turn and ship what is then predicted of it."""
    from service.catalogue import shipped_catalogue
    from service.evaluation import tables

    file, spreads = tables.write_held_out(shipped_catalogue())
    typer.echo(file)
    for name, spread in sorted(spreads.items()):
        typer.echo(f"step_residuals.RESIDUALS: {name} {spread}")


@app.command(rich_help_panel=PANEL)
def write_formulas() -> None:
    """Write the index of formulas (service/estimator/README.md) from their docstrings."""
    typer.echo(write_generated(INDEX, lambda: formula_index().encode()))


@app.command(rich_help_panel=PANEL)
def write_openapi() -> None:
    """Write the contract (openapi/openapi.json) from the routes and the dataclasses."""
    from service.app import create_app
    from service.catalogue import shipped_catalogue
    from service.openapi.document import write_contract
    from service.settings import Settings

    typer.echo(write_contract(create_app(Settings(), shipped_catalogue())))


INDEX = Path(__file__).parents[1] / "estimator" / "README.md"

_LETTER = re.compile(r"(?P<meaning>[^,;:.(]+), (?P<letter>[A-Za-z])(?=[ ;]|\.(?!\w))")
_NEXT_CASE = re.compile(r"\n|  +")

_HEADER = """\
# Formulas

Written by `traincost write-formulas` from the docstrings of this folder; a test compares the two.
Inside, every quantity is in base units: byte, s, FLOP, token, USD. [1] is a plain number.

## Letters

| letter | field | meaning |
|---|---|---|
"""


def formula_index() -> str:
    """The formulas of the estimator by file, each with its equation, unit and source."""
    from service import estimator

    letters = "".join(f"| {letter} | `{field}` | {meaning} |\n" for letter, field, meaning in _letters())
    names = sorted(module.name for module in walk_packages(estimator.__path__, f"{estimator.__name__}."))
    return _HEADER + letters + "".join(_section(import_module(name)) for name in names)


def _section(module: ModuleType) -> str:
    own = [f for name, f in getmembers(module, isfunction) if f.__module__ == module.__name__ and name[0] != "_"]
    rows = "".join(map(_row, sorted(own, key=lambda function: function.__code__.co_firstlineno)))
    if not rows:
        return ""
    path = Path(str(module.__file__)).relative_to(INDEX.parent).as_posix()
    summary = (getdoc(module) or "").partition("\n")[0]
    table = "| quantity | equation | unit | source |\n|---|---|---|---|\n"
    return f"\n## [{path}]({path})\n\n{summary}\n\n{table}{rows}"


def _row(function: Callable[..., Any]) -> str:
    from service.estimator.explain.docstrings import read_docstring

    docstring = read_docstring(function)
    cases = (case.strip() for case in _NEXT_CASE.split(docstring.sections.get("Formula", "")))
    equation = "<br>".join(f"`{case}`" for case in cases if case)
    if not equation:
        return ""
    quantity = f"`{function.__name__}`: {docstring.summary}"
    cells = (quantity, equation, docstring.unit or "", docstring.sections.get("Source", ""))
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |\n"


def _letters() -> Iterator[tuple[str, str, str]]:
    """Letter, field and meaning of every field of a question whose description names a letter."""
    from service.estimator import question

    for node in ast.parse(getsource(question)).body:
        for field, below in pairwise(getattr(node, "body", [])):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                found = _LETTER.match(str(ast.literal_eval(below.value)))
                if found:
                    yield found["letter"], ast.unparse(field.target), found["meaning"]
