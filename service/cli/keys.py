"""Commands that create, list, limit and revoke keys and share links, in the database of the settings.

A running service follows.
"""

from typing import Annotated

import typer

from service.cli.console import AsJson, database

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
    from service.cli.reports.keys import sent_as
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
    from service.cli.reports.keys import keys_report
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
    from service.store.queries import utc_text

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
    from service.cli.reports.keys import shares_report
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
    from service.store.share_links import revoke_share_link

    with database(is_made=False) as engine, by_command("revokeShare"):
        if not revoke_share_link(engine, share_id, datetime.now(UTC)):
            raise NotFound(f"there are no links of this id in {place_of(engine)}; traincost shares list has the ids")
    typer.echo(f"revoked {share_id}")


@shares.command("revoke-unlisted")
def revoke_unlisted() -> None:
    """Revoke all links of versions without a list, at once; running services follow within about a second."""
    from service.features.accounts.audit import by_command
    from service.store.share_links import revoke_unlisted_links

    with database(is_made=False) as engine, by_command("revokeUnlistedShares"):
        was_any = revoke_unlisted_links(engine)
    typer.echo("revoked every unlisted link" if was_any else "no unlisted link holds")
