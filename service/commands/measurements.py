"""Which measurements come in from files? Those of other tools, into the database of the settings."""

from pathlib import Path
from typing import Annotated

import typer

from service.commands.database import database
from service.commands.options import AsJson

app = typer.Typer()

Format = Annotated[str, typer.Argument(help="nccl-tests, gemm-csv, memory-snapshot, or records (a worker's own).")]
File = Annotated[Path, typer.Argument(help="The file; - for what is piped in.", allow_dash=True)]
Told = Annotated[
    list[str] | None,
    typer.Option("--tell", help="What the file does not tell: device=NAME, operation=all_gather, run=NAME; repeat it."),
]


@app.command("import-measurements")
def import_measurements(kind: Format, file: File, *, tell: Told = None, as_json: AsJson = False) -> None:
    """Keep what another tool measured, beside what is predicted of it, for calibrations to be fitted on."""
    import sys

    from service.features.accounts.audit import by_command
    from service.features.measurements.file_formats import import_file
    from service.store import load_catalogue
    from service.store.callers import TEAM
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
