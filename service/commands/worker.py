"""How is a worker started? It is listed here; its own program, which needs none of this, reads its arguments."""

import typer

from service.worker.command import HELP
from service.worker.command import main as work

app = typer.Typer()


@app.command(
    help=HELP,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def worker(context: typer.Context) -> None:
    """Do jobs for a service.

    Args:
        context: the arguments
    """
    raise typer.Exit(work(context.args))
