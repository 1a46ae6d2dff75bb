"""What can be done from the command line? `traincost serve`, and the same answers without a server.

A worker runs in images of others, where the packages of the other commands are not there; so it is looked for first.
"""

import sys


def main() -> None:
    """Run one command."""
    if sys.argv[1:2] == ["worker"]:
        from service.worker.command import main as work

        raise SystemExit(work(sys.argv[2:]))
    from service.commands.application import main as command

    command()


if __name__ == "__main__":
    main()
