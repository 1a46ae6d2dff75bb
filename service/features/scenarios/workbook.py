"""Budget workbooks: summary, months, alternatives, rates, the live question, and what all of it rests on.

Costs are formulas of quantities and rates, so that price, dates and currency change them without the service. The
quantities are those that the service answers now, where the spreadsheet reaches it, and the saved ones elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import ceil
from typing import Any, Final

from service.estimator.explain.docstrings import read_docstring
from service.estimator.explain.labels import input_label
from service.estimator.run.cost import Charge
from service.features.cells.cells import REFRESH, REV
from service.features.estimates.metrics import FITS, metric_named
from service.features.scenarios.budgets import METRICS, Budget
from service.tabular.report import html_report
from service.tabular.sheets import (
    Chart,
    Formula,
    Heading,
    Names,
    NumberForm,
    Sheet,
    SheetCell,
    Shown,
    ValidationRule,
    day_number,
)
from service.units import dimension_of
from service.validation.flat import flat_fields

SUMMARY, MONTHS, SCENARIOS, RATES, AUDIT = "Summary", "Months", "Scenarios", "Rates", "Audit"

INPUTS, RESULTS = "Inputs", "Results"
SERVICE, QUERY = f"{INPUTS}!$B$4", f"{INPUTS}!$B$5"
"""Cells with the address of the service and the query."""
FIRST_FIELD = 8
KEY = "key"
FREE_ROWS = 6
"""Empty rows for fields that the user adds."""
FIRST_RESULT = 5
ENDS: Final = ("value", "low", "high")

CHEAPEST: Final = "cheapest"
LEAST_MONTHS, MOST_MONTHS = 6, 60

CONTINGENCY: Final = 0.1
"""Contingency that a budget starts with. Source: a choice, to be changed on the sheet."""

RANGE = (
    "Low and high: four of five published runs took GPU-hours between the two. Likely is the estimate itself. A budget "
    "that must hold covers the high end."
)


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a sheet's formula, which the arithmetic of a formula of costs puts together.

    >>> (Term("B6") * Term("rate") * (1 - Term("discount"))).text
    'B6*rate*(1-discount)'
    """

    text: str

    def __mul__(self, other: "Term | float") -> "Term":
        return Term(f"{self.text}*{_text(other)}")

    def __rmul__(self, other: float) -> "Term":
        return Term(f"{_text(other)}*{self.text}")

    def __truediv__(self, other: "Term | float") -> "Term":
        return Term(f"{self.text}/({_text(other)})")

    def __rsub__(self, other: float) -> "Term":
        return Term(f"({_text(other)}-{self.text})")


def _text(value: "Term | float") -> str:
    return value.text if isinstance(value, Term) else f"{value!r}"


def workbook_sheets(budget: Budget) -> tuple[Sequence[Sheet], Names]:
    """The sheets of a budget, and the cells that their formulas name."""
    summary = _Summary(budget)
    sheets = [
        summary.sheet(), _months(summary), *_scenarios(summary), _rates(budget), _inputs(budget), _results(budget),
        _audit(budget),
    ]  # fmt: skip
    return sheets, {**_rate_names(budget), **summary.names()}


def budget_report(budget: Budget) -> str:
    """Summary, months of the run and alternatives as one page of HTML."""
    summary = _Summary(budget)
    months = _months(summary)
    versions = budget.whole["versions"]
    footer = [
        f"Answer {budget.whole['id']}, formulas {versions['formulas']}, catalogue {versions['catalogue']}",
        *(f"{name}: {address}" for name, address in budget.links.items()),
    ]
    return html_report(budget.title, [summary.sheet(), months, *_scenarios(summary)], footer)


def _rates_of(budget: Budget) -> dict[str, float]:
    """Rates by name; the same rate of two lines once."""
    return {name: value for charge in budget.charges for name, value in charge.rates.items()}


FIRST_RATE = 9


def _rate_names(budget: Budget) -> dict[str, str]:
    places = {name: f"{RATES}!$B${row}" for row, name in enumerate(_rates_of(budget), start=FIRST_RATE)}
    return {"currency": f"{RATES}!$B$4", "exchange_rate": f"{RATES}!$B$5", **places}


