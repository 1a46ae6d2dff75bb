"""A test of many cases names each one that fails; samples keep both ends and every kind."""

import pytest

from tests import amounts
from tests.cases import each_case


def test_every_failing_case_is_named() -> None:
    @each_case(("number", "most"), [pytest.param(1, 2, id="fine"), pytest.param(3, 2, id="above"), (5, 0)])
    def check(number: int, most: int) -> None:
        assert 6 // most
        assert number < most

    with pytest.raises(AssertionError, match=r"2 of 3 cases fail:\nabove: Assert.*\n2: ZeroDivisionError"):
        check()


def test_no_case_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="no case"):
        each_case("number", [])(lambda **_: None)()


def test_a_sample_is_the_same_each_time_and_holds_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amounts, "WHOLE", False)
    assert amounts.sample(range(100), 4) == [0, 33, 66, 99]
    assert amounts.sample([1, 2], 4) == [1, 2]
    assert amounts.some_of_each("aaabbc", "aaabbc", 3) == ["a", "b", "c"]
    monkeypatch.setattr(amounts, "WHOLE", True)
    assert amounts.sample(range(9), 4) == list(range(9))
    assert amounts.some_of_each("aaabbc", "aaabbc", 3) == list("aaabbc")
