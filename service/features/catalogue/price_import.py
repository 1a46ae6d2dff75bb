"""Import of an owner's prices from a spreadsheet, row by row, in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.catalogue import SHIPPED, Catalogue, PriceRow, Snapshot
from service.errors import Problem, Refused, Stale, refuse
from service.estimator.question import Documented
from service.features.catalogue.custom_rows import custom_row, refuse_wrong_derived
from service.features.catalogue.lists import LISTINGS, record_of
from service.features.catalogue.row_bodies import DERIVED, without_derived
from service.features.catalogue.row_rules import validated
from service.store.history import History, Rows
from service.store.keys import Caller
from service.tabular.csv_text import Finding, Line, finding_of, read_table
from service.tabular.lists import Column
from service.validation.flat import DecimalMark, Form, read_value

PRICES = LISTINGS["prices"]
COLUMNS: Mapping[str, Column] = {column.name: column for column in PRICES.columns}
REQUIRED = ("provider", "gpu", "usd_per_gpu_hour")
REVISION = "revision"
MOST_FINDINGS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    mark: DecimalMark = "."
    skips: bool = False
    """Whether to import the valid rows if others are wrong."""
    is_trial: bool = False
    caller: Caller


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
    row: int
    body: Mapping[str, Any]
    price: PriceRow


@dataclass(frozen=True, slots=True)
class ImportDraft:
    """A parsed table, classified against a catalogue: the report of its rows, and those to write."""

    prices: Sequence[_Price]
    wrong: Sequence[Finding]
    report: ImportReport
    put: tuple[PriceRow, ...]


def draft_import(content: bytes, options: ImportOptions, catalogue: Catalogue) -> ImportDraft | ImportReport:
    """Parse a table and classify its rows against the owner's view; a report if there is nothing to write."""
    draft = _classify(*_read(content, options), catalogue, options.caller)
    is_refused = draft.report.findings and not options.skips
    return draft.report if options.is_trial or not draft.put or is_refused else draft


def write_import(history: History, before: Snapshot, draft: ImportDraft, options: ImportOptions) -> ImportReport:
    """Write the prices of a table as custom rows, classified again if the catalogue has changed."""
    drafts = [draft]

    def decide(snapshot: Snapshot) -> Rows:
        if snapshot is not before:
            drafts.append(_classify(draft.prices, draft.wrong, snapshot.view(options.caller.owner), options.caller))
            refuse_wrong(drafts[-1].report, options)
        if not drafts[-1].put:
            raise Stale("another request has just written the same prices")
        return Rows(put=drafts[-1].put)

    try:
        after = history.change(options.caller.owner, decide).catalogue
    except Stale:
        return drafts[-1].report
    return replace(drafts[-1].report, catalogue=after.revision, is_written=True)


def refuse_wrong(report: ImportReport, options: ImportOptions) -> None:
    """Refuse a table with wrong rows that are not to be skipped."""
    if report.findings and not (options.skips or options.is_trial):
        raise ImportRefused(report)


def _read(content: bytes, options: ImportOptions) -> tuple[list[_Price], list[Finding]]:
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
    body: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, text in line.cells.items():
        types = COLUMNS[name].types
        form: Form = "integer" if "integer" in types else "number" if "number" in types else "text"
        try:
            body[name] = read_value(name, form, text, mark)
        except Refused as refused:
            fix = "write decimals with a point, or say dec=, if commas stand before them in every number"
            problems += [replace(one, fix=fix) if one.code == "decimal_comma" else one for one in refused.problems]
    refuse(problems)
    return body


def _classify(prices: Sequence[_Price], wrong: Sequence[Finding], catalogue: Catalogue, caller: Caller) -> ImportDraft:
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
    failed = len({finding.row for finding in findings})
    report = ImportReport(
        is_written=False,
        rows=sum(map(len, by_kind.values())) + failed,
        **{kind: len(rows) for kind, rows in by_kind.items()},
        failed=failed,
        catalogue=catalogue.revision,
        findings=tuple(sorted(findings, key=lambda finding: finding.row))[:MOST_FINDINGS],
        findings_left_off=max(len(findings) - MOST_FINDINGS, 0),
    )
    return ImportDraft(prices, wrong, report, (*by_kind["created"], *by_kind["updated"]))


def _rederived(one: _Price, catalogue: Catalogue, caller: Caller) -> PriceRow:
    """Price of a row, its unchanged derived values derived again: an old export does not tell them from stated ones."""
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


SHIPPED_HAS_IT = Problem(
    field="",
    code="shipped",
    message="a price of the shipped catalogue has the same provider, machine, GPU, region, terms, stat and date",
    fix="give the price another date, or leave the row out",
)
EVERYONE_HAS_IT = replace(
    SHIPPED_HAS_IT,
    code="name_taken",
    message="a price for everyone has the same provider, machine, GPU, region, terms, stat and date",
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
