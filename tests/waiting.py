"""Waits for what another process does, with a time limit."""

import time
from collections.abc import Callable


def wait_until(is_so: Callable[[], bool], most_seconds: float = 60.0) -> None:
    """Wait until something is so; the test fails where it never is."""
    end = time.monotonic() + most_seconds
    while not is_so():
        assert time.monotonic() < end, f"not so within {most_seconds:g} s"
        time.sleep(0.05)