def _rates(budget: Budget) -> Sheet:
    rows: list[list[SheetCell]] = [
        [Heading("Rates")],
        ["Change the coloured cells; every sheet follows."],
        [Heading("currency"), Heading("value", is_over_numbers=True), Heading("unit"), Heading("note")],
        ["Currency", Shown("USD", is_input=True), None, "Name of the currency in which the budget is shown."],
        ["Exchange rate", Shown(1.0, "rate", is_input=True), "currency/USD", "Units of the currency for one USD."],
        ["Rate as of", Shown(day_number(date.fromisoformat(budget.saved_on)), "date", is_input=True)],
        [],
        [Heading("rate"), Heading("value", is_over_numbers=True), Heading("unit"), Heading("name in formulas")],
    ]
    rules: dict[str, ValidationRule] = {"B5": "positive", "B6": "date"}
    for row, (name, value) in enumerate(_rates_of(budget).items(), start=FIRST_RATE):
        is_share = name.endswith("_fraction")
        rows.append(
            [input_label(name), Shown(value, "percent" if is_share else "general", is_input=True),
             dimension_of([name]).base if not is_share else None, name]
        )  # fmt: skip
        rules[f"B{row}"] = "fraction" if is_share else "positive"
    return Sheet(RATES, rows, (34, 18, 18, 44), frozen_rows=3, rules=rules)


