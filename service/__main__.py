"""What can be done from the command line? `traincost serve`, and the same answers without a server."""

from contextlib import suppress
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from service import __version__
from service.errors import Refused, TraincostError
from service.workflows.dialects import COMMAND_LINE, retold
from service.workflows.flat import ALIASES, FlatField, body_of_flat, flat_fields

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> None:
    """Run one command; whatever is wrong is said in a line on stderr, with exit code 2."""
    try:
        app()
    except TraincostError as error:
        for line in _lines(error):
            typer.echo(f"traincost: {' '.join(line.split())}", err=True)
        raise SystemExit(2) from None


def _lines(error: TraincostError) -> list[str]:
    if isinstance(error, Refused):
        return [f"{problem.field}: {problem.message}; {problem.fix}" for problem in error.problems]
    return [str(error)]


def _say_version(wanted: object) -> None:
    if wanted:
        typer.echo(f"traincost {__version__}")
        raise typer.Exit


@app.callback()
def about(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """What it takes to train a large language model: bytes, FLOP, seconds and money."""


def _estimate(*, as_json: bool, **given: list[str] | None) -> None:
    """What does this training job take? Needs no server and no database; a list is a repeated option."""
    from service.catalogue import shipped_catalogue
    from service.workflows.estimates import answer
    from service.workflows.questions import read_question
    from service.workflows.report import report
    from service.workflows.wire import to_bytes

    catalogue = shipped_catalogue()
    try:
        body = body_of_flat([(name, text) for name, texts in given.items() for text in texts or ()])
        found = answer(read_question(body, catalogue), catalogue)
    except Refused as refused:
        raise Refused(*(retold(problem, COMMAND_LINE) for problem in refused.problems)) from None
    typer.echo(to_bytes(found) if as_json else report(found))


METAVARS = {
    "integer": "INT",
    "integers": "INT:INT",
    "number": "NUM",
    "numbers": "NUM:NUM",
    "truth": "BOOL",
    "text": "NAME",
}


def _option_of(field: FlatField) -> Parameter:
    """The command line option of one field of the flat form."""
    names = [field.name, *(alias for alias, name in ALIASES.items() if name == field.name)]
    option = typer.Option(
        *map(COMMAND_LINE.name, names),
        help=f"{field.meaning} One of {', '.join(map(str, field.choices))}." if field.choices else field.meaning,
        metavar=METAVARS[field.form],
        rich_help_panel=field.path[0].capitalize(),
    )
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, option])


AS_JSON = Parameter(
    "as_json",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--json", help="Print the answer as the API gives it.")],
)
ESTIMATE: Any = _estimate
ESTIMATE.__signature__ = Signature([AS_JSON, *map(_option_of, flat_fields().values())])
app.command("estimate")(ESTIMATE)


def _compare(*, as_json: bool, as_csv: bool, **given: Any) -> None:
    """Where is this job cheapest? Repeat options of the cluster and of the price: all combinations are compared."""
    from service.catalogue import shipped_catalogue
    from service.workflows.comparison import compare
    from service.workflows.comparison_flat import BESIDE, body_of_flat_comparison, told_flat
    from service.workflows.comparison_table import comparison_csv, comparison_report, whole_comparison
    from service.workflows.wire import to_bytes

    try:
        body = body_of_flat_comparison([(name, text) for name, texts in given.items() for text in texts or ()])
        found = compare(body, shipped_catalogue())
    except Refused as refused:
        raise Refused(*(retold(told_flat(problem), COMMAND_LINE, BESIDE) for problem in refused.problems)) from None
    if as_json:
        typer.echo(to_bytes(whole_comparison(found)))
    else:
        typer.echo(comparison_csv(found) if as_csv else comparison_report(found), nl=not as_csv)


def _order_option(name: str, meaning: str) -> Parameter:
    option = typer.Option(COMMAND_LINE.name(name), help=meaning, metavar="NAME", rich_help_panel="Rows")
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, option])


AS_CSV = Parameter(
    "as_csv",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--csv", help="Print a table for a spreadsheet.")],
)
ORDERS = (
    _order_option("pair", "product: all combinations. zip: the first cluster at the first price, and so on."),
    _order_option("sort_by", "Number to sort by; cost_usd, or else gpu_hours, or step_seconds where absent."),
    _order_option("descending", "true for the largest first."),
    _order_option("columns", "Number of each row, as cells name it; repeat it for more."),
)
COMPARE: Any = _compare
COMPARE.__signature__ = Signature([AS_JSON, AS_CSV, *map(_option_of, flat_fields().values()), *ORDERS])
app.command("compare")(COMPARE)


BODY = Annotated[str, typer.Argument(help="JSON file that holds what POST takes; - for standard input.")]


@app.command()
def solve(file: BODY) -> None:
    """Which value of an open field will do, and which is the next that will not? The answer of POST /v1/solve."""
    from service.catalogue import shipped_catalogue
    from service.workflows.body_file import body_in
    from service.workflows.solve import solve as solution_of
    from service.workflows.wire import to_bytes

    typer.echo(to_bytes(solution_of(body_in(file), shipped_catalogue())))


