"""Commands for keys, share links, backups and checks, on the database of the settings. A running service follows."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.console import AsJson, database, table
from service.errors import StartupError

if TYPE_CHECKING:
    from service.cli.doctor import Finding
    from service.settings import Settings
    from service.store.backups import Backup
    from service.store.keys import Scope
    from service.tabular.lists import Record

app = typer.Typer()
keys = typer.Typer(no_args_is_help=True, help="Create, list, limit and revoke the keys of callers.")
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
    from service.features.accounts.audit import by_command
    from service.store.keys import TEAM
    from service.validation.serialization import to_bytes

    limits = KeyLimits(requests_per_minute=requests_per_minute, request_burst=burst)
    wanted = KeyRequest(name=name, scopes=scope, owner=owner or TEAM, days=days, limits=limits)
    with database() as engine, by_command("createKey"):
        made = make_key(engine, wanted)
    if as_json:
        typer.echo(to_bytes({**key_record(made.key), "key": made.presented}))
    else:
        typer.echo(made.presented)
        typer.echo(f"Keep it: it is not shown again. {sent_as(made.key.scopes)}", err=True)


@keys.command("list")
def list_keys(*, as_json: AsJson = False) -> None:
    """List every key, without its secret."""
    from service.api.access.key_rules import key_records
    from service.store.engine import place_of
    from service.validation.serialization import to_bytes

    with database(is_made=False) as engine:
        found, place = key_records(engine), place_of(engine)
    typer.echo(to_bytes(found) if as_json else keys_report(found, place))


@keys.command()
def limit(key_id: KeyId, *, requests_per_minute: PerMinute = None, burst: Burst = None) -> None:
    """Change the limits of a key, to the service's where absent; running services follow within about a second."""
    from service.api.access import key_rules as workflow
    from service.features.accounts.audit import by_command

    limits = workflow.KeyLimits(requests_per_minute=requests_per_minute, request_burst=burst)
    with database(is_made=False) as engine, by_command("limitKey"):
        workflow.limit(engine, key_id, limits)
    typer.echo(f"limited {key_id.partition('.')[0]}")


@keys.command()
def revoke(key_id: KeyId) -> None:
    """Revoke a key; running services follow within about a second."""
    from service.api.access import key_rules as workflow
    from service.features.accounts.audit import by_command
    from service.store.engine import utc_text

    with database(is_made=False) as engine, by_command("revokeKey"):
        before = workflow.revoke(engine, key_id)
    result = "revoked" if before is None else f"was revoked already, at {utc_text(before)}:"
    typer.echo(f"{result} {key_id.partition('.')[0]}")


shares = typer.Typer(no_args_is_help=True, help="List and revoke the links that show scenarios without a key.")
app.add_typer(shares, name="shares")

ScenarioId = Annotated[str | None, typer.Argument(help="Scenario whose links to list: scn_...; all where absent.")]
ShareId = Annotated[str, typer.Argument(help="Id of the links, as in the list: shr_...")]


@shares.command("list")
def list_shares(scenario_id: ScenarioId = None, *, as_json: AsJson = False) -> None:
    """List share links: the valid ones and, for thirty days, the ended ones."""
    from service.features.scenarios.shares import share_records
    from service.store.engine import place_of
    from service.validation.serialization import to_bytes

    with database(is_made=False) as engine:
        found, place = share_records(engine, scenario_id), place_of(engine)
    typer.echo(to_bytes(found) if as_json else shares_report(found, place))


@shares.command("revoke")
def revoke_share(share_id: ShareId) -> None:
    """Revoke share links; they open nothing from then on."""
    from datetime import UTC, datetime

    from service.errors import NotFound
    from service.features.accounts.audit import by_command
    from service.store.engine import place_of
    from service.store.keys import revoke_share_link

    with database(is_made=False) as engine, by_command("revokeShare"):
        if not revoke_share_link(engine, share_id, datetime.now(UTC)):
            raise NotFound(f"there are no links of this id in {place_of(engine)}; traincost shares list has the ids")
    typer.echo(f"revoked {share_id}")


@shares.command("revoke-unlisted")
def revoke_unlisted() -> None:
    """Revoke all links of versions without a list, at once; running services follow within about a second."""
    from service.features.accounts.audit import by_command
    from service.store.keys import revoke_unlisted_links

    with database(is_made=False) as engine, by_command("revokeUnlistedShares"):
        was_any = revoke_unlisted_links(engine)
    typer.echo("revoked every unlisted link" if was_any else "no unlisted link holds")