class _Summary:
    """The first sheet, and where its figures stand."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.rows: list[list[SheetCell]] = []
        self.places: dict[str, int] = {}
        """Rows by the name of their figure."""
        self.rules: dict[str, ValidationRule] = {}
        self._write()

    def sheet(self) -> Sheet:
        total = self.places["cost"]
        chart = Chart(
            "column",
            "Cost of the run",
            f"A{len(self.rows) + 2}",
            "B5:D5",
            {"Cost": f"B{total}:D{total}"},
            "your currency",
        )
        return Sheet(
            SUMMARY, self.rows, (34, 18, 18, 18, 14, 44), frozen_rows=5, is_one_page=True, rules=self.rules,
            charts=[chart],
        )  # fmt: skip

    def names(self) -> dict[str, str]:
        named = ("contingency_fraction", "approved_amount", "start_date")
        return {name: f"{SUMMARY}!$B${self.places[name]}" for name in named}

    def place(self, name: str, column: str = "B") -> str:
        """Cell of a figure, as other sheets name it."""
        return f"{SUMMARY}!${column}${self.places[name]}"

    def _add(self, name: str, *cells: SheetCell) -> None:
        self.rows.append([*cells])
        self.places[name] = len(self.rows)

    def _figures(
        self, name: str, label: str, formulas: Sequence[tuple[str, Any]], form: NumberForm, *more: SheetCell,
        is_bold: bool = False,
    ) -> None:  # fmt: skip
        cells = [Shown(Formula(text, value), form, is_bold=is_bold) for text, value in formulas]
        self._add(name, Shown(label, is_bold=is_bold), *cells, *more)

    def _write(self) -> None:
        budget, totals = self.budget, self.budget.whole["totals"] or {}
        hours = _result_place("gpu_hours")
        self.rows += [
            [Heading(budget.title)],
            [_subject(budget)],
            ["Quantities are", Formula(f'IF(ISNUMBER({hours}),"those that the service answers now","those saved on '
                                       f'{budget.saved_on}")', f"those saved on {budget.saved_on}")],
            [],
            [None, *(Heading(one, is_over_numbers=True) for one in ("likely", "low", "high")), Heading("unit")],
        ]  # fmt: skip
        for metric, label in (
            ("gpu_hours", "GPU-hours"), ("billed_gpu_hours", "GPU-hours with spares"), ("days", "Days"),
            ("energy_kwh", "Energy"),
        ):  # fmt: skip
            unit = dimension_of([metric]).base
            formulas = [(_saved_or_live(metric, end), (totals.get(metric) or {}).get(end, 0)) for end in ENDS]
            self._figures(metric, label, formulas, "number", unit)
        lines = []
        for charge in budget.charges:
            values = _line_values(totals, charge.kind)
            self._figures(
                charge.kind, input_label(charge.kind),
                [(self._line(charge, column), value) for column, value in zip("BCD", values, strict=True)],
                "money", "USD", read_docstring(charge.formula).sections["Formula"],
            )  # fmt: skip
            lines.append(self.places[charge.kind])
        whole = [totals["cost_usd"][end] if totals.get("cost_usd") else 0 for end in ENDS]
        sums = [f"SUM({column}{lines[0]}:{column}{lines[-1]})" for column in "BCD"]
        self._figures("usd", "Cost", [*zip(sums, whole, strict=True)], "money", "USD")
        usd = self.places["usd"]
        self._budget_rows(usd, whole)
        self._dates(totals)
        self.rows += [[], [RANGE]]

    def _line(self, charge: Charge, column: str) -> str:
        hours, billed = self.places["gpu_hours"], self.places["billed_gpu_hours"]
        quantity = {
            "gpus": f"{column}{hours}",
            "spares": f"({column}{billed}-{column}{hours})",
            "storage": f"{column}{self.places['days']}",
            "electricity": f"{column}{self.places['energy_kwh']}",
            "egress": f"{charge.quantity.value!r}",
        }.get(charge.kind, f"{column}{billed}")
        return f"ROUND({charge.formula(Term(quantity), *map(Term, charge.rates)).text},2)"

    def _budget_rows(self, usd: int, whole: Sequence[float]) -> None:
        unit = Formula("currency", "USD")
        costs = [f"ROUND({column}{usd}*exchange_rate,2)" for column in "BCD"]
        self._figures("cost", "Cost in your currency", [*zip(costs, whole, strict=True)], "money", unit, is_bold=True)
        cost = self.places["cost"]
        self._add("contingency_fraction", "Contingency", Shown(CONTINGENCY, "percent", is_input=True))
        self.rules[f"B{self.places['contingency_fraction']}"] = "fraction"
        budgeted = [round(value * (1 + CONTINGENCY), 2) for value in whole]
        needed = [f"ROUND({column}{cost}*(1+contingency_fraction),2)" for column in "BCD"]
        self._figures("budget", "Budget with contingency", [*zip(needed, budgeted, strict=True)], "money", unit,
                      is_bold=True)  # fmt: skip
        budget = self.places["budget"]
        self._add("approved_amount", "Approved budget", Shown(budgeted[0], "money", is_input=True), None, None, unit)
        self.rules[f"B{self.places['approved_amount']}"] = "positive"
        left = [(f"approved_amount-{column}{budget}", round(budgeted[0] - one, 2))
                for column, one in zip("BCD", budgeted, strict=True)]  # fmt: skip
        self._figures("headroom", "Headroom", left, "money", unit, "Approved budget less the budget needed.")

    def _dates(self, totals: Mapping[str, Any]) -> None:
        saved = day_number(date.fromisoformat(self.budget.saved_on))
        self._add("start_date", "Start", Shown(saved, "date", is_input=True))
        start, days = self.places["start_date"], self.places["days"]
        self.rules[f"B{start}"] = "date"
        ends = [saved + (totals.get("days") or {}).get(end, 0) for end in ENDS]
        until = [f"start_date+{column}{days}" for column in "BCD"]
        self._figures("end_date", "End", [*zip(until, ends, strict=True)], "date")


def _subject(budget: Budget) -> str:
    resolved = budget.whole["resolved"]
    tokens = resolved["recipe"]["training_tokens"]
    trained = f"{tokens:,.0f} tokens" if tokens else "no training_tokens: give them on Inputs for a cost"
    machine = f"{resolved['cluster']['gpus']} x {resolved['gpu']['slug']}"
    return f"{budget.fields.get('model', 'a model')} on {machine}, {trained}"


def _line_values(totals: Mapping[str, Any], kind: str) -> list[float]:
    saved = {line["kind"]: line["usd"] for line in totals.get("cost") or ()}
    return [saved[kind][end] if kind in saved else 0 for end in ENDS]


def _result_place(metric: str, column: str = "B") -> str:
    return f"{RESULTS}!${column}${FIRST_RESULT + METRICS.index(metric)}"


LIVE, SAVED = dict(zip(ENDS, "BCD", strict=True)), dict(zip(ENDS, "FGH", strict=True))
"""Columns of the results: as the service answers now, and when saved."""


def _saved_or_live(metric: str, end: str) -> str:
    """The number that the service answers now; where it is not reached, the saved one."""
    live, saved = (_result_place(metric, columns[end]) for columns in (LIVE, SAVED))
    return f"IF(ISNUMBER({live}),{live},IF(ISNUMBER({saved}),{saved},0))"


def _months(summary: _Summary) -> Sheet:
    """The cost by calendar months: each month's share of the days of the run."""
    totals = summary.budget.whole["totals"] or {}
    days = {end: (totals.get("days") or {}).get(end, 0) for end in ENDS}
    cost = {end: (totals.get("cost_usd") or {}).get(end, 0) for end in ENDS}
    start = date.fromisoformat(summary.budget.saved_on)
    count = min(max(LEAST_MONTHS, ceil(days["high"] / 28) + 3), MOST_MONTHS)
    first, last = 6, 5 + count
    titles = (("likely until then", "D"), ("low", "E"), ("high", "F"), ("approved", "G"))
    series = {name: f"{column}{first}:{column}{last}" for name, column in titles}
    rows: list[list[SheetCell]] = [
        [Heading("Months")],
        ["The likely cost, spread evenly over the days of the run. Change the start on Summary."],
        [Formula(f'IF({summary.place("end_date")}>EDATE(A{last},1),"The run goes on after the last row.","")')],
        [],
        [Heading(one, is_over_numbers=True) for one in ("month", "days of the run", "cost", *series)],
    ]  # fmt: skip
    spent = 0.0
    for row in range(first, last + 1):
        month = _month_after(start, row - first)
        after = _month_after(start, row - first + 1)
        formula = "DATE(YEAR(start_date),MONTH(start_date),1)" if row == first else f"EDATE(A{row - 1},1)"
        sums = {end: _spent_until(after, start, days[end], cost[end]) for end in ENDS}
        in_month = max(
            0.0, min(_end(start, days["value"]), day_number(after)) - max(day_number(start), day_number(month))
        )
        cells: list[SheetCell] = [
            Shown(Formula(formula, day_number(month)), "month"),
            Shown(Formula(
                f"MAX(0,MIN({summary.place('end_date')},EDATE(A{row},1))-MAX(start_date,A{row}))", in_month), "number"),
            Shown(Formula(f"D{row}-D{row - 1}" if row > first else f"D{row}", round(sums["value"] - spent, 2)),
                  "money"),
            *(Shown(Formula(_cumulative(summary, row, column), sums[end]), "money")
              for end, column in zip(ENDS, "BCD", strict=True)),
            Shown(Formula("approved_amount", round(cost["value"] * (1 + CONTINGENCY), 2)), "money"),
        ]  # fmt: skip
        spent = sums["value"]
        rows.append(cells)
    chart = Chart("line", "Cost until a month ends", f"A{last + 2}", f"A{first}:A{last}", series, "your currency")
    return Sheet(MONTHS, rows, (14, 16, 18, 18, 18, 18, 18), frozen_rows=5, is_one_page=True, charts=[chart])


