"""What does a worker find of a job before it starts? Asked of a service, told while it runs, shown as a table."""

from typing import Annotated

import typer

from service.commands.options import AsCsv, AsJson, Body, Key, Url

app = typer.Typer()

NoWait = Annotated[bool, typer.Option("--no-wait", help="Print the launch check as it was queued, and go.")]


@app.command("launch-check")
def launch_check(
    file: Body,
    *,
    no_wait: NoWait = False,
    url: Url = "http://localhost:8000",
    key: Key = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """What does a worker measure of a job before it starts? The answer of POST /v1/launch-checks, once it is there.

    A verdict of no-go ends with exit code 1, so that a script stops there.
    """
    from service.client.events import Event
    from service.commands.service_answers import asked_of
    from service.features.launch_checks.report import event_said, launch_check_shown
    from service.validation.body_files import body_in

    def tell(event: Event) -> None:
        for line in event_said(event.name, event.data):
            typer.echo(line, err=True)

    with asked_of(url, key) as client:
        created = client.launch_checks.create(body_in(file))
        found = created if no_wait else client.launch_checks.wait(created.id, tell)
    typer.echo(launch_check_shown(found, "json" if as_json else "csv" if as_csv else "report"), nl=not as_csv)
    if found.verdict == "no-go":
        raise typer.Exit(1)
