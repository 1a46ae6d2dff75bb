"""Commands for keys, share links, backups and checks, on the database of the settings. A running service follows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.console import AsJson, CommandGroup, database, print_answer
from service.cli.tables import table

if TYPE_CHECKING:
    from service.store import Engine
    from service.tabular.lists import Record

app = CommandGroup()
keys = CommandGroup(no_args_is_help=True, help="Create, list, limit and revoke the keys of callers.")
app.add_typer(keys, name="keys")

Name = Annotated[str, typer.Option(help="Purpose of the key.")]
Scopes = Annotated[
    list[str], typer.Option("--scope", help="read, write (reads too), sheet, worker or admin; repeat it for more.")
]
Owner = Annotated[str | None, typer.Option(help="Owner of the key; the team where absent.")]
Days = Annotated[int | None, typer.Option(help="Days until it expires; where absent it is valid until revoked.")]
PerMinute = Annotated[
    int | None,
    typer.Option(
        help="Requests that it may send in a minute in the long run, 0 for any number; as many as any key where absent "
        "(TRAINCOST_REQUESTS_PER_MINUTE)."
    ),
]
Burst = Annotated[
    int | None,
    typer.Option(
        "--request-burst",
        help="Requests that it may send at once after a pause, as a sheet does that asks for all of its cells; as many "
        "as any key where absent (TRAINCOST_REQUEST_BURST).",
    ),
]
KeyId = Annotated[str, typer.Argument(help="Public part of the key, as in the list: tck_...")]


@keys.command()
def create(  # noqa: PLR0913 - each is an option of the command
    *,
    name: Name,
    scope: Scopes,
    owner: Owner = None,
    days: Days = None,
    requests_per_minute: PerMinute = None,
    burst: Burst = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it, this once; from the first key on, every caller needs one."""
    from service.api.access.key_rules import KeyLimits, KeyRequest, key_record, make_key
    from service.store.keys import TEAM
    from service.validation.reading import to_bytes

    limits = KeyLimits(requests_per_minute=requests_per_minute, request_burst=burst)
    request = KeyRequest(name=name, scopes=scope, owner=owner or TEAM, days=days, limits=limits)
    with _audited("createKey", may_create=True) as engine:
        made = make_key(engine, request)
    if as_json:
        typer.echo(to_bytes({**key_record(made.key), "key": made.presented}))
        return
    typer.echo(made.presented)
    ways = ["Keep it: it is not shown again. Send it as Authorization: Bearer KEY."]
    if set(made.key.scopes) == {"sheet"}:
        ways.append("A sheet sends it in the address of a cell: key=KEY.")
    if "worker" in made.key.scopes:
        ways.append("A worker takes it from TRAINCOST_TOKEN.")
    typer.echo(" ".join(ways), err=True)


@contextmanager
def _audited(operation: str, *, may_create: bool = False) -> "Iterator[Engine]":
    from service.features.accounts.audit import by_command

    with database(may_create=may_create) as engine, by_command(operation):
        yield engine


def _print_records(
    read: "Callable[[Engine], Sequence[Record]]", columns: Sequence[str], empty: str, *, as_json: bool
) -> None:
    """Print records as JSON or as a table; where there are none, a sentence about the database's address."""
    from service.store.engine import place_of

    with database(may_create=False) as engine:
        records, place = read(engine), place_of(engine)
    values = [[record[name] for name in columns] for record in records]
    rows = [
        ["-" if one is None else " ".join(one) if isinstance(one, tuple) else str(one) for one in row] for row in values
    ]
    text = "\n".join(table([columns, *rows])) if rows else empty.format(place=place)
    print_answer(records, lambda _: text, as_json=as_json)


KEY_COLUMNS = (
    "id", "standing", "scopes", "owner", "name", "created_at", "expires_at", "last_used_at", "requests_per_minute",
    "request_burst",
)  # fmt: skip


@keys.command("list")
def list_keys(*, as_json: AsJson = False) -> None:
    """List every key, without its secret."""
    from service.api.access.key_rules import key_records

    _print_records(key_records, KEY_COLUMNS, "no keys in {place}: traincost keys create makes one", as_json=as_json)


