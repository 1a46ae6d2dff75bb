"""Computations that tests put in the place of real ones; computing processes import them by their names."""

import os
import signal
import time
from collections.abc import Iterator

from service.answers.plans import PlanCounts
from service.errors import Problem, Refused

SOME = PlanCounts(generated=1, refused={}, scored=0, fitting=0)


def breaking(*_asked: object) -> Iterator[PlanCounts]:
    """A search that goes wrong on its way."""
    yield SOME
    raise Refused(Problem(field="layout.tensor", code="a_rule", message="what is wrong", fix="what to do"))


def endless(*_asked: object) -> Iterator[PlanCounts]:
    """A search without end."""
    while True:
        yield SOME
        time.sleep(0.05)


def dying(*_asked: object) -> bytes:
    """A computation whose process is killed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nothing survives this")
