"""Do two depths lead to the whole model: along the prediction where there is one, evenly where there is none?"""

from service.answers.launch_checks import Compared, Measured
from service.estimator.answer import Interval
from service.features.launch_checks.findings import at_full_depth
from service.features.launch_checks.items import Expected


def took(depth: int, value: float, predicted: float | None, step: int = 3) -> Compared:
    interval = None if predicted is None else Interval(predicted, predicted, predicted, "analytic")
    return Compared(
        operation="allocated_peak", shape={"depth": depth, "step": step}, quantity="bytes",
        measured=Measured(low=value, value=value, high=value, repeats=1), predicted=interval, ratio=None, count=None,
        relative_error_fraction=None,
    )  # fmt: skip


def whole(predicted: float | None) -> tuple[Expected, ...]:
    interval = None if predicted is None else Interval(predicted, predicted, predicted, "analytic")
    shape = {"depth": 12, "step": 3}
    return (Expected(probe="step", operation="allocated_peak", shape=shape, quantity="bytes", predicted=interval),)


def test_without_a_prediction_it_grows_evenly() -> None:
    (found,) = at_full_depth([took(1, 10.0, None), took(2, 13.0, None)], whole(None))
    assert (found.each_layer, found.measured, found.predicted, found.ratio) == (3.0, 43.0, None, None)


def test_a_right_prediction_of_both_depths_is_right_of_the_whole_however_it_grows() -> None:
    (found,) = at_full_depth([took(1, 10.0, 10.0), took(2, 13.0, 13.0)], whole(100.0))
    assert (found.measured, found.ratio) == (100.0, 1.0)


def test_what_a_prediction_misses_of_a_layer_it_misses_of_each() -> None:
    (found,) = at_full_depth([took(1, 11.0, 10.0), took(2, 15.0, 13.0)], whole(100.0))
    assert found.measured == 112.0


def test_the_last_step_counts() -> None:
    first = [took(1, 1.0, None, step=1), took(2, 2.0, None, step=1)]
    (found,) = at_full_depth([*first, took(1, 10.0, None), took(2, 13.0, None)], whole(None))
    assert found.measured == 43.0


def test_one_depth_and_noise_say_nothing() -> None:
    assert at_full_depth([took(1, 10.0, None)], whole(None)) == ()
    assert at_full_depth([took(1, 10.0, None), took(2, 9.0, None)], whole(None)) == ()
