"""How far is a search? Told on standard error once it takes longer than a second, and at most once a second."""

from collections.abc import Callable
from time import monotonic

import typer

PATIENCE_SECONDS = 1.0
"""Seconds without a word. Source: a choice."""


class Progress:
    """Tells how far a search is, but not too often.

    Args:
        now: a clock [s]
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._told_at = now()

    def tell(self, line: str) -> None:
        """Say a line, unless one was said in the last second, or the search began then.

        Args:
            line: what to say
        """
        now = self._now()
        if now - self._told_at >= PATIENCE_SECONDS:
            self._told_at = now
            typer.echo(line, err=True)
