"""Commands that list and revoke the share links of scenarios, in the database of the settings."""

from typing import Annotated

import typer

from service.commands.database import database
from service.commands.options import AsJson

app = typer.Typer()
shares = typer.Typer(no_args_is_help=True, help="List and revoke the links that show scenarios without a key.")
app.add_typer(shares, name="shares")

ScenarioId = Annotated[str | None, typer.Argument(help="Scenario whose links to list: scn_...; all where absent.")]
ShareId = Annotated[str, typer.Argument(help="Id of the links, as the list has it: shr_...")]


@shares.command("list")
def list_shares(scenario_id: ScenarioId = None, *, as_json: AsJson = False) -> None:
    """List share links: those that hold and, for thirty days, those that have ended."""
    from service.features.accounts.report import shares_report
    from service.features.scenarios.shares import shown_shares
    from service.store import place_of
    from service.validation.serialization import to_bytes

    with database(is_made=False) as engine:
        found, place = shown_shares(engine, scenario_id), place_of(engine)
    typer.echo(to_bytes(found) if as_json else shares_report(found, place))


@shares.command()
def revoke(share_id: ShareId) -> None:
    """Revoke links; they open nothing from then on."""
    from datetime import UTC, datetime

    from service.errors import NotFound
    from service.features.accounts.audit import by_command
    from service.store import place_of, revoke_share_link

    with database(is_made=False) as engine, by_command("revokeShare"):
        if not revoke_share_link(engine, share_id, datetime.now(UTC)):
            raise NotFound(f"there are no links of this id in {place_of(engine)}; traincost shares list has the ids")
    typer.echo(f"revoked {share_id}")


@shares.command("revoke-unlisted")
def revoke_unlisted() -> None:
    """Revoke all links that versions without a list signed, at once; running services follow within about a second."""
    from service.features.accounts.audit import by_command
    from service.store import revoke_unlisted_links

    with database(is_made=False) as engine, by_command("revokeUnlistedShares"):
        was_any = revoke_unlisted_links(engine)
    typer.echo("revoked every unlisted link" if was_any else "no unlisted link holds")
