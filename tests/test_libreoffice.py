"""A real spreadsheet shows the numbers of the JSON: LibreOffice Calc asks a live service, in three languages."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import httpx
import pytest

from service.features.scenarios.budgets import EXAMPLE, METRICS
from service.features.scenarios.workbook import FIRST_FIELD, NOT_REACHED
from tests.libreoffice import Book, Cell, shown
from tests.live import serving
from tests.needing import need

LOCALES = ("en-US", "de-DE", "fr-FR")
ENDS = ("value", "low", "high")
COLUMNS = {"value": "B", "low": "C", "high": "D"}
FILES = ("budget.xlsx", "budget.ods")
OTHER_FIELDS = 3
"""Rows above the first field of the question: `rev`, `key` and `r`."""
WAYS = ("{}*1", "VALUE({})", 'NUMBERVALUE({};".";",")')
"""How sheets make a number of a text."""

PLACES = {
    "fits": "verdict", "device_peak_bytes": "memory.device_peak_bytes", "total_flop": "flop.total_flop",
    **{name: f"step.{name}" for name in ("step_seconds", "tokens_per_s_per_gpu", "mfu_fraction")},
    **{name: f"totals.{name}" for name in ("gpu_hours", "billed_gpu_hours", "days", "cost_usd", "energy_kwh")},
    "carbon_kg_co2e": "totals.carbon_kg_co2e",
}  # fmt: skip
"""Where a number stands in the JSON, unless its name says so."""

REQUEST = re.compile(r'"(OPTIONS|HEAD|GET) (/v1/cell/\S*) HTTP')

Question = Mapping[str, str]
QUESTION: Question = dict(EXAMPLE)
CHANGES: tuple[Question, ...] = ({}, {"tensor": "1"}, {"tensor": "4"}, {"recompute": "full"}, {"gpus": "16"})
ASKED = [(number, {**QUESTION, **change}) for change in CHANGES for number in METRICS]
"""What the formulas ask: every number of the example and of some like it."""


def field(name: str) -> str:
    """Where a field of the example stands in a budget, below `rev`, `key` and `r`."""
    return f"Inputs.B{FIRST_FIELD + OTHER_FIELDS + list(QUESTION).index(name)}"


FREE = FIRST_FIELD + OTHER_FIELDS + len(QUESTION)
PRICE, EXCHANGE_RATE = "Rates.B9", "Rates.B5"
CHANGED: Question = {**QUESTION, "recompute": "full", "usd_per_gpu_hour": "1.75"}
EDITS: tuple[Mapping[str, str | float], ...] = (
    {},
    {f"Inputs.A{FREE}": "recompute", f"Inputs.B{FREE}": "full", PRICE: 1.75},
    {field("tensor"): 3},
    {
        field("gpus"): 16,
        PRICE: 1.75,
        EXCHANGE_RATE: 0.92,
        "Summary.B13": 0.25,
        "Summary.B15": 12_000,
        "Summary.B17": 46447,
    },
)
"""What is typed into the budgets: nothing; another field and a price with decimals, as CHANGED; a wrong degree; twice
the GPUs, a price, an exchange rate, a contingency, an approved amount and a start in March 2027."""
BUDGETED: Question = {**QUESTION, "gpus": "16", "usd_per_gpu_hour": "1.75"}


@dataclass(frozen=True, slots=True)
class Shown:
    """What Calc showed in one language."""

    address: str
    formulas: list[Cell]
    """The cells that ask for ASKED."""
    requests: Mapping[str, Counter[str]]
    """How often they were asked for, by path with its query and by method."""
    budgets: Mapping[str, list[dict[str, Cell]]]
    """The cells of each file by place, once for each of EDITS."""
    budget_requests: Mapping[str, Counter[str]]
    """How often the cells of the budgets asked, all of them together."""


def formulas(address: str) -> dict[str, str | float]:
    """Formulas by place: each of ASKED, in each of the ways in turn."""
    urls = [httpx.URL(f"http://{address}/v1/cell/{number}", params=question) for number, question in ASKED]
    calls = [f'WEBSERVICE("{url}")' for url in urls]
    return {f"A{row}": "=" + WAYS[row % len(WAYS)].format(call) for row, call in enumerate(calls, start=1)}


def requests_in(log: str) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for method, path in REQUEST.findall(log):
        found.setdefault(path, Counter())[method] += 1
    return found


@pytest.fixture(scope="module", params=LOCALES)
def calc(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    need("libreoffice")
    folder = tmp_path_factory.mktemp("calc")
    log = folder / "requests"
    with serving(folder, log) as address:
        (sheet,) = shown(request.param, [Book(edits=formulas(address))])
        logged = log.read_text(encoding="utf-8")
        for file in FILES:
            (folder / file).write_bytes(httpx.get(f"http://{address}/guide/{file}", timeout=30).content)
        books = shown(request.param, [Book(str(folder / file), dict(edit)) for file in FILES for edit in EDITS])
        budgets = {file: books[place * len(EDITS) :][: len(EDITS)] for place, file in enumerate(FILES)}
        later = requests_in(log.read_text(encoding="utf-8")[len(logged) :])
        yield Shown(address, list(sheet.values()), requests_in(logged), budgets, later)


def ends_of(address: str, number: str, question: Question) -> dict[str, float]:
    """A number of the JSON with its ends, rounded to the digits that a cell carries."""
    found: Any = httpx.get(f"http://{address}/v1/estimates", params=question, timeout=30).json()
    for step in PLACES.get(number, number).split("."):
        found = found[step]
    if number == "fits":
        found = int(found != "out_of_memory")
    ends = found if isinstance(found, dict) else {"value": found}
    return {end: float(f"{ends[end]:.15g}") for end in ENDS if end in ends}


def test_every_formula_shows_the_number_of_the_json(calc: Shown) -> None:
    assert len(calc.formulas) == len(ASKED) >= 60
    for cell, (number, question) in zip(calc.formulas, ASKED, strict=True):
        assert cell.error == 0, cell
        assert cell.number == ends_of(calc.address, number, question)["value"], cell


def test_a_cell_asks_three_times_and_is_computed_once(calc: Shown) -> None:
    assert len(calc.requests) == len(ASKED)
    assert {counts["GET"] for counts in calc.requests.values()} == {1}
    assert max(counts.total() for counts in calc.requests.values()) <= 3


def test_a_cell_of_a_budget_asks_no_more_each_time_it_is_opened(calc: Shown) -> None:
    opened = len(FILES) * len(EDITS)
    assert len(calc.budget_requests) > len(EDITS) * len(METRICS)
    assert max(counts["GET"] for counts in calc.budget_requests.values()) <= opened
    assert max(counts.total() for counts in calc.budget_requests.values()) <= 3 * opened


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(("edit", "question"), [(0, QUESTION), (1, CHANGED)], ids=["as it is", "changed"])
def test_every_cell_of_a_budget_is_the_number_of_the_json(
    calc: Shown, file: str, edit: int, question: Question
) -> None:
    cells = calc.budgets[file][edit]
    assert cells["Results.B2"].text == "ok"
    for row, number in enumerate(METRICS, start=5):
        assert cells[f"Results.A{row}"].text == number
        shown_here = {end: cells.get(f"Results.{column}{row}") for end, column in zip(ENDS, "BCD", strict=True)}
        told = {end: cell.number for end, cell in shown_here.items() if cell is not None}
        assert told == ends_of(calc.address, number, question), number
    assert [cell for cell in cells.values() if cell.error] == []


@pytest.mark.parametrize("file", FILES)
def test_a_wrong_field_shows_the_reason_in_every_cell(calc: Shown, file: str) -> None:
    cells = calc.budgets[file][2]
    assert cells["Results.B2"].text.startswith("replica_divides_cluster")
    answers = [cell for place, cell in cells.items() if re.fullmatch(r"Results\.[BCD]([5-9]|1\d)", place)]
    assert len(answers) > len(METRICS)
    assert all(cell.text.startswith("#ERR replica_divides_cluster") for cell in answers)


def cents(value: float) -> float:
    """An amount as a sheet rounds it."""
    return float(Decimal(repr(value)).quantize(Decimal("0.01"), ROUND_HALF_UP))


@pytest.mark.parametrize("file", FILES)
def test_every_total_is_the_services_to_the_cent(calc: Shown, file: str) -> None:
    as_it_is, _, _, edited = calc.budgets[file]
    for cells, question in ((as_it_is, QUESTION), (edited, BUDGETED)):
        costs = ends_of(calc.address, "cost_usd", question)
        days = ends_of(calc.address, "days", question)
        assert cells["Summary.B3"].text == "those that the service answers now"
        assert {end: cells[f"Summary.{column}11"].number for end, column in COLUMNS.items()} == costs
        assert {end: cells[f"Summary.{column}8"].number for end, column in COLUMNS.items()} == days
        assert [cell for cell in cells.values() if cell.error] == []
        months = [row for row in range(6, 80) if f"Months.C{row}" in cells]
        spent = sum(cells[f"Months.C{row}"].number or 0 for row in months)
        assert cents(spent) == cells[f"Months.D{months[-1]}"].number == cells["Summary.B12"].number
    for column, end in (("B", "value"), ("C", "low"), ("D", "high")):
        cost = cents(ends_of(calc.address, "cost_usd", BUDGETED)[end] * 0.92)
        assert edited[f"Summary.{column}12"].number == cost
        assert edited[f"Summary.{column}14"].number == pytest.approx(cost * 1.25, abs=0.011)
        left = 12_000 - (edited[f"Summary.{column}14"].number or 0)
        assert edited[f"Summary.{column}16"].number == pytest.approx(left)
    assert edited["Summary.B18"].number == pytest.approx(46447 + ends_of(calc.address, "days", BUDGETED)["value"])
    assert edited["Months.A6"].number == 46447


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Cell]]]:
    """The budgets where no service is reached: as they are, and with another price, rate, contingency and start."""
    need("libreoffice")
    folder = tmp_path_factory.mktemp("pinned")
    with serving(folder) as address:
        for file in FILES:
            (folder / file).write_bytes(httpx.get(f"http://{address}/guide/{file}", timeout=30).content)
    edits = [edit for edit in EDITS if EXCHANGE_RATE in edit]
    books = [Book(str(folder / file), dict(edit)) for file in FILES for edit in ({}, *edits)]
    found = shown("de-DE", books)
    return {file: found[place * 2 :][:2] for place, file in enumerate(FILES)}


@pytest.mark.parametrize("file", FILES)
def test_without_the_service_prices_dates_and_currency_still_change(
    pinned: dict[str, list[dict[str, Cell]]], file: str
) -> None:
    saved, edited = pinned[file]
    for cells in (saved, edited):
        assert cells["Summary.B3"].text.startswith("those saved on ")
        assert [cell for cell in cells.values() if cell.error] == []
    hours = saved["Summary.B6"].number or 0
    assert hours == edited["Summary.B6"].number
    assert saved["Summary.B11"].number == pytest.approx(hours * 2.5, abs=0.006)
    assert edited["Summary.B12"].number == cents(cents(hours * 1.75) * 0.92)
    assert edited["Summary.B14"].number == pytest.approx((edited["Summary.B12"].number or 0) * 1.25, abs=0.006)
    assert edited["Months.A6"].number == 46447
    assert cells["Results.B14"].text == NOT_REACHED
