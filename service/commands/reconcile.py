"""What did jobs take that were estimated before? The accounting of Slurm, compared by the service."""

from typing import Annotated

import typer

from service.commands.options import AsCsv, AsJson, Key, Url

app = typer.Typer()

File = Annotated[
    str | None,
    typer.Argument(help="Output of sacct --parsable2 or --json; - for standard input; absent: sacct is called."),
]
Since = Annotated[
    str | None, typer.Option(help="Jobs since then, as sacct's --starttime takes it. Default: a week ago.")
]
Until = Annotated[str | None, typer.Option(help="Jobs until then, as sacct's --endtime takes it.")]
Cluster = Annotated[str | None, typer.Option(help="Jobs of these clusters, as sacct's --clusters takes it.")]


@app.command()
def reconcile(  # noqa: PLR0913 - each is an option of the command
    file: File = None,
    *,
    since: Since = None,
    until: Until = None,
    cluster: Cluster = None,
    url: Url = "http://localhost:8000",
    key: Key = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """What did jobs take that were estimated before? What Slurm's sacct tells, compared by the service."""
    from service.commands.service_answers import asked_of
    from service.features.reconcile.report import reconciliation_shown
    from service.features.reconcile.sending import Wanted, reconciled_by, sacct_output

    text = sacct_output(file, Wanted(since=since, until=until, cluster=cluster))
    with asked_of(url, key) as client:
        found = reconciled_by(client.reconcile, text)
    typer.echo(reconciliation_shown(found, "json" if as_json else "csv" if as_csv else "report"), nl=not as_csv)
