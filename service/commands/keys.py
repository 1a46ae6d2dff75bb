"""Who may ask? Keys are made, listed and revoked in the database of the settings; a running service follows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from service.commands.options import AsJson

if TYPE_CHECKING:
    from service.store import Engine

app = typer.Typer()
keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke the keys that callers send.")
app.add_typer(keys, name="keys")

Name = Annotated[str, typer.Option(help="What the key is for.")]
Scopes = Annotated[
    list[str], typer.Option("--scope", help="read, write (reads too), sheet, worker or admin; repeat it for more.")
]
Owner = Annotated[str | None, typer.Option(help="Whose key it is; the team's where absent.")]
Days = Annotated[int | None, typer.Option(help="Days until it expires; where absent it holds until it is revoked.")]
KeyId = Annotated[str, typer.Argument(help="Public part of the key, as the list tells it: tck_...")]


@keys.command()
def create(*, name: Name, scope: Scopes, owner: Owner = None, days: Days = None, as_json: AsJson = False) -> None:
    """Make a key and print it, this once; from the first key on, the service asks every caller for one."""
    from service.workflows.keys import WantedKey, make_key, shown
    from service.workflows.own_rows import TEAM
    from service.workflows.wire import to_bytes

    wanted = WantedKey(name=name, scopes=scope, owner=owner or TEAM, days=days)
    with _database() as engine:
        made = make_key(engine, wanted)
    if as_json:
        typer.echo(to_bytes({**shown(made.key), "key": made.presented}))
    else:
        typer.echo(made.presented)
        typer.echo("Keep it: it is not shown again. Send it as Authorization: Bearer KEY.", err=True)


@keys.command("list")
def list_keys(*, as_json: AsJson = False) -> None:
    """Tell every key that was made, without its secret."""
    from service.workflows.keys import keys_report, shown_keys
    from service.workflows.wire import to_bytes

    with _database() as engine:
        found = shown_keys(engine)
    typer.echo(to_bytes(found) if as_json else keys_report(found))


@keys.command()
def revoke(key_id: KeyId) -> None:
    """Have a key refused; running services hear of it within about a second."""
    from service.workflows import keys as workflow

    with _database() as engine:
        workflow.revoke(engine, key_id)
    typer.echo(f"revoked {key_id.partition('.')[0]}")


@contextmanager
def _database() -> Iterator["Engine"]:
    """The database of the settings, made where there is none."""
    from service.catalogue import shipped_catalogue
    from service.settings import read_settings
    from service.store import prepare_database

    engine = prepare_database(read_settings().database_url, shipped_catalogue())
    try:
        yield engine
    finally:
        engine.dispose()
