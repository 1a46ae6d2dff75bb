"""Does a spread hold what it is to hold, and is a source judged without itself?"""

from service.calibration.scores import left_out_fraction, spread_fraction


def test_a_source_of_many_rows_counts_as_much_as_one_of_few() -> None:
    assert spread_fraction({"many": [0.01] * 1000, "few": [0.5]}) == 0.5
    assert (
        spread_fraction({"many": [0.01] * 1000, "other": [0.02] * 9, "third": [0.02], "fourth": [0.02], "few": [0.5]})
        == 0.02
    )


def test_the_sign_does_not_count() -> None:
    assert spread_fraction({"one": [-0.3]}) == spread_fraction({"one": [0.3]})


def test_what_is_judged_has_no_part_in_the_spread() -> None:
    assert left_out_fraction({"judged": [9.0, 0.1], "other": [0.2]}, "judged") == 0.5
    assert left_out_fraction({"other": [0.2]}, "judged") is None
