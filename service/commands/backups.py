"""How is the data brought to safety and back? One file, from and to the database of the settings, of either kind."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from service.store import Backup

app = typer.Typer()

Made = Annotated[Path, typer.Argument(help="File that is made, for its owner alone; it must not be there yet.")]
Given = Annotated[Path, typer.Argument(help="File that traincost backup made, of whichever kind of database.")]
Replace = Annotated[bool, typer.Option("--replace", help="Give up what the database holds now.")]


@app.command()
def backup(file: Made) -> None:
    """Write all that the database holds into a file; the service may go on meanwhile."""
    from service.settings import read_settings
    from service.store import make_backup

    typer.echo(f"backed up {_told(make_backup(read_settings().database_url, file))}: {file}")


@app.command()
def restore(file: Given, *, replace: Replace = False) -> None:
    """Write all that a backup holds into an empty database; all of it or nothing."""
    from service.settings import read_settings
    from service.store import restore_backup

    typer.echo(f"restored {_told(restore_backup(read_settings().database_url, file, replace=replace))}")


def _told(made: "Backup") -> str:
    return f"{made.rows:,} rows of {len(made.tables)} tables at revision {made.revision}, as of {made.made_at}"