def _cumulative(summary: _Summary, row: int, column: str) -> str:
    """Cost until the end of a month: the share of the days of the run that are over, rounded to the cent."""
    days, cost = summary.place("days", column), summary.place("cost", column)
    share = f"MAX(0,MIN(1,(EDATE(A{row},1)-start_date)/{days}))"
    return f"IF({days}=0,0,ROUND({cost}*{share},2))"


def _month_after(start: date, months: int) -> date:
    years, month = divmod(start.month - 1 + months, 12)
    return date(start.year + years, month + 1, 1)


def _end(start: date, days: float) -> float:
    return day_number(start) + days


def _spent_until(day: date, start: date, days: float, cost: float) -> float:
    share = (day_number(day) - day_number(start)) / days if days else 0.0
    return round(cost * max(0.0, min(1.0, share)), 2)


def _scenarios(summary: _Summary) -> Iterator[Sheet]:
    """Other ways to run the job beside the one that was asked."""
    budget = summary.budget
    totals = budget.whole["totals"]
    if not budget.alternatives or totals is None:
        return
    tokens = budget.whole["resolved"]["recipe"]["training_tokens"]
    cost = totals["cost_usd"]["value"]
    letters = "BCDEF"[: 1 + len(budget.alternatives)]
    alternatives = budget.alternatives
    hours, billed, days = (summary.place(name) for name in ("gpu_hours", "billed_gpu_hours", "days"))
    usd = [round(round(one.billed_gpu_hours * one.usd_per_gpu_hour * (1 - one.discount_fraction), 2) + one.other_usd, 2)
           for one in alternatives]  # fmt: skip

    costs = [cost, *usd]

    def row(label: str, first: SheetCell, others: Sequence[SheetCell], unit: SheetCell = None) -> list[SheetCell]:
        return [label, first, *others, unit]

    def plain(form: NumberForm, values: Sequence[float], *, is_input: bool = False) -> list[SheetCell]:
        return [Shown(value, form, is_input=is_input) for value in values]

    currency = Formula("currency", "USD")
    rows: list[list[SheetCell]] = [
        [Heading("Scenarios")],
        ["The same job run in other ways, as the service answered on " + budget.saved_on + "."],
        [],
        [None, *(Heading(one, is_over_numbers=True) for one in ("As asked", *(each.name for each in alternatives))),
         Heading("unit")],
        row("Verdict", budget.whole["verdict"], [one.verdict for one in alternatives]),
        row("GPUs", budget.whole["resolved"]["cluster"]["gpus"], plain("count", [one.gpus for one in alternatives])),
        row("GPU-hours", Shown(Formula(hours, totals["gpu_hours"]["value"]), "number"),
            plain("number", [one.gpu_hours for one in alternatives]), "GPU-h"),
        row("GPU-hours with spares", Shown(Formula(billed, totals["billed_gpu_hours"]["value"]), "number"),
            plain("number", [one.billed_gpu_hours for one in alternatives]), "GPU-h"),
        row("Days", Shown(Formula(days, totals["days"]["value"]), "number"),
            plain("number", [one.days for one in alternatives]), "d"),
        row("Price of a GPU-hour", None, plain("rate", [one.usd_per_gpu_hour for one in alternatives], is_input=True),
            "USD/GPU-h"),
        row("Discount", None, plain("percent", [one.discount_fraction for one in alternatives], is_input=True)),
        row("Storage, egress", None, plain("money", [one.other_usd for one in alternatives]), "USD"),
        row("Cost", Shown(Formula(summary.place("cost"), cost), "money", is_bold=True),
            [Shown(Formula(f"ROUND((ROUND({c}8*{c}10*(1-{c}11),2)+{c}12)*exchange_rate,2)", value), "money",
                   is_bold=True) for c, value in zip(letters[1:], usd, strict=True)], currency),
        row("Cost of a million tokens", Shown(Formula(f"B13/{tokens!r}*1000000", cost / tokens * 1e6), "rate"),
            [Shown(Formula(f"{c}13/{tokens!r}*1000000", value / tokens * 1e6), "rate")
             for c, value in zip(letters[1:], usd, strict=True)], currency),
        row("Cost beside as asked", Shown(0, "money"),
            [Shown(Formula(f"{c}13-$B$13", round(value - cost, 2)), "money")
             for c, value in zip(letters[1:], usd, strict=True)], currency),
        row("Days beside as asked", Shown(0, "number"),
            [Shown(Formula(f"{c}9-$B$9", one.days - totals["days"]["value"]), "number")
             for c, one in zip(letters[1:], alternatives, strict=True)], "d"),
        ["Cheapest of a token", *(
                Formula(
                    f'IF({c}14=MIN($B$14:${letters[-1]}$14),"{CHEAPEST}","")', CHEAPEST if one == min(costs) else ""
                )
                for c, one in zip(letters, costs, strict=True)
            )],
    ]  # fmt: skip
    rules: dict[str, ValidationRule] = {f"{c}10": "positive" for c in letters[1:]}
    rules |= {f"{c}11": "fraction" for c in letters[1:]}
    yield Sheet(SCENARIOS, rows, (26, *(20,) * len(letters), 14), frozen_rows=4, is_one_page=True, rules=rules)


