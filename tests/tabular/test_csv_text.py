"""Cells are read alike by every spreadsheet and run by none, and a table is read as its spreadsheet meant it."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import Refused
from service.tabular.csv_text import MARK, MOST_LINES, Table, exact_text, number_text, read_table, unmarked
from service.tabular.lists import cell_text
from tests.echoes import unquoted

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


COLUMNS = ("name", "gpu", "usd", "note")


def _read(text: str | bytes) -> Table:
    return read_table(text if isinstance(text, bytes) else text.encode(), COLUMNS, ("name",))


def _cells(text: str | bytes) -> list[dict[str, str]]:
    table = _read(text)
    assert table.findings == ()
    return [dict(line.cells) for line in table.lines]


@pytest.mark.parametrize(
    "text",
    [
        "name,usd,note\r\na,1.5,x\r\n",
        "name,usd,note\na,1.5,x",
        "\ufeffname;usd;note\r\na;1.5;x\r\n",
        "name\tusd\tnote\na\t1.5\tx\n",
        "sep=;\r\nname;usd;note\r\na;1.5;x\r\n",
        "name,usd,note\ra,1.5,x\r",
        "sep=;\rname;usd;note\ra;1.5;x",
        'Sep=,\nname,usd,note\n"a","1.5","x"\n',
        " Name , USD ,Note\na,1.5,x\n",
        "name,usd,note,,\na,1.5,x,,\n".replace(",,", ""),
    ],
)
def test_the_ways_in_which_spreadsheets_write_a_table_are_one(text: str) -> None:
    assert _cells(text) == [{"name": "a", "usd": "1.5", "note": "x"}]


def test_cells_hold_what_separates_them_quotes_and_line_breaks() -> None:
    assert _cells('name,note\r\n"a,b","say ""x""\r\ny;z"\r\n') == [{"name": "a,b", "note": 'say "x"\r\ny;z'}]
    assert _cells("name;note\na,b;1,5\n") == [{"name": "a,b", "note": "1,5"}]


def test_rows_are_numbered_as_a_spreadsheet_shows_them() -> None:
    table = _read('name,note\na,"two\nlines"\n\n,\nb,\nc\n')
    assert [line.row for line in table.lines] == [2, 5]
    assert [(finding.row, finding.code) for finding in table.findings] == [(6, "wrong_width")]
    assert [line.row for line in _read("sep=,\nname,note\na,x\n").lines] == [2]


def test_empty_cells_are_left_out_and_so_are_those_behind_the_last_column() -> None:
    assert _cells("name,note\na,\n,x,,,\n") == [{"name": "a"}, {"note": "x"}]
    (finding,) = _read("name,note\na,b,,c\n").findings
    assert (finding.row, finding.column, finding.code) == (2, "", "wrong_width")


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (b"", "empty", "header"),
        (b"\xef\xbb\xbf \r\n", "empty", "header"),
        ("name\nä".encode("latin-1"), "not_utf_8", "UTF-8"),
        ("name\na".encode("utf-16"), "not_utf_8", "UTF-8"),
        ("name\na".encode("utf-16-le"), "not_text", "UTF-8"),
        (b"name\na\0b", "not_text", "UTF-8"),
        (b'name\n"a\nb', "not_csv", "quotes"),
        (b'name\n"a"b\n', "not_csv", "quotes"),
        (b"name\n" + b"x" * 140_000, "too_long", "shorten"),
        (b"x" * 140_000 + b"\na", "too_long", "shorten"),
        (b"sep=;\n", "empty", "header"),
        (b"sep=;\r\n \r\n", "empty", "header"),
        (b"sep=;", "empty", "header"),
        (b'sep="\rname', "unknown_column", "the columns are"),
        (b"name,c4n4ry\na,b", "unknown_column", "the columns are name, gpu, usd, note"),
        (b"nane,gpu\na,b", "unknown_column", "did you mean name?"),
        (b"name,,gpu\na,,b", "unknown_column", "the columns are"),
        (b"c4n4ry\n", "unknown_column", "the columns are"),
        (b"name,gpu,name\na,b,c", "repeated", "once"),
        (b"gpu,usd\na,1", "required", "first row"),
        (b"name\n" + b"a\n" * (MOST_LINES + 1), "too_many_rows", "several parts"),
    ],
)
def test_a_text_that_is_no_such_table_is_refused(text: bytes, code: str, told: str) -> None:
    with pytest.raises(Refused) as refused:
        _read(text)
    problem = refused.value.problems[0]
    assert problem.code == code
    assert told in problem.fix
    assert "c4n4ry" not in unquoted(problem.message)


def test_as_many_rows_as_allowed_are_read() -> None:
    assert len(_read("name\n" + "a\n" * MOST_LINES).lines) == MOST_LINES


@pytest.mark.parametrize(
    "text", ["=1", "'=1", "''=1", "@a", "-", "'", "''", "'90s", "+'", "'\t", "plain", "\rx", "x;=1;'-2;;y", ";"]
)
def test_a_mark_against_formulas_is_taken_off_again(text: str) -> None:
    cell = cell_text(text)
    assert unmarked(cell) == text
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert not set(";=+-@\t\r") & {part[:1] for part in cell.split(";")}
    assert cell.replace(MARK, "") == text.replace(MARK, "")


@pytest.mark.parametrize("number", [0.1, 1 / 3, 2.5, 1e22, 5e-324, 1.7976931348623157e308, 123456789.12345679, 0.0])
def test_a_number_in_a_table_is_read_back_as_the_same(number: float) -> None:
    assert float(exact_text(number)) == number
    (row,) = csv.reader(io.StringIO(cell_text(number)))
    assert row == [exact_text(number)]
    assert "e" not in row[0].lower()
