"""Background tasks: what is repeated, and what waits until something was noted."""

import logging
from threading import Event, Thread

import pytest

from service.api.background import repeat


def test_a_write_waits_for_a_note_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    stop, noted, written = Event(), Event(), Event()
    calls: list[int] = []

    def write() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError
        written.set()

    with caplog.at_level(logging.WARNING):
        thread = Thread(target=repeat, args=("uses are not written", write, 0.0, stop, noted), daemon=True)
        thread.start()
        assert not written.wait(0.1)
        assert calls == []
        noted.set()
        assert written.wait(10.0)
    assert [record.message for record in caplog.records] == ["uses are not written: OSError"]
    stop.set()
    noted.set()
    thread.join(10.0)
    assert not thread.is_alive()
    assert len(calls) == 2
