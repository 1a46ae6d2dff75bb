"""Import of an owner's prices from a spreadsheet, row by row; one change stores all of them or none.

What `GET /v1/prices.csv?owner=team` gives can be imported back: a row that says what the catalogue holds is unchanged,
another one of its id takes its place, and one that gives a revision is refused where that is no longer the newest.

A table is read and judged before its turn to be written comes, and judged again only if the catalogue has changed
meanwhile: a trial or a table that is refused delays no other change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from service.catalogue import SHIPPED, Catalogue, Holdings, PriceRow
from service.errors import Problem, Refused, Stale
from service.estimator.names import SPOKEN
from service.features.catalogue.custom_rows import own_row, refuse_untrue
from service.features.catalogue.lists import LISTINGS, record_of
from service.features.catalogue.row_bodies import DERIVED, underived
from service.features.catalogue.row_rules import sound
from service.store import History, Rows
from service.store.keys import Caller
from service.tabular.columns import Column
from service.tabular.csv_text import Finding, Line, finding_of, read_table
from service.validation.flat_values import DecimalMark, Form, read_value

PRICES = LISTINGS["prices"]
COLUMNS: Mapping[str, Column] = {column.name: column for column in PRICES.columns}
REQUIRED = ("provider", "gpu", "usd_per_gpu_hour")
"""Columns without which no price is one; any other may be absent."""
REVISION = "revision"
MOST_FINDINGS = 1_000
"""Findings that one report holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """How a table is to be imported."""

    mark: DecimalMark = "."
    """What stands before the decimals of its numbers."""
    skips: bool = False
    """Import the good rows where others are wrong."""
    is_trial: bool = False
    """Only tell what would be done."""
    caller: Caller
    """Whose the prices are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did, or would do."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    is_written: bool
    """Whether anything was written."""
    rows: int
    """Rows of the table below its header, empty ones not counted."""
    created: int
    """Rows that are new."""
    updated: int
    """Rows that take the place of an own row of their id."""
    unchanged: int
    """Rows that the catalogue holds already."""
    failed: int
    """Rows that are wrong."""
    catalogue: str
    """Digest of the catalogue after the import."""
    findings: tuple[Finding, ...]
    """What is wrong, row by row."""
    findings_left_off: int
    """Findings beyond those that one report holds."""


class ImportRefused(Refused):
    """Rows are wrong and are not to be skipped, so nothing was written; the report names them."""

    def __init__(self, report: ImportReport) -> None:
        super().__init__(*(Problem(field=f.column, code=f.code, message=f.message, fix=f.fix) for f in report.findings))
        self.report = report


@dataclass(frozen=True, slots=True)
class _Price:
    """A price that a row of the table spells."""

    row: int
    body: Mapping[str, Any]
    price: PriceRow


@dataclass(frozen=True, slots=True)
class _Judged:
    """What the rows of a table are to a catalogue."""

    created: tuple[PriceRow, ...]
    updated: tuple[PriceRow, ...]
    unchanged: int
    findings: tuple[Finding, ...]

    @property
    def put(self) -> tuple[PriceRow, ...]:
        """The rows that an import writes."""
        return (*self.created, *self.updated)


@dataclass(frozen=True, slots=True)
class ImportDraft:
    """A table of which something is to be written, as its reader judged it."""

    prices: Sequence[_Price]
    wrong: Sequence[Finding]
    judged: _Judged


def draft_import(content: bytes, options: ImportOptions, catalogue: Catalogue) -> ImportDraft | ImportReport:
    """Read a table beside what its owner sees of the catalogue; a report where nothing of it is to be written."""
    prices, wrong = _read(content, options)
    judged = _judge(prices, wrong, catalogue, options.caller)
    if options.is_trial or not judged.put or (judged.findings and not options.skips):
        return _report(judged, catalogue, is_written=False)
    return ImportDraft(prices, wrong, judged)


def write_import(history: History, before: Holdings, draft: ImportDraft, options: ImportOptions) -> ImportReport:
    """Write the prices of a table as a team's own rows, judged again unless the catalogue is still the one before."""
    found = [draft.judged]

    def decide(holdings: Holdings) -> Rows:
        if holdings is not before:
            found.append(_judge_again(draft, holdings, options))
        if not found[-1].put:
            raise Stale("somebody else has just written the same prices")
        return Rows(put=found[-1].put)

    try:
        after = history.change(options.caller.owner, decide).catalogue
    except Stale:
        return _report(found[-1], history.view(options.caller.owner), is_written=False)
    return _report(found[-1], after, is_written=True)


def refuse_wrong(report: ImportReport, options: ImportOptions) -> None:
    """Refuse a table with wrong rows that are not to be skipped."""
    if report.findings and not (options.skips or options.is_trial):
        raise ImportRefused(report)


def _judge_again(draft: ImportDraft, holdings: Holdings, options: ImportOptions) -> _Judged:
    catalogue = holdings.view(options.caller.owner)
    judged = _judge(draft.prices, draft.wrong, catalogue, options.caller)
    refuse_wrong(_report(judged, catalogue, is_written=False), options)
    return judged


