"""Entry point of `traincost`: the version, a worker, or any other command.

A worker runs in images that lack the packages of the other commands, so `traincost worker` is handled before any of
them is imported. The version is printed before anything is imported.
"""

import atexit
import gc
import os
import signal
import sys

from service import __version__

WITHOUT = (
    "traincost: {} is not installed here, so of its commands only `traincost worker` is there; pip install . in the "
    "folder of traincost's source brings the others"
)


NEW_OBJECTS = 500_000
"""New objects from which on cycles are searched: an answer makes fewer, and each search of its imports takes 30 ms."""


def main() -> None:
    """Run one command."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)  # in a container nothing ends a first process that did not ask for it
    if sys.argv[1:] == ["--version"]:
        print(f"traincost {__version__}")  # noqa: T201 - importing typer takes longer than all the rest
        return
    if sys.argv[1:2] == ["worker"]:
        from service.worker.command import main as work

        raise SystemExit(work(sys.argv[2:]))
    atexit.register(gc.freeze)  # nothing outlives the process, so its end need not search what is left for cycles
    gc.disable()  # imports leave none
    try:
        from service.cli.application import main as command

        gc.freeze()
        gc.set_threshold(NEW_OBJECTS)
        gc.enable()
        command()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "service":
            raise
        print(WITHOUT.format(error.name), file=sys.stderr)  # noqa: T201 - what prints otherwise may be missing
        raise SystemExit(2) from None


def _end(*_: object) -> None:
    """End at once where nothing has begun yet that would have to be ended first; what has, listens itself."""
    sys.exit(0)


if __name__ == "__main__":
    main()
