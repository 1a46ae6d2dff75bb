"""Which questions can be typed option by option? What a job takes, and where it is cheapest."""

from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from service.commands.options import AsCsv, AsJson
from service.errors import Refused
from service.validation.error_styles import COMMAND_LINE, retold
from service.validation.flat import ALIASES, FlatField, body_of_flat, flat_fields

app = typer.Typer()


def _estimate(*, as_json: bool, **given: list[str] | None) -> None:
    """What does this training job take? Needs no server and no database; a list is a repeated option."""
    from service.catalogue import shipped_catalogue
    from service.features.estimates.answers import answer
    from service.features.estimates.report import report
    from service.validation.questions import read_question
    from service.validation.serialization import to_bytes

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


AS_JSON = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)
ESTIMATE: Any = _estimate
ESTIMATE.__signature__ = Signature([AS_JSON, *map(_option_of, flat_fields().values())])
app.command("estimate")(ESTIMATE)


def _compare(*, as_json: bool, as_csv: bool, **given: Any) -> None:
    """Where is this job cheapest? Repeat options of the cluster and of the price: all combinations are compared."""
    from service.catalogue import shipped_catalogue
    from service.features.compare.compare import compare
    from service.features.compare.requests import BESIDE, body_of_flat_comparison, told_flat
    from service.features.compare.tables import comparison_csv, comparison_report, whole_comparison
    from service.validation.serialization import to_bytes

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


AS_CSV = Parameter("as_csv", Parameter.KEYWORD_ONLY, default=False, annotation=AsCsv)
ORDERS = (
    _order_option("pair", "product: all combinations. zip: the first cluster at the first price, and so on."),
    _order_option("sort_by", "Number to sort by; cost_usd, or else gpu_hours, or step_seconds where absent."),
    _order_option("descending", "true for the largest first."),
    _order_option("columns", "Number of each row, as cells name it; repeat it for more."),
)
COMPARE: Any = _compare
COMPARE.__signature__ = Signature([AS_JSON, AS_CSV, *map(_option_of, flat_fields().values()), *ORDERS])
app.command("compare")(COMPARE)
