"""A number's text is read alike by every spreadsheet, and says what the JSON says to 15 digits."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.tabular.csv_text import number_text

EVERY_LOCALE = re.compile(r"-?[0-9]+(e-?[0-9]+)?")
# Calc keeps 15 digits; rounding the very largest doubles to 15 would make them infinite
finite = st.floats(-1.7e308, 1.7e308)


@given(finite | st.integers(-(10**30), 10**30))
def test_mantissa_and_exponent_are_the_number_to_15_digits(value: float) -> None:
    text = number_text(value)
    assert EVERY_LOCALE.fullmatch(text)
    assert float(text) == float(f"{value:.15g}")
    assert len(text.lstrip("-").split("e")[0]) <= 15


@given(finite)
def test_a_decimal_point_and_a_decimal_comma_say_the_same(value: float) -> None:
    text = number_text(value, ".")
    assert re.fullmatch(r"-?[0-9]+(\.[0-9]*[1-9])?", text)
    assert float(text) == float(number_text(value))
    assert number_text(value, ",") == text.replace(".", ",")


@given(st.integers(-(10**15) + 1, 10**15 - 1))
def test_a_whole_number_of_15_digits_is_written_out(value: int) -> None:
    assert number_text(value) == number_text(value, ".") == str(value)


@given(finite)
def test_reading_the_text_gives_the_text_again(value: float) -> None:
    text = number_text(value)
    assert number_text(float(text)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (71.25, "7125e-2"), (-71.25, "-7125e-2"), (0.0, "0"), (-0.0, "0"), (80.0, "80"), (1e15, "1e15"),
        (999_999_999_999_999, "999999999999999"), (7.2e23, "72e22"), (1 / 3, "333333333333333e-15"),
        (0.1 + 0.2, "3e-1"), (5e-324, "494065645841247e-338"),
    ],
)  # fmt: skip
def test_examples(value: float, text: str) -> None:
    assert number_text(value) == text
