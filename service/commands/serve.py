"""How is the server started?"""

from contextlib import suppress
from typing import Annotated

import typer

app = typer.Typer()


@app.command(help="Answer over HTTP; the database is made, migrated and filled first.")
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (TRAINCOST_HOST, 127.0.0.1).")] = None,
    port: Annotated[str | None, typer.Option(help="Port, 0 for any free one (TRAINCOST_PORT, 8000).")] = None,
    *,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Start without keys where other machines reach it (TRAINCOST_INSECURE).")
    ] = False,
) -> None:
    """Answer over HTTP; the database is made, migrated and filled first.

    Args:
        host: address to listen on
        port: port to listen on
        insecure: whether to start without keys on an address that other machines reach
    """
    from service.api.app import create_app
    from service.api.server import address, listen, refuse_unguarded, run
    from service.catalogue import shipped_catalogue
    from service.settings import read_settings
    from service.store import load_catalogue, prepare_database

    settings = read_settings(host=host, port=port, insecure=insecure or None)
    with listen(settings.host, settings.port) as listener:
        engine = prepare_database(settings.database_url, shipped_catalogue())
        application = create_app(settings, load_catalogue(engine), engine)
        refuse_unguarded(listener, settings, is_locked=application.state.keys.is_locked)
        url = f"http://{address(settings.host, listener.getsockname()[1])}"
        with suppress(KeyboardInterrupt):
            run(application, listener, settings, lambda: typer.echo(f"traincost answers at {url} (docs at {url}/docs)"))
