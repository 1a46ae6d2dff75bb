"""Which command answers many questions at once? `traincost sweep`, over every core of this machine."""

from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import Body
from service.commands.progress import Progress

app = typer.Typer()


@app.command()
def sweep(
    file: Body,
    *,
    out: Annotated[Path, typer.Option(help="Table to write: a name that ends with .parquet or .csv.")],
    replace: Annotated[bool, typer.Option("--replace", help="Give up the table that is there now.")] = False,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes; one a core where absent.")] = None,
) -> None:
    """Every combination of some models, clusters, prices, recipes and layouts, as a table.

    The body is that of POST /v1/sweeps. What is done is kept beside the table until it is whole: a command that was
    ended goes on from there when it is given again.
    """
    from service.catalogue import shipped_catalogue
    from service.features.sweeps.local import TableThere, cores, run_locally
    from service.features.sweeps.requests import read_sweep
    from service.features.sweeps.rows import Counts
    from service.validation.body_files import body_in

    if out.exists() and not replace:
        raise TableThere(f"{out} is there already; name another file, or say --replace")
    asked = read_sweep(body_in(file), shipped_catalogue())
    progress, rows = Progress(), asked.axes.rows

    def told(counts: Counts) -> None:
        progress.tell(f"{counts.rows:,} of {rows:,} rows")

    counts = run_locally(asked, out, processes or cores(), told)
    typer.echo(
        f"{counts.rows:,} rows in {out}: {counts.answered:,} answered, {counts.fitting:,} of them fit, "
        f"{counts.refused:,} refused"
    )
