"""Commands that answer questions here, and launch checks, which a running service answers."""

from collections.abc import Mapping
from inspect import Parameter, Signature
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from service.catalogue import shipped_catalogue
from service.cli import console
from service.cli.reports import (
    comparison_report,
    describe_counts,
    describe_event,
    diagnosis_report,
    launch_check_csv,
    launch_check_report,
    plans_csv,
    plans_report,
    report,
    solution_report,
    table_report,
)
from service.errors import Refused
from service.validation.flat import ALIASES, COMMAND_LINE, body_of_flat, flat_fields, flat_name, rephrased
from service.validation.other_names import names_without_field, other_names, plain

app = console.CommandGroup()


@console.no_garbage_collection()
def _estimate(*, as_json: bool, **given: list[str] | None) -> None:
    """Estimate a training job. Needs no server and no database; repeat an option for a list."""
    from service.features.estimates.answers import answer
    from service.features.estimates.planned import planned
    from service.validation.questions import read_question

    catalogue = shipped_catalogue()
    try:
        body = body_of_flat(_parameters(given))
        result = answer(read_question(body, catalogue, planner=planned), catalogue)
    except Refused as refused:
        raise Refused(*(rephrased(problem, COMMAND_LINE) for problem in refused.problems)) from None
    console.print_answer(result, report, as_json=as_json)


def _parameters(given: Mapping[str, list[str] | None]) -> list[tuple[str, str]]:
    return [("model" if name == MODEL.name else name, text) for name, texts in given.items() for text in texts or ()]


METAVARS = {
    **{"integer": "INT", "integers": "INT:INT", "number": "NUM", "numbers": "NUM:NUM"},
    **{"truth": "BOOL", "text": "NAME"},
}

GIVEN = f"{__name__}.given"
"""Entry of a context: the option names on the command line."""


