"""Are errors signed, symmetric in size, and told only where there is something to tell?"""

import pytest

from service.calibration.scores import Comparison, score


def test_twice_too_much_and_nothing_at_all() -> None:
    said = score([Comparison(10, 0, 20, 30), Comparison(10, 0, 0, 0)])
    assert (said.mape_fraction, said.bias_fraction, said.median_fraction) == (1.0, 0.0, 1.0)
    assert said.coverage80_fraction == 0.5


def test_the_ends_of_an_interval_belong_to_it() -> None:
    assert Comparison(10, 10, 11, 12).is_covered
    assert Comparison(12, 10, 11, 12).is_covered
    assert not Comparison(13, 10, 11, 12).is_covered


def test_p95_is_read_between_the_nearest() -> None:
    said = score([Comparison(100, 0, 100 + error, 200) for error in range(101)])
    assert said.p95_fraction == pytest.approx(0.95)
    assert said.p95_bytes == pytest.approx(95)


def test_nothing_has_no_figures() -> None:
    said = score([])
    assert said.scored == 0
    assert {getattr(said, name) for name in said.__slots__ if name != "scored"} == {None}