@keys.command()
def limit(
    key_id: KeyId, *, requests_per_minute: PerMinute = None, burst: Burst = None, as_json: AsJson = False
) -> None:
    """Change the limits of a key, to the service's where absent; running services follow within about a second."""
    from service.api.access import key_rules

    limits = key_rules.KeyLimits(requests_per_minute=requests_per_minute, request_burst=burst)
    with _audited("limitKey") as engine:
        key_rules.limit(engine, key_id, limits)
        record = _record_of(key_rules.key_records(engine), key_id)
    print_answer(record, lambda key: f"limited {key['id']}", as_json=as_json)


def _record_of(records: "Sequence[Record]", key_id: str) -> "Record":
    return next(record for record in records if record["id"] == key_id.partition(".")[0])


@keys.command()
def revoke(key_id: KeyId, *, as_json: AsJson = False) -> None:
    """Revoke a key; running services follow within about a second."""
    from service.api.access import key_rules
    from service.store.engine import utc_text

    with _audited("revokeKey") as engine:
        before = key_rules.revoke(engine, key_id)
        record = _record_of(key_rules.key_records(engine), key_id)
    result = "revoked" if before is None else f"was revoked already, at {utc_text(before)}:"
    print_answer(record, lambda key: f"{result} {key['id']}", as_json=as_json)


shares = CommandGroup(no_args_is_help=True, help="List and revoke the links that show scenarios without a key.")
app.add_typer(shares, name="shares")

ScenarioId = Annotated[str | None, typer.Argument(help="Scenario whose links to list: scn_...; all where absent.")]
ShareId = Annotated[str, typer.Argument(help="Id of the links, as in the list: shr_...")]
SHARE_COLUMNS = ("id", "status", "scenario", "made_by", "created_at", "expires_at", "revoked_at", "last_used_at")


@shares.command("list")
def list_shares(scenario_id: ScenarioId = None, *, as_json: AsJson = False) -> None:
    """List share links: the valid ones and, for thirty days, the ended ones."""
    from service.features.scenarios.scenarios import share_records

    read = partial(share_records, scenario_id=scenario_id)
    _print_records(read, SHARE_COLUMNS, "no share links in {place}", as_json=as_json)


@shares.command("revoke")
def revoke_share(share_id: ShareId) -> None:
    """Revoke share links; they open nothing from then on."""
    from service.errors import NotFound
    from service.store.engine import place_of
    from service.store.keys import revoke_share_link

    with _audited("revokeShare") as engine:
        if not revoke_share_link(engine, share_id, datetime.now(UTC)):
            raise NotFound(f"there are no links of this id in {place_of(engine)}; traincost shares list has the ids")
    typer.echo(f"revoked {share_id}")


@shares.command("revoke-unlisted")
def revoke_unlisted() -> None:
    """Revoke all links of versions without a list, at once; running services follow within about a second."""
    from service.store.keys import revoke_unlisted_links

    with _audited("revokeUnlistedShares") as engine:
        was_any = revoke_unlisted_links(engine)
    typer.echo("revoked every unlisted link" if was_any else "no unlisted link holds")


Made = Annotated[Path, typer.Argument(help="New file, readable by its owner alone; it must not exist yet.")]
Given = Annotated[Path, typer.Argument(help="File of traincost backup, from either kind of database.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace what the database holds now.")]


@app.command()
def backup(file: Made, *, as_json: AsJson = False) -> None:
    """Write a backup of the database into a file; the service may keep running."""
    from service.settings import read_settings
    from service.store.backups import make_backup

    made = make_backup(read_settings().database_url, file)
    print_answer(made, lambda one: f"backed up {one}: {file}", as_json=as_json)


@app.command()
def restore(file: Given, *, replace: Replace = False, as_json: AsJson = False) -> None:
    """Restore a backup into an empty database; all of it or nothing."""
    from service.settings import read_settings
    from service.store.backups import restore_backup

    restored = restore_backup(read_settings().database_url, file, replace=replace)
    print_answer(restored, lambda one: f"restored {one}", as_json=as_json)


@app.command()
def doctor(*, as_json: AsJson = False) -> None:
    """Check settings, database, catalogue, keys, address, disk and what else is set up; exit code 1 on a fault."""
    from service.cli.doctor import findings
    from service.validation.reading import to_bytes

    results = []
    for one in findings():
        results.append(one)
        if not as_json:
            typer.echo(f"{one.state:<8} {one.name}: {one.said}" + (f"; {one.fix}" if one.fix else ""))
    if as_json:
        typer.echo(to_bytes({"findings": results}))
    if any(one.state == "fault" for one in results):
        raise typer.Exit(1)
