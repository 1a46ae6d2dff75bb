"""Printable HTML of sheets: their values as they were worked out and their charts as SVG, in one file."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import timedelta
from hashlib import sha256
from html import escape

from service.tabular.sheets import DAY_ZERO, Chart, Formula, Heading, NumberForm, Plain, Sheet, SheetCell, Shown

STYLE = """
:root { color-scheme: light; font: 8pt/1.25 system-ui, sans-serif; color: #1b1b1b }
@page { size: A4; margin: 14mm }
body { max-width: 182mm; margin: 8mm auto }
h1 { font-size: 14pt; margin: 0 }
h2 { font-size: 10pt; margin: 3mm 0 1mm }
p { margin: 1mm 0 }
table { border-collapse: collapse; width: 100% }
td, th { padding: .25mm 3mm .25mm 0; text-align: left; font-weight: normal; white-space: nowrap }
td[colspan] { white-space: normal }
th { font-weight: 600; border-bottom: 1px solid #bfbfbf }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.bold { font-weight: 600 }
section { break-inside: avoid }
.chart { width: 70%; height: auto; margin-top: 1mm }
.chart polyline { fill: none; stroke-width: 1.6 }
.chart text { font-size: 11px; fill: #444 }
.axis { stroke: #bfbfbf }
.s0 { stroke: #1f5fa8; fill: #1f5fa8 } .s1 { stroke: #7fa8d1; fill: #7fa8d1 }
.s2 { stroke: #b5651d; fill: #b5651d } .s3 { stroke: #2e7d4f; fill: #2e7d4f }
footer { margin-top: 3mm; border-top: 1px solid #bfbfbf; font-size: 7pt; color: #555; overflow-wrap: anywhere }
@media print { body { margin: 0 } }
"""

POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
"""Content security policy of a report: its own style, and nothing else."""

WIDTH, HEIGHT, LEFT, BELOW = 640, 150, 56, 22
"""Size of a chart, and room for the texts of its axes."""


def html_report(title: str, sheets: Sequence[Sheet], footer: Sequence[str]) -> str:
    """Sheets below each other on a page."""
    parts = "".join(map(_section, sheets))
    ends = "".join(f"<p>{escape(line)}</p>" for line in footer)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1>{parts}<footer>{ends}</footer></body></html>\n"
    )


def _section(sheet: Sheet) -> str:
    rows = "".join(_row(row) for row in sheet.rows[1:] if row)  # its first row is its title
    charts = "".join(_chart(sheet, chart) for chart in sheet.charts)
    return f"<section><h2>{escape(sheet.name)}</h2><table>{rows}</table>{charts}</section>"


def _row(cells: Sequence[SheetCell]) -> str:
    if len(cells) == 1:
        return f'<tr><td colspan="9">{escape(_text(*_value(cells[0])))}</td></tr>'
    return f"<tr>{''.join(map(_cell, cells))}</tr>"


def _cell(cell: SheetCell) -> str:
    value, form = _value(cell)
    is_right = isinstance(value, int | float) or (isinstance(cell, Heading) and cell.is_over_numbers)
    marks = [
        name for name, is_so in (("number", is_right), ("bold", isinstance(cell, Shown) and cell.is_bold)) if is_so
    ]
    tag = "th" if isinstance(cell, Heading) else "td"
    style = f' class="{" ".join(marks)}"' if marks else ""
    return f"<{tag}{style}>{escape(_text(value, form))}</{tag}>"


def _value(cell: SheetCell) -> tuple[Plain | None, NumberForm]:
    """What a cell shows, and how."""
    form: NumberForm = "general"
    if isinstance(cell, Shown):
        form, cell = cell.form, cell.value
    if isinstance(cell, Formula):
        cell = cell.value
    return (cell.text if isinstance(cell, Heading) else cell), form


_DIGITS: dict[NumberForm, str] = {
    "general": ",.15g", "count": ",.0f", "number": ",.2f", "rate": ",.4f", "money": ",.2f", "percent": ".1%",
    "scientific": ".3e",
}  # fmt: skip


def _text(value: Plain | None, form: NumberForm) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if form in ("date", "month"):
        return (DAY_ZERO + timedelta(days=int(value))).strftime("%Y-%m-%d" if form == "date" else "%b %Y")
    return format(value, _DIGITS[form])


def _chart(sheet: Sheet, chart: Chart) -> str:
    labels = [_text(*_value(cell)) for cell in _cells(sheet, chart.categories)]
    series = {
        name: [float(_value(cell)[0] or 0) for cell in _cells(sheet, cells)] for name, cells in chart.series.items()
    }
    top = max((value for values in series.values() for value in values), default=0.0) or 1.0
    step = (WIDTH - LEFT) / max(1, len(labels))

    floor, scale = HEIGHT - BELOW, 0.92 * (HEIGHT - BELOW) / top
    across = [LEFT + (place + 0.5) * step for place in range(len(labels))]
    drawn: list[str] = []
    for number, values in enumerate(series.values()):
        heights = [value * scale for value in values]
        places = [*zip(across, heights, strict=True)]
        if chart.kind == "line":
            points = " ".join(f"{x:.1f},{floor - height:.1f}" for x, height in places)
            drawn.append(f'<polyline class="s{number % 4}" points="{points}"/>')
        else:
            drawn += [
                f'<rect class="s{number % 4}" x="{x - step / 4:.1f}" y="{floor - height:.1f}" '
                f'width="{step / 2:.1f}" height="{height:.1f}"/>'
                for x, height in places
            ]
    every = max(1, len(labels) // 8)
    texts = [
        f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(label)}</text>'
        for x, label in [*zip(across, labels, strict=True)][::every]
    ]
    texts += [
        f'<text x="{LEFT - 6}" y="{floor - value * scale + 3:.1f}" text-anchor="end">{value:,.0f}</text>'
        for value in (0.0, top)
    ]
    names = [
        f'<text x="{WIDTH - 4}" y="{floor - values[-1] * scale - 3:.1f}" text-anchor="end">{escape(name)}</text>'
        for name, values in series.items()
        if len(series) > 1 and values
    ]
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">'
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH}" y1="{floor}" y2="{floor}"/>'
        f"{''.join(drawn + texts + names)}</svg>"
    )


def _cells(sheet: Sheet, cells: str) -> Iterator[SheetCell]:
    """The cells of a range of one row or one column."""
    first, _, last = cells.partition(":")
    for row in range(int(first[1:]) - 1, int(last[1:])):
        for column in range(ord(first[0]) - ord("A"), ord(last[0]) - ord("A") + 1):
            yield sheet.rows[row][column]
