"""Commands that back up, restore and check an installation."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.console import AsJson
from service.errors import StartupError

if TYPE_CHECKING:
    from service.store.backups import Backup

app = typer.Typer()

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


if TYPE_CHECKING:
    from service.cli.doctor_findings import Finding
    from service.settings import Settings


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
    from service.cli.doctor_findings import Finding, examined
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
    from service.cli.doctor_findings import Finding

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
