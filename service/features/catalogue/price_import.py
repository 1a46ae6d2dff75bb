"""Import of an owner's prices from a spreadsheet, row by row, in one transaction.

The output of `GET /v1/prices.csv?owner=team` can be imported back: a row equal to a stored one is unchanged, another
one with its id replaces it, and a row with a revision that is no longer the newest is refused.

A table is parsed and classified before it enters the write queue, and classified again only if the catalogue has
changed meanwhile: a dry run or a refused table delays no other change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.catalogue import SHIPPED, Catalogue, Holdings, PriceRow
from service.errors import Problem, Refused, Stale
from service.estimator.question import Documented
from service.features.catalogue.custom_rows import custom_row, refuse_wrong_derived
from service.features.catalogue.lists import LISTINGS, record_of
from service.features.catalogue.row_bodies import DERIVED, without_derived
from service.features.catalogue.row_rules import validated
from service.store.history import History, Rows
from service.store.keys import Caller
from service.tabular.columns import Column
from service.tabular.csv_text import Finding, Line, finding_of, read_table
from service.validation.flat import DecimalMark, Form, read_value

PRICES = LISTINGS["prices"]
COLUMNS: Mapping[str, Column] = {column.name: column for column in PRICES.columns}
REQUIRED = ("provider", "gpu", "usd_per_gpu_hour")
"""Required columns."""
REVISION = "revision"
MOST_FINDINGS = 1_000
"""Most findings in one report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of an import."""

    mark: DecimalMark = "."
    """Decimal mark of its numbers."""
    skips: bool = False
    """Import the valid rows if others are wrong."""
    is_trial: bool = False
    """Dry run."""
    caller: Caller
    """Owner of the prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport(Documented):
    """What an import did, or would do."""

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
    """A price parsed from a row of the table."""

    row: int
    body: Mapping[str, Any]
    price: PriceRow


@dataclass(frozen=True, slots=True)
class _Classified:
    """Rows of a table classified against a catalogue."""

    created: tuple[PriceRow, ...]
    updated: tuple[PriceRow, ...]
    unchanged: int
    findings: tuple[Finding, ...]

    @property
    def put(self) -> tuple[PriceRow, ...]:
        """Rows to write."""
        return (*self.created, *self.updated)


@dataclass(frozen=True, slots=True)
class ImportDraft:
    """A parsed table with rows to write."""

    prices: Sequence[_Price]
    wrong: Sequence[Finding]
    classified: _Classified


def draft_import(content: bytes, options: ImportOptions, catalogue: Catalogue) -> ImportDraft | ImportReport:
    """Parse a table and classify its rows against the owner's view; a report if there is nothing to write."""
    prices, wrong = _read(content, options)
    classified = _classify(prices, wrong, catalogue, options.caller)
    if options.is_trial or not classified.put or (classified.findings and not options.skips):
        return _report(classified, catalogue, is_written=False)
    return ImportDraft(prices, wrong, classified)


def write_import(history: History, before: Holdings, draft: ImportDraft, options: ImportOptions) -> ImportReport:
    """Write the prices of a table as custom rows, classified again if the catalogue has changed."""
    results = [draft.classified]

    def decide(holdings: Holdings) -> Rows:
        if holdings is not before:
            results.append(_classify_again(draft, holdings, options))
        if not results[-1].put:
            raise Stale("another request has just written the same prices")
        return Rows(put=results[-1].put)

    try:
        after = history.change(options.caller.owner, decide).catalogue
    except Stale:
        return _report(results[-1], history.view(options.caller.owner), is_written=False)
    return _report(results[-1], after, is_written=True)


def refuse_wrong(report: ImportReport, options: ImportOptions) -> None:
    """Refuse a table with wrong rows that are not to be skipped."""
    if report.findings and not (options.skips or options.is_trial):
        raise ImportRefused(report)


def _classify_again(draft: ImportDraft, holdings: Holdings, options: ImportOptions) -> _Classified:
    catalogue = holdings.view(options.caller.owner)
    classified = _classify(draft.prices, draft.wrong, catalogue, options.caller)
    refuse_wrong(_report(classified, catalogue, is_written=False), options)
    return classified


