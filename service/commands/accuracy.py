"""How near do predictions come? The shipped measurements, a table of one's own, or whole published runs."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from service.commands.options import AsJson

if TYPE_CHECKING:
    from service.workflows.accuracy.answers import Accuracy
    from service.workflows.accuracy.judged import Judged

app = typer.Typer()


@app.command()
def accuracy(
    file: Annotated[str | None, typer.Argument(help="Table of measurements; the shipped ones where absent.")] = None,
    *,
    as_json: AsJson = False,
    rows: Annotated[str | None, typer.Option(help="Write what became of each row to this CSV file.")] = None,
    own: Annotated[bool, typer.Option("--own", help="Add own measurements, of the database of the settings.")] = False,
    totals: Annotated[bool, typer.Option("--totals", help="Compare the GPU-hours of published runs instead.")] = False,
) -> None:
    """How near do predictions come to published measurements of memory and of step time?"""
    if totals:
        if own:
            raise typer.BadParameter("--totals compares published runs, and own measurements are none: leave --own out")
        _totals_accuracy(file, rows, as_json=as_json)
        return
    from service.catalogue import shipped_catalogue
    from service.validation.serialization import to_bytes
    from service.workflows.accuracy.accuracy import accuracy_of_judged, shipped_accuracy
    from service.workflows.accuracy.files import refuse_same_file, write_file
    from service.workflows.accuracy.tables import accuracy_text, rows_csv
    from service.workflows.accuracy.written import PUBLISHED

    if rows is not None:
        refuse_same_file(PUBLISHED if file is None else file, rows)
    if file is None and rows is None:
        found = shipped_accuracy()
    else:
        judged = _judged(file)
        found = accuracy_of_judged(judged, shipped_catalogue())
        if rows is not None:
            write_file(rows, rows_csv(judged))
    if own:
        found = _with_own(found)
    typer.echo(to_bytes(found) if as_json else accuracy_text(found))


def _judged(file: str | None) -> "tuple[Judged, ...]":
    """Predictions beside the rows of a table, or beside those that the package ships."""
    from service.calibration.tables import shipped_rows
    from service.catalogue import shipped_catalogue
    from service.workflows.accuracy.files import read_file
    from service.workflows.accuracy.judging import judge_all

    rows = (*shipped_rows(), *shipped_rows("throughput")) if file is None else read_file(file)
    return judge_all(rows, shipped_catalogue())


def _with_own(found: "Accuracy") -> "Accuracy":
    """The figures with those of own measurements."""
    from service.commands.database import database
    from service.store import load_catalogue
    from service.store.callers import ANYBODY, TEAM
    from service.workflows.accuracy.measured import own_groups

    with database() as engine:
        own = own_groups(engine, ANYBODY, load_catalogue(engine).view(TEAM))
        return replace(found, measured=replace(found.measured, own=own))


def _totals_accuracy(file: str | None, rows: str | None, *, as_json: bool) -> None:
    from service.validation.serialization import to_bytes
    from service.workflows.accuracy.totals import totals_accuracy
    from service.workflows.accuracy.totals_tables import totals_text

    if file is not None or rows is not None:
        message = "--totals compares the published runs that ship with the package, and takes no table and no --rows"
        raise typer.BadParameter(message)
    typer.echo(to_bytes(totals_accuracy()) if as_json else totals_text(totals_accuracy()))
