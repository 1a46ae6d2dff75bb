"""The commands `serve` and `worker`, and the worker beside the service."""

import logging
import os
import subprocess
import sys
from contextlib import suppress
from socket import socket
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.console import CommandGroup
from service.worker.command import HELP
from service.worker.command import main as work

if TYPE_CHECKING:
    from service.settings import Settings
    from service.store.keys import KeyRing

log = logging.getLogger(__name__)

app = CommandGroup()


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (TRAINCOST_HOST, 127.0.0.1).")] = None,
    port: Annotated[str | None, typer.Option(help="Port, 0 for any free one (TRAINCOST_PORT, 8000).")] = None,
    *,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Start without keys where other machines reach it (TRAINCOST_INSECURE).")
    ] = False,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Start no worker beside the service (TRAINCOST_NO_WORKER).")
    ] = False,
) -> None:
    """Answer over HTTP; the database is created, migrated and seeded first."""
    from service.api.server import bound_heaps

    bound_heaps()
    from service.api.server import Lifecycle, address, listen, refuse_public_without_keys, run
    from service.settings import LOOPBACK, read_settings, unknown_settings

    settings = read_settings(host=host, port=port, insecure=insecure or None, no_worker=no_worker or None)
    with listen(settings.host, settings.port) as listener:
        from service.api.access.authorization import is_locked
        from service.store.database import lock_database_file

        lock = lock_database_file(settings.database_url)
        application = _application(settings)
        refuse_public_without_keys(
            listener, settings, is_locked=is_locked(application.state.keys, application.state.tokens)
        )
        beside = None if settings.no_worker else _worker_for(application.state.keys, listener, settings)

        def announce() -> None:
            for warning in unknown_settings():
                log.warning("%s", warning)
            url = f"http://{address(LOOPBACK.get(settings.host, settings.host), listener.getsockname()[1])}"
            reach = ", and on every other address of this machine" if settings.host in LOOPBACK else ""
            typer.echo(f"traincost answers at {url} (docs at {url}/docs){reach}")
            if beside is not None:
                beside.start()

        end_beside = (lambda: None) if beside is None else beside.stop
        drain, leave = application.state.draining.set, application.state.leaving.set
        with suppress(KeyboardInterrupt):
            moments = Lifecycle(announce=announce, drain=drain, end_beside=end_beside, leave=leave)
            run(application, listener, settings, moments)
        if lock is not None:
            lock.close()


def _application(settings: "Settings") -> Any:
    """The service on its database. Importing it takes a second, so settings and port are checked before."""
    from service.app import create_app
    from service.catalogue import checked_catalogue
    from service.store.database import prepare_database
    from service.store.history import load_numbered

    engine = prepare_database(settings.database_url, checked_catalogue(), settings.database_connections)
    number, catalogue = load_numbered(engine)
    return create_app(settings, catalogue, engine, number=number)


def _worker_for(keys: "KeyRing", listener: socket, settings: "Settings") -> "LocalWorker":
    from service.api.access.key_rules import KeyRequest, create_temporary_key
    from service.api.server import address
    from service.settings import LOOPBACK

    host, port = listener.getsockname()[:2]
    reached = LOOPBACK.get(host, host)
    key = create_temporary_key(keys, KeyRequest(name="the worker beside the service", scopes=["worker"]))
    return LocalWorker(f"http://{address(reached, port)}", key.presented, settings.log_level)


FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0
"""Waits before an ended worker restarts; they double until one has run for a while. Source: a choice."""

END_SECONDS = 6.0
"""Time of the worker to release its job and end. Source: a choice; the service itself ends within 10 s."""


class LocalWorker:
    """A worker beside the service, restarted whenever it ends."""

    def __init__(self, url: str, token: str, log_level: str) -> None:
        own = {"TRAINCOST_URL": url, "TRAINCOST_TOKEN": token, "TRAINCOST_LOG_LEVEL": log_level, "NO_PROXY": "*"}
        self._environment = {**os.environ, **own}
        self._leaving = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._keep, name="local worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Have the worker release its job and end."""
        self._leaving.set()
        if self._thread.is_alive():
            self._terminate()
            self._thread.join(END_SECONDS)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def _keep(self) -> None:
        wait_seconds = FIRST_WAIT_SECONDS
        while not self._leaving.is_set():
            started = monotonic()
            code = self._run()
            if self._leaving.is_set():
                return
            if monotonic() - started > LONGEST_WAIT_SECONDS:
                wait_seconds = FIRST_WAIT_SECONDS
            log.warning("the worker beside the service ended with code %d; started again in %.0f s", code, wait_seconds)
            self._leaving.wait(wait_seconds)
            wait_seconds = min(2.0 * wait_seconds, LONGEST_WAIT_SECONDS)

    def _run(self) -> int:
        with subprocess.Popen(
            (sys.executable, "-P", "-m", "service", "worker", "--with-parent"),
            stdin=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        ) as process:
            self._process = process
            if self._leaving.is_set():
                self._terminate()
            return process.wait()

    def _terminate(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()


@app.command(
    help=HELP,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def worker(context: typer.Context) -> None:
    """Run jobs for a service."""
    raise typer.Exit(work(context.args))
