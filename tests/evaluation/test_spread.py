"""Is the spread that widens every answer the one that the shipped measurements give?"""

from math import ceil

import pytest

from service.calibration.scores import spread_fraction
from service.estimator.memory.device import LEAST_RESIDUAL, RESIDUALS, class_of
from service.evaluation.judging import Judged


@pytest.mark.parametrize("name", RESIDUALS, ids=" ".join)
def test_spread_is_that_of_the_rows_which_say_all(name: tuple[str, str], judged: tuple[Judged, ...]) -> None:
    residuals: dict[str, list[float]] = {}
    for one in judged:
        if (
            one.quantity == "peak"
            and one.is_told
            and one.comparison is not None
            and class_of(one.stack, is_sparse=one.is_moe) == name
        ):
            residuals.setdefault(one.row.text("source_key"), []).append(one.comparison.residual_fraction)
    spread = spread_fraction(residuals)
    assert spread is not None
    assert RESIDUALS[name] == max(LEAST_RESIDUAL, ceil(spread * 1e3) / 1e3)