def _audit(budget: Budget) -> Sheet:
    versions = budget.whole["versions"]
    facts: list[list[SheetCell]] = [
        ["Saved on", Shown(day_number(date.fromisoformat(budget.saved_on)), "date")],
        ["Answer", budget.whole["id"]],
        ["Formulas", versions["formulas"]],
        ["Catalogue", versions["catalogue"]],
        ["Calibration", versions["calibration"] or "none"],
    ]
    facts += [[name, address] for name, address in budget.links.items()]
    lists = (("Assumptions", "assumptions"), ("Warnings", "warnings"))
    rows: list[list[SheetCell]] = [[Heading("Audit")], [], *facts]
    for title, name in lists:
        texts: Sequence[str] = budget.whole[name] or ["none"]
        rows += [[], [Heading(title)], *[list[SheetCell]([text]) for text in texts]]
    sources: list[list[SheetCell]] = [[one.get("name"), one["source"], one["as_of"]] for one in budget.whole["sources"]]
    rows += [[], [Heading("Sources")], *sources]
    return Sheet(AUDIT, rows, (24, 60, 16), frozen_rows=1)


def _inputs(budget: Budget) -> Sheet:
    options: dict[str, tuple[SheetCell, str]] = {
        REV: (budget.revision, "Catalogue that the numbers rest on; the newest where empty."),
        KEY: (None, "A sheet key, where the service asks for one; a reader of the file has the key then."),
        REFRESH: (None, "Write anything new here to have every number asked again."),
    }
    rates = _rates_of(budget)
    question_rows = {
        name: (Formula(name, value) if name in rates else value, flat_fields()[name].meaning)
        for name, value in budget.fields.items()
    }
    rows_by_name = list({**options, **question_rows}.items())
    fields: list[list[SheetCell]] = [
        [name, value, meaning, _query_part(row)]
        for row, (name, (value, meaning)) in enumerate(rows_by_name, start=FIRST_FIELD)
    ]
    last = FIRST_FIELD + len(fields) + FREE_ROWS
    fields += [[None, None, None, _query_part(row)] for row in range(FIRST_FIELD + len(fields), last)]
    pieces = "&".join(f"D{row}" for row in range(FIRST_FIELD, last))
    rows: list[list[SheetCell]] = [
        [Heading(budget.title)],
        [f"Change column B, and the sheet {RESULTS} asks the service. An empty cell takes the default."],
        ["More fields go into the empty rows below, by the names that the service lists at /v1/choices and /docs."],
        ["service", budget.address, "Where the service is."],
        ["query", Formula(f'"on_error=text"&{pieces}'), "What the fields ask; it is made from column D."],
        [],
        [Heading("field"), Heading("value"), Heading("meaning"), Heading("part of the query")],
        *fields,
    ]
    return Sheet(INPUTS, rows, (24, 28, 60, 30))


