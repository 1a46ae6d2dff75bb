"""Computations that tests put in the place of real ones; computing processes import them by their names."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from service.answers.plans import PlanCounts
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.features.batch.batch import ANSWERERS, AnsweredQuestion, answer_all

Question = dict[str, Any]

SOME = PlanCounts(generated=1, refused={}, scored=0, fitting=0)
LOOK_SECONDS = 0.02


def breaking(*_asked: object) -> Iterator[PlanCounts]:
    """A search that goes wrong on its way."""
    yield SOME
    raise Refused(Problem(field="layout.tensor", code="a_rule", message="what is wrong", fix="what to do"))


def endless(*_asked: object) -> Iterator[PlanCounts]:
    """A search without end."""
    while True:
        yield SOME
        time.sleep(LOOK_SECONDS)


def noted(body: dict[str, Any], _catalogue: object) -> bytes:
    """Writes its name into a folder, and waits until another file is there, where one is named."""
    folder = Path(body["folder"])
    with (folder / "begun").open("a") as begun:
        begun.write(f"{body['name']}\n")
    while not (folder / body.get("until", "begun")).exists():
        time.sleep(LOOK_SECONDS)
    return b"{}"


def dying(*_asked: object) -> bytes:
    """A computation whose process is killed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nothing survives this")


def dying_once(body: dict[str, Any], _catalogue: object) -> bytes:
    """A computation whose first process is killed."""
    first = Path(body["folder"]) / "first"
    if not first.exists():
        first.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return b"{}"


def greedy(*_asked: object) -> bytes:
    """A computation that needs more memory than a process has."""
    return bytes(1 << 40)


def _body(question: Question) -> dict[str, Any]:
    found: dict[str, Any] = question["body"]
    return found


def repeated(questions: list[Question], _catalogue: object) -> list[AnsweredQuestion]:
    """Each question of a batch is its own answer."""
    return [AnsweredQuestion(to_json(body), None, None, ()) for body in map(_body, questions)]


def divided(questions: list[Question], catalogue: Catalogue) -> list[AnsweredQuestion]:
    """Each question of a batch is divided, one of them by 0."""
    ANSWERERS["flops"] = lambda body, *_: 1 / body["divisor"]  # type: ignore[index]  # of this process alone
    return answer_all(questions, catalogue)


def written(questions: list[Question], _catalogue: object) -> list[AnsweredQuestion]:
    """Notes whose questions are worked out."""
    first = _body(questions[0])
    with (Path(first["folder"]) / "begun").open("a") as begun:
        begun.write(f"{first['of']}\n")
    time.sleep(LOOK_SECONDS)
    return [AnsweredQuestion(b"{}", None, None, ()) for _ in questions]