def _read(content: bytes, options: ImportOptions) -> tuple[list[_Price], list[Finding]]:
    """The prices that a table spells, and what is wrong with its other rows."""
    table = read_table(content, tuple(COLUMNS), REQUIRED)
    prices: list[_Price] = []
    findings = list(table.findings)
    for line in table.lines:
        try:
            body = _body(line, options.mark)
            price = own_row(PRICES, body, options.caller)
        except Refused as refused:
            findings += [finding_of(line.row, problem) for problem in refused.problems]
        else:
            prices += [_Price(line.row, body, price)] if isinstance(price, PriceRow) else []
    return prices, findings


def _body(line: Line, mark: DecimalMark) -> dict[str, Any]:
    """A row as the body that would create it."""
    body: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, text in line.cells.items():
        try:
            body[name] = read_value(name, _form(COLUMNS[name]), text, mark)
        except Refused as refused:
            problems += map(_reworded, refused.problems)
    if problems:
        raise Refused(*problems)
    return body


def _form(column: Column) -> Form:
    if "integer" in column.types:
        return "integer"
    return "number" if "number" in column.types else "text"


def _reworded(problem: Problem) -> Problem:
    if problem.code != "decimal_comma":
        return problem
    return replace(problem, fix="write decimals with a point, or say dec=, if commas stand before them in every number")


def _judge(prices: Sequence[_Price], wrong: Sequence[Finding], catalogue: Catalogue, caller: Caller) -> _Judged:
    held = catalogue.price_index.rows
    sorted_prices: dict[str, list[PriceRow]] = {"created": [], "updated": [], "unchanged": []}
    findings = list(wrong)
    seen: set[str] = set()
    for one in prices:
        try:
            price = sound(_derived_anew(one, catalogue, caller), catalogue)
            kind = _kind(one, price, held.get(price.id), seen)
        except Refused as refused:
            findings += [finding_of(one.row, problem) for problem in refused.problems]
        else:
            seen.add(price.id)
            sorted_prices[kind].append(price)
    return _Judged(
        tuple(sorted_prices["created"]),
        tuple(sorted_prices["updated"]),
        len(sorted_prices["unchanged"]),
        tuple(sorted(findings, key=lambda finding: finding.row)),
    )


def _derived_anew(one: _Price, catalogue: Catalogue, caller: Caller) -> PriceRow:
    """The price of a row; what was derived from an earlier version and left as it was follows the new one.

    In an export of another version than the one that holds, nobody can tell what was left as it was.
    """
    named = replace(one.price, gpu=catalogue.find_gpu(one.price.gpu, "gpu").row.slug)
    before = catalogue.price_index.rows.get(named.id)
    if before is None:
        return named
    body = underived(PriceRow, record_of(PRICES, before), one.body)
    if one.body.get(REVISION, before.revision) != before.revision:
        body = {name: value for name, value in body.items() if name not in DERIVED[PriceRow]}
    again = own_row(PRICES, body, caller)
    return again if isinstance(again, PriceRow) else named


def _kind(one: _Price, price: PriceRow, held: PriceRow | None, seen: set[str]) -> str:
    """What a price is to the own row of its id, where no earlier row of the table has that."""
    if price.id in seen:
        raise Refused(TWICE)
    if price.is_for_everyone and held is None:
        raise Refused(FOR_EVERYONE)
    if held is not None and held.owner == SHIPPED:
        raise Refused(SHIPPED_HAS_IT)
    if held is not None and held.is_for_everyone:
        raise Refused(EVERYONE_HAS_IT)
    stated = {name: value for name, value in one.body.items() if name != REVISION}
    refuse_untrue(stated, {"id": price.id, "owner": price.owner})
    if held is not None and replace(price, revision=held.revision) == held:
        return "unchanged"
    if one.body.get(REVISION, held and held.revision) != (held and held.revision):
        raise Refused(STALE)
    return "updated" if held else "created"


def _report(judged: _Judged, after: Catalogue, *, is_written: bool) -> ImportReport:
    failed = len({finding.row for finding in judged.findings})
    counts = {"created": len(judged.created), "updated": len(judged.updated), "unchanged": judged.unchanged}
    return ImportReport(
        is_written=is_written,
        rows=sum(counts.values()) + failed,
        **counts,
        failed=failed,
        catalogue=after.revision,
        findings=judged.findings[:MOST_FINDINGS],
        findings_left_off=max(len(judged.findings) - MOST_FINDINGS, 0),
    )


SHIPPED_HAS_IT = Problem(
    field="",
    code="shipped",
    message="a price of the shipped catalogue has the same provider, machine, GPU, region, terms, stat and date",
    fix="give the price another date, or leave the row out",
)
EVERYONE_HAS_IT = Problem(
    field="",
    code="name_taken",
    message="a price for everyone has the same provider, machine, GPU, region, terms, stat and date",
    fix="give the price another date, or leave the row out",
)
FOR_EVERYONE = Problem(
    field="scope",
    code="not_settable",
    message="imported prices hold for their owner; one at a time is promoted to everyone",
    fix="leave scope out, and let an admin PATCH the price with scope everyone",
)
TWICE = Problem(
    field="",
    code="repeated",
    message="an earlier row has the same provider, machine, GPU, region, terms, stat and date; one would be lost",
    fix="keep one of them, or give them different dates",
)
STALE = Problem(
    field=REVISION,
    code="stale",
    message="the price was changed since this revision of it was exported, and the row would undo that",
    fix="export the list again and change that, or leave revision empty to overwrite whatever there is",
)