@app.command()
def sensitivity(
    file: BODY,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as the API gives it.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table for a spreadsheet.")] = False,
) -> None:
    """What changes if a field of the question changes? The table of POST /v1/sensitivity."""
    from service.catalogue import shipped_catalogue
    from service.workflows.body_file import body_in
    from service.workflows.sensitivity import vary
    from service.workflows.sensitivity_table import table_shown

    found = vary(body_in(file), shipped_catalogue())
    typer.echo(table_shown(found, "json" if as_json else "csv" if as_csv else "report"), nl=not as_csv)


@app.command(help="Answer over HTTP; the database is made, migrated and filled first.")
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (TRAINCOST_HOST, 127.0.0.1).")] = None,
    port: Annotated[str | None, typer.Option(help="Port, 0 for any free one (TRAINCOST_PORT, 8000).")] = None,
) -> None:
    """Answer over HTTP; the database is made, migrated and filled first.

    Args:
        host: address to listen on
        port: port to listen on
    """
    from service.api.app import create_app
    from service.api.server import address, listen, run
    from service.catalogue import shipped_catalogue
    from service.settings import read_settings
    from service.store import load_catalogue, prepare_database

    settings = read_settings(host=host, port=port)
    with listen(settings.host, settings.port) as listener:
        engine = prepare_database(settings.database_url, shipped_catalogue())
        application = create_app(settings, load_catalogue(engine), engine)
        url = f"http://{address(settings.host, listener.getsockname()[1])}"
        with suppress(KeyboardInterrupt):
            run(application, listener, settings, lambda: typer.echo(f"traincost answers at {url} (docs at {url}/docs)"))


@app.command()
def accuracy(
    file: Annotated[str | None, typer.Argument(help="Table of measurements; the shipped ones where absent.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as the API gives it.")] = False,
    rows: Annotated[str | None, typer.Option(help="Write what became of each row to this CSV file.")] = None,
    totals: Annotated[bool, typer.Option("--totals", help="Compare the GPU-hours of published runs instead.")] = False,
) -> None:
    """How near do predictions come to published measurements of memory and of step time?"""
    if totals:
        _totals_accuracy(file, rows, as_json=as_json)
        return
    from service.calibration.shipped import shipped_rows
    from service.catalogue import shipped_catalogue
    from service.workflows.accuracy.accuracy import accuracy_of_judged
    from service.workflows.accuracy.files import read_file, refuse_same_file, write_file
    from service.workflows.accuracy.judging import judge_all
    from service.workflows.accuracy.tables import accuracy_text, rows_csv
    from service.workflows.accuracy.written import PUBLISHED
    from service.workflows.wire import to_bytes

    if rows is not None:
        refuse_same_file(PUBLISHED if file is None else file, rows)
    catalogue = shipped_catalogue()
    shipped = (*shipped_rows(), *shipped_rows("throughput"))
    judged = judge_all(shipped if file is None else read_file(file), catalogue)
    found = accuracy_of_judged(judged, catalogue)
    if rows is not None:
        write_file(rows, rows_csv(judged))
    typer.echo(to_bytes(found) if as_json else accuracy_text(found))


def _totals_accuracy(file: str | None, rows: str | None, *, as_json: bool) -> None:
    from service.workflows.accuracy.totals import totals_accuracy
    from service.workflows.accuracy.totals_tables import totals_text
    from service.workflows.wire import to_bytes

    if file is not None or rows is not None:
        message = "--totals compares the published runs that ship with the package, and takes no table and no --rows"
        raise typer.BadParameter(message)
    typer.echo(to_bytes(totals_accuracy()) if as_json else totals_text(totals_accuracy()))


@app.command()
def write_accuracy() -> None:
    """Write the figures of the shipped measurements into service/calibration/README.md."""
    from service.workflows.accuracy import written
    from service.workflows.accuracy.accuracy import shipped_accuracy

    typer.echo(written.write_accuracy(shipped_accuracy()))


@app.command()
def write_measurements(file: Annotated[str, typer.Argument(help="Table of measurements.")]) -> None:
    """Trim a table of measurements to the columns used and ship it (service/calibration/published)."""
    from service.workflows.accuracy import written
    from service.workflows.accuracy.files import content_of

    typer.echo(written.write_measurements(content_of(file)))


@app.command()
def write_held_out() -> None:
    """Fit step times without each source in turn and ship what is then predicted of it."""
    from service.catalogue import shipped_catalogue
    from service.workflows.accuracy import written

    file, spreads = written.write_held_out(shipped_catalogue())
    typer.echo(file)
    for name, spread in sorted(spreads.items()):
        typer.echo(f"step_residuals.RESIDUALS: {name} {spread}")


@app.command()
def write_formulas() -> None:
    """Write the index of formulas (service/estimator/README.md) from their docstrings."""
    from service.workflows.formula_index import write_formula_index

    typer.echo(write_formula_index())


@app.command()
def write_openapi() -> None:
    """Write the contract (openapi/openapi.json) from the routes and the dataclasses."""
    from service.api.app import create_app
    from service.api.contract import write_contract
    from service.catalogue import shipped_catalogue
    from service.settings import Settings

    typer.echo(write_contract(create_app(Settings(), shipped_catalogue())))


if __name__ == "__main__":
    main()
