"""The index of formulas agrees with the docstrings."""

from service.cli.data import INDEX, formula_index
from service.estimator.schedule import steps_of


def test_index_is_up_to_date() -> None:
    assert INDEX.read_bytes() == formula_index().encode(), "run `traincost write-formulas`"


def test_index_holds_a_formula_with_its_equation_unit_and_source() -> None:
    row = next(line for line in formula_index().splitlines() if line.startswith(f"| `{steps_of.__name__}`"))
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "`steps_of`: Optimizer steps of a run.",
        "`ceil(D / (B s))`",
        "1",
        "definition",
    ]


def test_every_row_has_four_cells() -> None:
    rows = [line for line in formula_index().splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    assert all(line.replace("\\|", "").count("|") == 5 for line in rows)


def test_every_letter_stands_for_one_field() -> None:
    letters = [line.split("|")[1].strip() for line in formula_index().split("## ")[1].splitlines() if "`" in line]
    assert len(letters) > 10
    assert len(letters) == len(set(letters))
