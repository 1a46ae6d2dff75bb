"""A number is the same in the JSON, in a cell, in a table and in XML."""

from service.catalogue import shipped_catalogue
from tests.api.asking import Ask
from tests.features.estimates.same_numbers import compared


def test_every_form_tells_the_same_numbers(ask: Ask) -> None:
    found = compared(ask, shipped_catalogue(), 4)
    assert found.wrong == []
    assert found.cases > 200
