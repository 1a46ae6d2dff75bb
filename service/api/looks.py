"""How does a process look after something beside its requests? Again and again, on a thread of its own."""

import logging
from collections.abc import Callable
from threading import Event

log = logging.getLogger(__name__)


def look_again(complaint: str, look: Callable[[], object], seconds: float, stop: Event) -> None:
    """Do something again and again; what fails is said once, until it works again.

    Args:
        complaint: what does not happen while it fails
        look: what to do
        seconds: time between two times; the first one comes after it [second]
        stop: ends it
    """
    failing = False
    while not stop.wait(seconds):
        try:
            look()
        except Exception as error:  # whatever it is, requests are answered, and the next time may succeed
            if not failing:
                log.warning("%s: %s", complaint, type(error).__name__)
            failing = True
        else:
            failing = False