def _query_part(row: int) -> Formula:
    """Part of the query for a field, in no locale: booleans become 1 and 0, a decimal comma a point."""
    number = f'IF(ISNUMBER(B{row}),SUBSTITUTE(B{row},",","."),B{row})'
    text = f'"&"&A{row}&"="&ENCODEURL(IF(ISLOGICAL(B{row}),IF(B{row},1,0),{number}))'
    return Formula(f'IF(OR(A{row}="",B{row}=""),"",{text})')


def _results(budget: Budget) -> Sheet:
    names = ("number", "value", "low", "high", "unit", "when saved", "low when saved", "high when saved")
    why = f'WEBSERVICE({SERVICE}&"/v1/cell/why?"&{QUERY})'
    rows: list[list[SheetCell]] = [
        [Heading(budget.title)],
        ["reason", Formula(f'IFERROR({why},"{NOT_REACHED}")', "ok"), "ok, or what is to be mended"],
        [],
        [Heading(name) for name in names],
        *(_result_row(row, name, budget.whole) for row, name in enumerate(METRICS, start=FIRST_RESULT)),
    ]
    return Sheet(RESULTS, rows, (32, 22, 22, 22, 12, 22, 22, 22), frozen_rows=4)


def _result_row(row: int, name: str, whole: Mapping[str, Any]) -> list[SheetCell]:
    metric = metric_named(name)
    number = metric.read(whole)
    ends = number if isinstance(number, Mapping) else {"value": number}
    value, low, high = (_cell_value(ends.get(end)) for end in ENDS)
    form, saved = _form(name), (value, low, high)
    live = [
        Shown(_cell_formula(row, "" if end == "value" else f".{end}", one), form)
        if metric.is_interval or not at
        else None
        for at, (end, one) in enumerate(zip(ENDS, saved, strict=True))
    ]
    kept = [None if one is None else Shown(one, form) for one in saved]
    return [name, *live, dimension_of(metric.path).base, *kept]


def _form(name: str) -> NumberForm:
    """How a number of the answer is shown."""
    if name.endswith("_fraction"):
        return "percent"
    if name.endswith("_flop"):
        return "scientific"
    return "count" if name.endswith(("_bytes", ".total")) or name == FITS else "number"


def _cell_formula(row: int, end: str, value: float | None) -> Formula:
    """Formula that shows a number, the reason why there is none, or that the service was not reached."""
    text = f'WEBSERVICE({SERVICE}&"/v1/cell/"&$A{row}&"{end}?"&{QUERY})'
    shown = f'IFERROR(NUMBERVALUE({text},".",","),IFERROR({text},"{NOT_REACHED}"))'
    return Formula(shown, "" if value is None else value)


NOT_REACHED = "the service was not reached"


def _cell_value(value: float | None) -> float | None:
    return int(value) if isinstance(value, bool) else value
