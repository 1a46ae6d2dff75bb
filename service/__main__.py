"""What can be done from the command line? `traincost serve`, and the same answers without a server."""

from contextlib import suppress
from typing import Annotated

import typer

from service.errors import Refused, TraincostError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> None:
    """Run one command; whatever is wrong is said in a line on stderr, with exit code 2."""
    try:
        app()
    except TraincostError as error:
        for line in _lines(error):
            typer.echo(f"traincost: {' '.join(line.split())}", err=True)
        raise SystemExit(2) from None


def _lines(error: TraincostError) -> list[str]:
    if isinstance(error, Refused):
        return [f"{problem.field}: {problem.message}; {problem.fix}" for problem in error.problems]
    return [str(error)]


@app.callback()
def about() -> None:
    """What it takes to train a large language model: bytes, FLOP, seconds and money."""


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (TRAINCOST_HOST, 127.0.0.1).")] = None,
    port: Annotated[str | None, typer.Option(help="Port, 0 for any free one (TRAINCOST_PORT, 8000).")] = None,
) -> None:
    """Answer over HTTP; the database is made, migrated and filled first.

    Args:
        host: address to listen on
        port: port to listen on
    """
    from service.api.app import create_app
    from service.api.server import address, listen, run
    from service.catalogue import shipped_catalogue
    from service.settings import read_settings
    from service.store import load_catalogue, prepare_database

    settings = read_settings(host=host, port=port)
    with listen(settings.host, settings.port) as listener:
        engine = prepare_database(settings.database_url, shipped_catalogue())
        application = create_app(settings, load_catalogue(engine), engine)
        url = f"http://{address(settings.host, listener.getsockname()[1])}"
        with suppress(KeyboardInterrupt):
            run(application, listener, settings, lambda: typer.echo(f"traincost answers at {url} (docs at {url}/docs)"))


if __name__ == "__main__":
    main()