def _read(content: bytes, options: ImportOptions) -> tuple[list[_Price], list[Finding]]:
    """Prices of a table, and the findings of its other rows."""
    table = read_table(content, tuple(COLUMNS), REQUIRED)
    prices: list[_Price] = []
    findings = list(table.findings)
    for line in table.lines:
        try:
            body = _body(line, options.mark)
            price = custom_row(PRICES, body, options.caller)
        except Refused as refused:
            findings += [finding_of(line.row, problem) for problem in refused.problems]
        else:
            prices += [_Price(line.row, body, price)] if isinstance(price, PriceRow) else []
    return prices, findings


def _body(line: Line, mark: DecimalMark) -> dict[str, Any]:
    """Body that would create a row."""
    body: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, text in line.cells.items():
        try:
            body[name] = read_value(name, _form(COLUMNS[name]), text, mark)
        except Refused as refused:
            problems += map(_with_parameter_fix, refused.problems)
    if problems:
        raise Refused(*problems)
    return body


def _form(column: Column) -> Form:
    if "integer" in column.types:
        return "integer"
    return "number" if "number" in column.types else "text"


def _with_parameter_fix(problem: Problem) -> Problem:
    if problem.code != "decimal_comma":
        return problem
    return replace(problem, fix="write decimals with a point, or say dec=, if commas stand before them in every number")


def _classify(prices: Sequence[_Price], wrong: Sequence[Finding], catalogue: Catalogue, caller: Caller) -> _Classified:
    stored = catalogue.price_index.rows
    by_kind: dict[str, list[PriceRow]] = {"created": [], "updated": [], "unchanged": []}
    findings = list(wrong)
    seen: set[str] = set()
    for one in prices:
        try:
            price = validated(_rederived(one, catalogue, caller), catalogue)
            kind = _kind(one, price, stored.get(price.id), seen)
        except Refused as refused:
            findings += [finding_of(one.row, problem) for problem in refused.problems]
        else:
            seen.add(price.id)
            by_kind[kind].append(price)
    return _Classified(
        tuple(by_kind["created"]),
        tuple(by_kind["updated"]),
        len(by_kind["unchanged"]),
        tuple(sorted(findings, key=lambda finding: finding.row)),
    )


def _rederived(one: _Price, catalogue: Catalogue, caller: Caller) -> PriceRow:
    """Price of a row, with unchanged derived values derived again.

    An export of an earlier revision does not tell derived values from stated ones.
    """
    price = replace(one.price, gpu=catalogue.find_gpu(one.price.gpu, "gpu").row.slug)
    before = catalogue.price_index.rows.get(price.id)
    if before is None:
        return price
    body = without_derived(PriceRow, record_of(PRICES, before), one.body)
    if one.body.get(REVISION, before.revision) != before.revision:
        body = {name: value for name, value in body.items() if name not in DERIVED[PriceRow]}
    rederived = custom_row(PRICES, body, caller)
    return rederived if isinstance(rederived, PriceRow) else price


def _kind(one: _Price, price: PriceRow, stored: PriceRow | None, seen: set[str]) -> str:
    """Whether a price is created, updated or unchanged; refused if an earlier row of the table has its id."""
    if price.id in seen:
        raise Refused(TWICE)
    if price.is_for_everyone and stored is None:
        raise Refused(FOR_EVERYONE)
    if stored is not None and stored.owner == SHIPPED:
        raise Refused(SHIPPED_HAS_IT)
    if stored is not None and stored.is_for_everyone:
        raise Refused(EVERYONE_HAS_IT)
    stated = {name: value for name, value in one.body.items() if name != REVISION}
    refuse_wrong_derived(stated, {"id": price.id, "owner": price.owner})
    if stored is not None and replace(price, revision=stored.revision) == stored:
        return "unchanged"
    if one.body.get(REVISION, stored and stored.revision) != (stored and stored.revision):
        raise Refused(STALE)
    return "updated" if stored else "created"


def _report(classified: _Classified, after: Catalogue, *, is_written: bool) -> ImportReport:
    failed = len({finding.row for finding in classified.findings})
    counts = {"created": len(classified.created), "updated": len(classified.updated), "unchanged": classified.unchanged}
    return ImportReport(
        is_written=is_written,
        rows=sum(counts.values()) + failed,
        **counts,
        failed=failed,
        catalogue=after.revision,
        findings=classified.findings[:MOST_FINDINGS],
        findings_left_off=max(len(classified.findings) - MOST_FINDINGS, 0),
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
