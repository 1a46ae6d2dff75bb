"""A table of measurements is read whole, or refused with the names of its columns."""

import csv
import io

import pytest

from service.calibration import tables
from service.calibration.tables import (
    FORMS,
    MEMORY,
    THROUGHPUT,
    Form,
    NotExpressible,
    read_measured_rows,
    shipped_rows,
    trimmed_table,
)
from service.errors import Refused

VALUES = ("row-1", "here", "torchtitan", "H100-SXM", "8", "1024", "bf16", "3.5", "GiB", "torch allocated", "ok")


def table(**more: str) -> str:
    """A table of one row, with some further columns."""
    written = io.StringIO()
    csv.writer(written).writerows([(*MEMORY.required, *more), (*VALUES, *more.values())])
    return written.getvalue()


def refused(content: bytes) -> dict[str, str]:
    """Codes of a refusal by field."""
    with pytest.raises(Refused) as raised:
        read_measured_rows(content)
    return {problem.field: problem.code for problem in raised.value.problems}


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_marks_and_line_ends_change_nothing(mark: bytes, end: str) -> None:
    lines = table(layers="12").splitlines()
    (row,) = read_measured_rows(mark + end.join([*lines, "", ""]).encode())
    assert (row.text("id"), row.whole("layers"), row.number_of("peak_mem_reported")) == ("row-1", 12, 3.5)


def test_cells_may_hold_commas_and_line_breaks() -> None:
    (row,) = read_measured_rows(table(notes='a, "b"\nc').encode())
    assert row.text("notes") == 'a, "b"\nc'


def test_unknown_columns_are_named() -> None:
    assert refused(table(layer="12", colour="red").encode()) == {"layer": "unknown_column", "colour": "unknown_column"}


def test_the_name_of_an_unknown_column_is_cut_and_harmless() -> None:
    (field,) = refused(table(**{"\x1b[31m" + "x" * 500: "1"}).encode())
    assert field.isprintable()
    assert len(field) < 60


def test_a_near_name_is_offered() -> None:
    with pytest.raises(Refused, match="layer") as raised:
        read_measured_rows(table(layer="12").encode())
    assert raised.value.problems[0].fix.startswith("did you mean layers")


def test_missing_columns_are_named() -> None:
    assert refused(b"id,layers\nx,12\n") == dict.fromkeys(
        [name for name in MEMORY.required if name != "id"], "required"
    )


def test_a_repeated_column_is_named() -> None:
    header, row = table().splitlines()
    assert refused(f"{header},gpu\n{row},A100\n".encode()) == {"gpu": "repeated"}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"\xff\xfe", "not_utf_8"),
        (table().encode() + b"\0", "not_text"),
        (table().encode() + b"a,b\n", "wrong_width"),
        (table().encode() + b'"never closed', "not_csv"),
    ],
)
def test_what_is_no_table_is_refused(content: bytes, code: str) -> None:
    assert refused(content) == {"table": code}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (table().replace(",", ";"), "semicolons"),
        ("\n" + table().replace(",", "\t"), "tabs"),
        (table().replace(",", " | "), "bars"),
        (";".join(f'"{name}"' for name in MEMORY.required), "semicolons"),
        ('[{"id": "row-1"}]', "JSON"),
        ('{"id": "row-1"}', "JSON"),
    ],
)
def test_columns_between_other_signs_are_told_to_use_commas(content: str, said: str) -> None:
    with pytest.raises(Refused) as raised:
        read_measured_rows(content.encode())
    (problem,) = raised.value.problems
    assert said in problem.message
    assert "separate columns by commas" in problem.fix


def test_other_signs_may_stand_in_cells() -> None:
    (row,) = read_measured_rows(table(notes="id;gpu|id").encode())
    assert row.text("notes") == "id;gpu|id"


def test_a_huge_cell_is_refused() -> None:
    assert refused(table(notes="x" * (csv.field_size_limit() + 1)).encode()) == {"table": "not_csv"}


def test_a_huge_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_ROWS", 2)
    row = table().splitlines()[1]
    assert refused(f"{table()}{row}\n{row}\n".encode()) == {"table": "too_many_rows"}
    monkeypatch.setattr(tables, "MOST_BYTES", 10)
    assert refused(table().encode()) == {"table": "too_large"}


@pytest.mark.parametrize("said", ["twelve", "1e999", "-3", "nan", "1_000", "٣"])
def test_an_unreadable_number_costs_its_row_alone(said: str) -> None:
    (row,) = read_measured_rows(table(layers=said).encode())
    with pytest.raises(NotExpressible, match="unreadable: layers"):
        row.whole("layers")


def test_a_fraction_is_no_count() -> None:
    (row,) = read_measured_rows(table(layers="12.5", heads="8.0").encode())
    assert row.count("heads") == 8
    with pytest.raises(NotExpressible, match="unreadable: layers"):
        row.count("layers")


def test_trimming_keeps_what_is_used() -> None:
    (row,) = read_measured_rows(table(layers="12", verified="yes").encode())
    trimmed = trimmed_table([row])
    assert tuple(trimmed.splitlines()[0].split(",")) == MEMORY.used
    (again,) = read_measured_rows(trimmed.encode())
    assert again.cells == {name: text for name, text in row.cells.items() if name in MEMORY.used}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_column_that_is_required_is_used_and_every_used_one_known(form: Form) -> None:
    assert {*form.required, *form.figures} <= {*form.used} <= form.known
    assert len({*form.used}) == len(form.used)


@pytest.mark.parametrize("figure", THROUGHPUT.figures)
def test_a_table_without_memory_and_with_seconds_is_one_of_throughput(figure: str) -> None:
    content = f"{','.join([*THROUGHPUT.required, figure])}\na,b,c,d,8,1024,bf16,2.5\n"
    (row,) = read_measured_rows(content.encode())
    assert (row.form, row.number_of(figure)) == ("throughput", 2.5)
    assert refused(content.replace(figure, f"{figure},mem_rank").replace("2.5", "2.5,x").encode()) == {
        "mem_rank": "unknown_column"
    }


def test_every_shipped_row_says_where_it_was_published() -> None:
    rows = shipped_rows()
    assert len(rows) == 589
    assert [row.text("id") for row in rows if not row.text("source") or not row.text("source_key")] == []
    assert len({row.text("id") for row in rows}) == len(rows)
