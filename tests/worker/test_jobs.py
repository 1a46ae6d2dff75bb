"""Does the time of what is run begin when it runs, not when it is asked for?"""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from service.worker.jobs import record_of
from service.worker.runners import Task

WAITS_SECONDS, MOST_SECONDS = 0.5, 0.3


class Place:
    """A cluster that has no place for a while, and may lose what runs once."""

    def __init__(self, runs_seconds: float, *, is_lost_once: bool = False) -> None:
        self.runs_seconds, self.is_killed = runs_seconds, False
        self.begins = [time.monotonic() + WAITS_SECONDS]
        if is_lost_once:
            self.begins.append(self.begins[0] + 0.8 * MOST_SECONDS)

    def start(self, *_: Any) -> "Place":
        return self

    def began_seconds(self) -> float | None:
        begun = [moment for moment in self.begins if moment <= time.monotonic()]
        return begun[-1] if begun else None

    def poll(self) -> dict[str, Any] | None:
        return {"status": "succeeded"} if time.monotonic() > self.begins[-1] + self.runs_seconds else None

    def progress(self) -> dict[str, Any]:
        return {}

    def kill(self) -> None:
        self.is_killed = True


@pytest.mark.parametrize(
    ("place", "ends_well"),
    [(Place(0.1), True), (Place(0.2, is_lost_once=True), True), (Place(60.0), False)],
    ids=["waits", "waits and runs again", "takes too long"],
)
def test_waiting_for_a_place_is_no_part_of_the_time(place: Any, ends_well: bool, tmp_path: Path) -> None:
    begun = time.monotonic()
    place.begins = [moment - place.begins[0] + begun + WAITS_SECONDS for moment in place.begins]
    errand = Task(task={}, folder=tmp_path, most_seconds=MOST_SECONDS)
    record = asyncio.run(record_of(place, errand, lambda _: None))
    assert (record is not None, place.is_killed) == (ends_well, True)
    assert time.monotonic() - begun >= WAITS_SECONDS