Made = Annotated[Path, typer.Argument(help="New file, readable by its owner alone; it must not exist yet.")]
Given = Annotated[Path, typer.Argument(help="File of traincost backup, from either kind of database.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace what the database holds now.")]


@app.command()
def backup(file: Made) -> None:
    """Write a backup of the database into a file; the service may keep running."""
    from service.settings import read_settings
    from service.store.backups import make_backup

    typer.echo(f"backed up {_summary(make_backup(read_settings().database_url, file))}: {file}")


@app.command()
def restore(file: Given, *, replace: Replace = False) -> None:
    """Restore a backup into an empty database; all of it or nothing."""
    from service.settings import read_settings
    from service.store.backups import restore_backup

    typer.echo(f"restored {_summary(restore_backup(read_settings().database_url, file, replace=replace))}")


def _summary(made: "Backup") -> str:
    return f"{made.rows:,} rows of {len(made.tables)} tables at revision {made.revision}, as of {made.made_at}"


HELP = "Check settings, database, catalogue, keys, address, disk and what else is set up; exit code 1 on a fault."


@app.command(help=HELP)
def doctor(*, as_json: AsJson = False) -> None:
    """Check everything that the service needs, and print remedies."""
    from service.validation.serialization import to_bytes

    findings = []
    for found in _findings():
        findings.append(found)
        if not as_json:
            typer.echo(f"{found.state:<8} {found.name}: {found.said}" + (f"; {found.fix}" if found.fix else ""))
    if as_json:
        typer.echo(to_bytes({"findings": findings}))
    if any(found.state == "fault" for found in findings):
        raise typer.Exit(1)


def _findings() -> Iterator["Finding"]:
    from service.cli.doctor import Finding, examined
    from service.settings import read_settings

    try:
        settings = read_settings()
    except StartupError as error:
        fix = "correct the variable; /guide/settings lists them"
        yield Finding(name="settings", state="fault", said=str(error), fix=fix)
        return
    yield from examined(settings)
    yield from _of_optional(settings)


def _of_optional(settings: "Settings") -> Iterator["Finding"]:
    """Findings of features that a setting enables."""
    from service.api.limits.rate_limits import WITHOUT_REDIS, has_redis
    from service.api.metrics import WITHOUT_OPENTELEMETRY, is_installed
    from service.cli.doctor import Finding

    if settings.otlp_endpoint is not None and not is_installed():
        yield Finding(name="telemetry", state="fault", said=WITHOUT_OPENTELEMETRY)
    if settings.redis_url is None:
        return
    if not has_redis():
        yield Finding(name="redis", state="fault", said=WITHOUT_REDIS)
        return
    from service.api.limits.shared_limits import does_answer

    if asyncio.run(does_answer(settings.redis_url)):
        yield Finding(name="redis", state="ok", said="Redis answers, so replicas count requests together")
    else:
        fix = "start it, or correct TRAINCOST_REDIS_URL; until then each replica counts alone"
        yield Finding(name="redis", state="warning", said="Redis does not answer", fix=fix)


HEADS = (
    "id", "standing", "scopes", "owner", "name", "created_at", "expires_at", "last_used_at", "requests_per_minute",
    "request_burst",
)  # fmt: skip
"""Columns of the table that people read."""


def sent_as(scopes: "Collection[Scope]") -> str:
    """How a key is sent, by what it allows."""
    ways = ["Send it as Authorization: Bearer KEY."]
    if set(scopes) == {"sheet"}:
        ways.append("A sheet sends it in the address of a cell: key=KEY.")
    if "worker" in scopes:
        ways.append("A worker takes it from TRAINCOST_TOKEN.")
    return " ".join(ways)


def keys_report(keys: "Sequence[Record]", place: str) -> str:
    """Keys as a person reads them in a terminal."""
    rows = [[_cell(key[head]) for head in HEADS] for key in keys]
    return "\n".join(table([HEADS, *rows])) if rows else f"no keys in {place}: traincost keys create makes one"


def _cell(value: object) -> str:
    return "-" if value is None else " ".join(value) if isinstance(value, tuple) else str(value)


SHARE_HEADS = ("id", "status", "scenario", "made_by", "created_at", "expires_at", "revoked_at", "last_used_at")


def shares_report(shares: "Sequence[Record]", place: str) -> str:
    """A line for each link under a header; a sentence where there are none in the database at a place."""
    rows = [["-" if share[head] is None else str(share[head]) for head in SHARE_HEADS] for share in shares]
    return "\n".join(table([SHARE_HEADS, *rows])) if rows else f"no share links in {place}"
