"""Commands that write generated files of the source tree."""

from typing import Annotated

import typer

app = typer.Typer()
PANEL = "To work on traincost itself, in its source"
"""Heading of these commands in the help."""


@app.command(rich_help_panel=PANEL)
def write_accuracy() -> None:
    """Write the figures of the shipped measurements into service/calibration/README.md."""
    from service.evaluation import tables
    from service.evaluation.accuracy import shipped_accuracy

    typer.echo(tables.write_accuracy(shipped_accuracy()))


@app.command(rich_help_panel=PANEL)
def write_measurements(file: Annotated[str, typer.Argument(help="Table of measurements.")]) -> None:
    """Trim a table of measurements to the columns used and ship it (service/calibration/published)."""
    from service.evaluation import tables
    from service.evaluation.sources import content_of

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
    from service.cli.formula_index import write_formula_index

    typer.echo(write_formula_index())


@app.command(rich_help_panel=PANEL)
def write_openapi() -> None:
    """Write the contract (openapi/openapi.json) from the routes and the dataclasses."""
    from service.app import create_app
    from service.catalogue import shipped_catalogue
    from service.openapi.document import write_contract
    from service.settings import Settings

    typer.echo(write_contract(create_app(Settings(), shipped_catalogue())))
