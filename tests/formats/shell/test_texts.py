"""Texts of every kind are read or refused with the service's own errors, and nothing of them runs."""

from itertools import islice

from tests.formats.shell.texts import texts
from tests.formats.shell.watched import watched

COUNT = 400


def test_a_text_is_read_or_refused_and_nothing_of_it_runs() -> None:
    found = watched(islice(texts(7), COUNT))
    assert found.texts == COUNT
    assert found.wrong == []
    assert found.read > 0