class QuestionCommand(console.StrictCommand):
    """A command with an option for each field of a question; to read all of them would take longer than an estimate."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options that are given; all of them where one is unknown, so that the nearest can be named."""
        args = [_own_option(word) for word in args]
        words = {word.partition("=")[0] for word in args if word.startswith("--")}
        if words <= {name for option in self.params for name in option.opts}:
            ctx.meta[GIVEN] = words
        rest = super().parse_args(ctx, args)
        for option in self.params:
            ctx.params.setdefault(option.name, None)  # typer would take the value of an earlier call in this process
        return rest

    def get_params(self, ctx: Any) -> list[Any]:
        """The options that are read."""
        options, given = console.without_converters(super().get_params(ctx)), ctx.meta.get(GIVEN)
        if given is None:
            return options
        optional = {*flat_fields(), *BESIDE}
        return [option for option in options if option.name not in optional or given.intersection(option.opts)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help with the description of each field."""
        for option in self.params:
            if isinstance(option, TyperOption) and (field := flat_fields().get(option.name or "")) is not None:
                choices = f" One of {', '.join(map(str, field.choices))}." if field.choices else ""
                option.help = f"{field.meaning}{choices}"
        super().format_help(ctx, formatter)


def _own_option(word: str) -> str:
    """An option by its field's name, where another tool's is given."""
    name, mark, text = word.partition("=")
    meant = other_names().get(plain(name), ()) if name.startswith("--") else ()
    known = flat_name(meant[0]) if len(meant) == 1 else ""
    return f"{COMMAND_LINE.name(known)}{mark}{text}" if known in flat_fields() else word


def _option(name: str, metavar: str, panel: str, meaning: str | None = None) -> Parameter:
    """An option of the command line that may be repeated, with the other names of its field."""
    names = [name, *(alias for alias, field in ALIASES.items() if field == name)]
    option = typer.Option(*map(COMMAND_LINE.name, names), help=meaning, metavar=metavar, rich_help_panel=panel)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, option])


def _hidden(name: str) -> Parameter:
    option = typer.Option(COMMAND_LINE.name(name), hidden=True)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, option])


_MODEL = typer.Argument(metavar="MODEL", help="Name of the model, as --model takes it.")
MODEL = Parameter("model_name", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, _MODEL])
BESIDE = names_without_field()
"""Names of other tools that no field has, read as in JSON."""
FIELDS = [_option(field.name, METAVARS[field.form], field.path[0].capitalize()) for field in flat_fields().values()]
ORDERS = {
    "pair": "product: all combinations. zip: the first cluster at the first price, and so on.",
    "sort_by": "Number to sort by; cost_usd, or else gpu_hours, or step_seconds where absent.",
    "descending": "true for the largest first.",
    "columns": "Number of each row, as cells name it; repeat it for more.",
}
AS_JSON = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=console.AsJson)
AS_CSV = Parameter("as_csv", Parameter.KEYWORD_ONLY, default=False, annotation=console.AsCsv)


def _add(name: str, command: Any, *options: Parameter) -> None:
    command.__signature__ = Signature(options)
    app.command(name, cls=QuestionCommand)(command)


_add("estimate", _estimate, AS_JSON, MODEL, *FIELDS, *(_hidden(name) for name in BESIDE))


def _compare(*, as_json: bool, as_csv: bool, **given: Any) -> None:
    """Compare clusters and prices for a job. Repeat their options: all combinations are compared."""
    from service.features.compare.compare import MetricTable, compare
    from service.features.compare.schemas import OTHER_FIELDS, body_of_flat_comparison, flat_problem

    try:
        body = body_of_flat_comparison(_parameters(given))
        result = compare(body, shipped_catalogue())
    except Refused as refused:
        problems = (rephrased(flat_problem(problem), COMMAND_LINE, OTHER_FIELDS) for problem in refused.problems)
        raise Refused(*problems) from None
    console.print_answer(
        result, comparison_report, as_json=as_json, as_csv=as_csv, csv=MetricTable.csv, json_form=attrgetter("answer")
    )


ROWS = [_option(name, "NAME", "Rows", meaning) for name, meaning in ORDERS.items()]
_add("compare", _compare, AS_JSON, AS_CSV, MODEL, *FIELDS, *ROWS)


@app.command()
def plan(file: console.Body, *, as_json: console.AsJson = False, as_csv: console.AsCsv = False) -> None:
    """Search the best layouts of a job. The answer of POST /v1/plans; a long search prints its progress on stderr."""
    from service.answers.plans import PlanAnswer
    from service.features.plans.search_plans import search
    from service.validation.json_text import body_in

    with console.Progress() as progress:
        for step in search(body_in(file), shipped_catalogue()):
            if isinstance(step, PlanAnswer):
                answer = step
            else:
                progress.report(f"so far {describe_counts(step)}")
    console.print_answer(answer, plans_report, as_json=as_json, as_csv=as_csv, csv=plans_csv)


@app.command()
def solve(file: console.Body, *, as_json: console.AsJson = False) -> None:
    """Solve for an open field: the value that suffices, and the next that does not. The answer of POST /v1/solve."""
    from service.features.solve.solve import solve as solution_of
    from service.validation.json_text import body_in

    console.print_answer(solution_of(body_in(file), shipped_catalogue()), solution_report, as_json=as_json)


@app.command()
def diagnose(
    file: console.Body,
    message: Annotated[str | None, typer.Argument(help="File that holds the message; else the body holds it.")] = None,
    *,
    as_json: console.AsJson = False,
) -> None:
    """Diagnose an out-of-memory error, with changes that help. The answer of POST /v1/diagnose."""
    from service.features.diagnose.diagnose import diagnose as diagnosis_of
    from service.validation.json_text import body_in, text_in

    text = {} if message is None else {"message": text_in(message)}
    diagnosis = diagnosis_of({**body_in(file), **text}, shipped_catalogue())
    console.print_answer(diagnosis, diagnosis_report, as_json=as_json)


@app.command()
def profile(
    trace: Annotated[str, typer.Argument(help="Trace of torch.profiler, .json or .json.gz; - for standard input.")],
    question: Annotated[
        str | None, typer.Argument(help="JSON file with the question that it is compared with.")
    ] = None,
    *,
    records: Annotated[
        Path | None, typer.Option(help="File to write the matrix products to, for measurements.")
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Show where the time of a training step goes, beside its prediction. The answer of POST /v1/profiles."""
    from service.calibration.traces import MOST_BYTES
    from service.catalogue import shipped_catalogue
    from service.cli.reports import profile_report
    from service.features.profiles.profiles import profile as profile_of
    from service.validation.json_text import body_in, bytes_in
    from service.validation.reading import to_bytes

    body = None if question is None else body_in(question)
    result = profile_of(bytes_in(trace, MOST_BYTES), body, shipped_catalogue(), has_records=records is not None)
    if records is not None:
        records.write_bytes(to_bytes({"records": result.records}))
    console.print_answer(result, profile_report, as_json=as_json)


@app.command()
def sensitivity(file: console.Body, *, as_json: console.AsJson = False, as_csv: console.AsCsv = False) -> None:
    """Vary the fields of a question. The table of POST /v1/sensitivity."""
    from service.features.compare.compare import MetricTable
    from service.features.sensitivity.vary import vary
    from service.validation.json_text import body_in

    varied = vary(body_in(file), shipped_catalogue())
    console.print_answer(
        varied, table_report, as_json=as_json, as_csv=as_csv, csv=MetricTable.csv, json_form=attrgetter("answer")
    )


@app.command()
def sweep(
    file: console.Body,
    *,
    out: Annotated[Path, typer.Option(help="Table to write: a name that ends with .parquet or .csv.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the existing table.")] = False,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes; one a core where absent.")] = None,
) -> None:
    """Every combination of some models, clusters, prices, recipes and layouts, as a table. Run it again to continue."""
    from service.features.sweeps.rows import Counts
    from service.features.sweeps.schemas import read_sweep
    from service.features.sweeps.shards import TableExists, cores, run_locally
    from service.validation.json_text import body_in

    if out.exists() and not replace:
        raise TableExists(f"{out} is there already; name another file, or say --replace")
    request = read_sweep(body_in(file), shipped_catalogue())
    with console.Progress() as progress:

        def report(counts: Counts) -> None:
            progress.report(f"{counts.rows:,} of {request.axes.rows:,} rows")

        counts = run_locally(request, out, processes or cores(), report)
    typer.echo(
        f"{counts.rows:,} rows in {out}: {counts.answered:,} answered, {counts.fitting:,} of them fit, "
        f"{counts.refused:,} refused"
    )


NoWait = Annotated[bool, typer.Option("--no-wait", help="Print the queued launch check, and do not wait.")]


@app.command("launch-check")
def launch_check(
    file: console.Body,
    *,
    no_wait: NoWait = False,
    url: console.Url = "http://localhost:8000",
    key: console.Key = None,
    as_json: console.AsJson = False,
    as_csv: console.AsCsv = False,
) -> None:
    """Measure parts of a job on a worker before it starts; the exit code of a no-go is 1."""
    from service.client.sending import Event
    from service.validation.json_text import body_in

    def report(event: Event) -> None:
        for line in describe_event(event.name, event.data):
            typer.echo(line, err=True)

    with console.connected(url, key) as client:
        created = client.launch_checks.create(body_in(file))
        check = created if no_wait else client.launch_checks.wait(created.id, report)
    console.print_answer(check, launch_check_report, as_json=as_json, as_csv=as_csv, csv=launch_check_csv)
    if check.verdict == "no-go":
        raise typer.Exit(1)
