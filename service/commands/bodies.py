"""Which answers take a JSON body from a file? The best plans, an open field, a table of varied fields."""

from typing import Annotated

import typer

from service.commands.options import AsCsv, AsJson, Body
from service.commands.progress import Progress

app = typer.Typer()


@app.command()
def plan(file: Body, *, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Which layouts are best for a job? The answer of POST /v1/plans; a long search tells how far it is on stderr."""
    from service.answers.plans import PlanAnswer
    from service.catalogue import shipped_catalogue
    from service.features.plans.report import counted, plans_shown
    from service.features.plans.search_plans import planning
    from service.validation.body_files import body_in

    progress = Progress()
    for found in planning(body_in(file), shipped_catalogue()):
        if isinstance(found, PlanAnswer):
            typer.echo(plans_shown(found, "json" if as_json else "csv" if as_csv else "report"), nl=not as_csv)
        else:
            progress.tell(f"so far {counted(found)}")


@app.command()
def solve(file: Body, *, as_json: AsJson = False) -> None:
    """Which value of an open field will do, and which is the next that will not? The answer of POST /v1/solve."""
    from service.catalogue import shipped_catalogue
    from service.features.solve.report import solution_shown
    from service.features.solve.solve import solve as solution_of
    from service.validation.body_files import body_in

    typer.echo(solution_shown(solution_of(body_in(file), shipped_catalogue()), "json" if as_json else "report"))


@app.command()
def diagnose(
    file: Body,
    message: Annotated[str | None, typer.Argument(help="File that holds the message; else the body holds it.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Why did a job run out of memory, and what is to change? The answer of POST /v1/diagnose."""
    from service.catalogue import shipped_catalogue
    from service.features.diagnose.diagnose import diagnose as diagnosis_of
    from service.features.diagnose.report import diagnosis_report
    from service.validation.body_files import body_in, text_in
    from service.validation.serialization import to_bytes

    said = {} if message is None else {"message": text_in(message)}
    found = diagnosis_of({**body_in(file), **said}, shipped_catalogue())
    typer.echo(to_bytes(found) if as_json else diagnosis_report(found))


@app.command()
def sensitivity(file: Body, *, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """What changes if a field of the question changes? The table of POST /v1/sensitivity."""
    from service.catalogue import shipped_catalogue
    from service.features.sensitivity.tables import table_shown
    from service.features.sensitivity.vary import vary
    from service.validation.body_files import body_in

    found = vary(body_in(file), shipped_catalogue())
    typer.echo(table_shown(found, "json" if as_json else "csv" if as_csv else "report"), nl=not as_csv)
