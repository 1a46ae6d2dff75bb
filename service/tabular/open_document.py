"""OpenDocument spreadsheets: the sheets of a workbook as an .ods file, the same bytes each time."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from service.tabular.sheets import (
    CREATED,
    DAY_ZERO,
    INPUT_COLOUR,
    LINE_COLOUR,
    MICROSOFT_FUNCTIONS,
    TOKEN,
    Chart,
    Formula,
    Heading,
    Names,
    NumberForm,
    Plain,
    Sheet,
    SheetCell,
    Shown,
    ValidationRule,
    absolute,
    xml_text,
)

MEDIA_TYPE = "application/vnd.oasis.opendocument.spreadsheet"
CHART_TYPE = "application/vnd.oasis.opendocument.chart"

_NAMESPACES = " ".join(
    f'xmlns:{prefix}="{name}"'
    for prefix, name in (
        *(
            (prefix, f"urn:oasis:names:tc:opendocument:xmlns:{name}")
            for prefix, name in (
                ("office", "office:1.0"), ("style", "style:1.0"), ("fo", "xsl-fo-compatible:1.0"),
                ("table", "table:1.0"), ("text", "text:1.0"), ("of", "of:1.2"), ("number", "datastyle:1.0"),
                ("draw", "drawing:1.0"), ("svg", "svg-compatible:1.0"), ("chart", "chart:1.0"),
                ("config", "config:1.0"),
            )
        ),
        ("xlink", "http://www.w3.org/1999/xlink"),
    )
)  # fmt: skip
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_MILLIMETRES = 2.2
"""Width of one character."""
_PIXEL_MILLIMETRES = 25.4 / 96


def open_document_file(sheets: Sequence[Sheet], names: Names = {}) -> bytes:  # noqa: B006 - a mapping is read only
    charts = [(sheet, chart) for sheet in sheets for chart in sheet.charts]
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        parts = [
            ("mimetype", MEDIA_TYPE, ZIP_STORED),
            ("META-INF/manifest.xml", _manifest(len(charts)), ZIP_DEFLATED),
            ("content.xml", _content(sheets, names), ZIP_DEFLATED),
            ("styles.xml", _page_styles(), ZIP_DEFLATED),
            ("settings.xml", _view(sheets), ZIP_DEFLATED),
            *(
                (f"Object {place}/content.xml", _chart(sheet.name, chart), ZIP_DEFLATED)
                for place, (sheet, chart) in enumerate(charts, start=1)
            ),
        ]
        for name, text, compression in parts:
            entry = ZipInfo(name, CREATED.timetuple()[:6])
            entry.compress_type = compression
            archive.writestr(entry, text)
    return file.getvalue()


def _manifest(charts: int) -> str:
    parts = [("/", MEDIA_TYPE), *((f"{name}.xml", "text/xml") for name in ("content", "styles", "settings"))]
    for place in range(1, charts + 1):
        parts += [(f"Object {place}/", CHART_TYPE), (f"Object {place}/content.xml", "text/xml")]
    entries = "".join(
        f'<manifest:file-entry manifest:full-path="{path}" manifest:media-type="{kind}"/>' for path, kind in parts
    )
    return (
        f'{_HEAD}<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0" '
        f'manifest:version="1.3">{entries}</manifest:manifest>'
    )


def open_formula(formula: str) -> str:
    """A formula as OpenDocument files hold it.

    >>> open_formula('NUMBERVALUE(WEBSERVICE(Inputs!$B$4&$A5&"/x, y"),".",",")')
    'of:=NUMBERVALUE(COM.MICROSOFT.WEBSERVICE([$Inputs.$B$4]&[.$A5]&"/x, y");".";",")'
    >>> open_formula("SUM(Months!D5:D9)*rate")
    'of:=SUM([$Months.D5:.D9])*rate'
    """

    def spell(token: re.Match[str]) -> str:
        if token["comma"]:
            return ";"
        if token["reference"]:
            sheet, end = token["sheet"], (token["end"] or "").replace(":", ":.")
            return f"[{f'${sheet}' if sheet else ''}.{token['place']}{end}]"
        return f"COM.MICROSOFT.{token[0]}" if token["function"] in MICROSOFT_FUNCTIONS else token[0]

    return f"of:={TOKEN.sub(spell, formula)}"


def _content(sheets: Sequence[Sheet], names: Names) -> str:
    widths = sorted({width for sheet in sheets for width in sheet.widths})
    columns = "".join(
        f'<style:style style:name="w{width}" style:family="table-column"><style:table-column-properties '
        f'style:column-width="{width * _MILLIMETRES:.1f}mm"/></style:style>'
        for width in widths
    )
    styles = sorted({_look(cell) for sheet in sheets for row in sheet.rows for cell in row} - {""})
    cells = "".join(map(_cell_style, styles))
    tables = "".join(
        f'<style:style style:name="{_page(sheet)}" style:family="table" style:master-page-name="{_page(sheet)}"/>'
        for sheet in {_page(sheet): sheet for sheet in sheets}.values()
    )
    numbered = iter(range(1, 1 + sum(len(sheet.charts) for sheet in sheets)))
    ranges = "".join(
        f'<table:named-range table:name="{name}" table:cell-range-address="${place.replace("!", ".")}" '
        f'table:base-cell-address="${place.replace("!", ".")}"/>'
        for name, place in names.items()
    )
    return (
        f'{_HEAD}<office:document-content {_NAMESPACES} office:version="1.3">'
        f"<office:automatic-styles>{columns}{_NUMBER_STYLES}{cells}{tables}</office:automatic-styles>"
        f"<office:body><office:spreadsheet>{_validations(sheets)}{''.join(_table(sheet, numbered) for sheet in sheets)}"
        f"<table:named-expressions>{ranges}</table:named-expressions></office:spreadsheet></office:body>"
        "</office:document-content>"
    )


_BLANK = "<number:text> </number:text>"
"""What keeps a unit beside a number apart."""


def _decimal(name: NumberForm, places: int, kind: str = "number", unit: str = "") -> str:
    return (
        f'<number:{kind}-style style:name="n-{name}"><number:number number:decimal-places="{places}" '
        f'number:min-decimal-places="{places}" number:min-integer-digits="1" number:grouping="true"/>{unit or _BLANK}'
        f"</number:{kind}-style>"
    )


_NUMBER_STYLES = (
    _decimal("count", 0)
    + _decimal("number", 2)
    + _decimal("rate", 4)
    + _decimal("money", 2)
    + _decimal("percent", 1, "percentage", "<number:text>% </number:text>")
    + '<number:number-style style:name="n-scientific"><number:scientific-number number:decimal-places="3" '
    f'number:min-integer-digits="1" number:min-exponent-digits="2"/>{_BLANK}</number:number-style>'
    '<number:date-style style:name="n-date"><number:year number:style="long"/><number:text>-</number:text>'
    '<number:month number:style="long"/><number:text>-</number:text><number:day number:style="long"/>'
    "</number:date-style>"
    '<number:date-style style:name="n-month"><number:month number:textual="true"/><number:text> </number:text>'
    '<number:year number:style="long"/></number:date-style>'
)


def _look(cell: SheetCell) -> str:
    """Name of the style of a cell; empty for the usual one."""
    if isinstance(cell, Heading):
        return "c-general-bold-right" if cell.is_over_numbers else "c-general-bold"
    if not isinstance(cell, Shown):
        return ""
    parts = [cell.form, *(name for name, is_so in (("bold", cell.is_bold), ("input", cell.is_input)) if is_so)]
    return f"c-{'-'.join(parts)}"


def _cell_style(name: str) -> str:
    _, form, *marks = name.split("-")
    data = "" if form == "general" else f' style:data-style-name="n-{form}"'
    bold = '<style:text-properties fo:font-weight="bold"/>' if "bold" in marks else ""
    right = '<style:paragraph-properties fo:text-align="end"/>' if "right" in marks else ""
    ground = (
        f'<style:table-cell-properties fo:background-color="{INPUT_COLOUR}" fo:border="0.5pt solid {LINE_COLOUR}"/>'
        if "input" in marks
        else ""
    )
    return f'<style:style style:name="{name}" style:family="table-cell"{data}>{ground}{right}{bold}</style:style>'


def _page(sheet: Sheet) -> str:
    return "one-page" if sheet.is_one_page else "wide"


def _page_styles() -> str:
    """Pages in landscape, one wide, with the sheet and the page number below."""
    layouts = "".join(
        f'<style:page-layout style:name="layout-{name}"><style:page-layout-properties fo:page-width="297mm" '
        f'fo:page-height="210mm" style:print-orientation="landscape" fo:margin="12mm" {scale}/></style:page-layout>'
        for name, scale in (
            ("one-page", 'style:scale-to-pages="1"'),
            ("wide", 'style:scale-to-X="1" style:scale-to-Y="0"'),
        )
    )
    masters = "".join(
        f'<style:master-page style:name="{name}" style:page-layout-name="layout-{name}"><style:footer><text:p>'
        "<text:sheet-name/> <text:page-number/></text:p></style:footer></style:master-page>"
        for name in ("one-page", "wide")
    )
    return (
        f'{_HEAD}<office:document-styles {_NAMESPACES} office:version="1.3"><office:automatic-styles>{layouts}'
        f"</office:automatic-styles><office:master-styles>{masters}</office:master-styles></office:document-styles>"
    )


def _view(sheets: Sequence[Sheet]) -> str:
    """Rows that stay in sight."""
    frozen = "".join(
        f'<config:config-item-map-entry config:name="{xml_text(sheet.name)}">'
        '<config:config-item config:name="VerticalSplitMode" config:type="short">2</config:config-item>'
        f'<config:config-item config:name="VerticalSplitPosition" config:type="int">{rows}</config:config-item>'
        '<config:config-item config:name="ActiveSplitRange" config:type="short">2</config:config-item>'
        f'<config:config-item config:name="PositionBottom" config:type="int">{rows}</config:config-item>'
        "</config:config-item-map-entry>"
        for sheet in sheets
        if (rows := 1 if sheet.is_table else sheet.frozen_rows)
    )
    return (
        f'{_HEAD}<office:document-settings {_NAMESPACES} office:version="1.3"><office:settings>'
        '<config:config-item-set config:name="ooo:view-settings">'
        '<config:config-item-map-indexed config:name="Views"><config:config-item-map-entry>'
        '<config:config-item config:name="ViewId" config:type="string">view1</config:config-item>'
        f'<config:config-item-map-named config:name="Tables">{frozen}</config:config-item-map-named>'
        "</config:config-item-map-entry></config:config-item-map-indexed></config:config-item-set>"
        "</office:settings></office:document-settings>"
    )


_RULES: Mapping[ValidationRule, tuple[str, str]] = {
    "fraction": (
        "of:cell-content-is-decimal-number() and cell-content-is-between(0,1)",
        "Give a share from 0 % to 100 %.",
    ),
    "positive": ("of:cell-content-is-decimal-number() and cell-content()&gt;=0", "Give a number of 0 or more."),
    "date": ("of:cell-content-is-date() and cell-content()&gt;=36526", "Give a date from 2000 on."),
}


def _validations(sheets: Sequence[Sheet]) -> str:
    used = sorted({rule for sheet in sheets for rule in sheet.rules.values()})
    rules = "".join(
        f'<table:content-validation table:name="{rule}" table:condition="{_RULES[rule][0]}" '
        f'table:allow-empty-cell="true" table:base-cell-address="${sheets[0].name}.$A$1"><table:error-message '
        f'table:message-type="stop" table:display="true"><text:p>{_RULES[rule][1]}</text:p></table:error-message>'
        "</table:content-validation>"
        for rule in used
    )
    return f"<table:content-validations>{rules}</table:content-validations>" if rules else ""


def _table(sheet: Sheet, numbered: Iterator[int]) -> str:
    columns = "".join(f'<table:table-column table:style-name="w{width}"/>' for width in sheet.widths)
    rows = "".join(_row(sheet, row, cells) for row, cells in enumerate(sheet.rows, start=1))
    shapes = "".join(_frame(sheet, chart, next(numbered)) for chart in sheet.charts)
    drawn = f"<table:shapes>{shapes}</table:shapes>" if shapes else ""
    return (
        f'<table:table table:name="{xml_text(sheet.name)}" table:style-name="{_page(sheet)}">'
        f"{drawn}{columns}{rows}</table:table>"
    )


def _row(sheet: Sheet, row: int, cells: Sequence[SheetCell]) -> str:
    written = [_cell(cell, sheet.rules.get(f"{_letter(column)}{row}")) for column, cell in enumerate(cells)]
    return f"<table:table-row>{''.join(written) or '<table:table-cell/>'}</table:table-row>"


def _letter(column: int) -> str:
    return chr(ord("A") + column)


def _frame(sheet: Sheet, chart: Chart, number: int) -> str:
    """A chart on its sheet, at the upper left corner of its cell."""
    column, row = ord(chart.place[0]) - ord("A"), int(chart.place[1:]) - 1
    left = sum(sheet.widths[:column]) * _MILLIMETRES
    width, height = (size * _PIXEL_MILLIMETRES for size in (chart.width, chart.height))
    ranges = " ".join(
        f"{sheet.name}.{cells.replace(':', f':{sheet.name}.')}" for cells in (chart.categories, *chart.series.values())
    )
    return (
        f'<draw:frame svg:x="{left:.1f}mm" svg:y="{row * _ROW_MILLIMETRES:.1f}mm" svg:width="{width:.1f}mm" '
        f'svg:height="{height:.1f}mm"><draw:object draw:notify-on-update-of-ranges="{ranges}" '
        f'xlink:href="./Object {number}" xlink:type="simple" xlink:show="embed" xlink:actuate="onLoad"/></draw:frame>'
    )


_ROW_MILLIMETRES = 4.52
"""Usual height of a row."""

_COLOURS = ("#1f5fa8", "#7fa8d1", "#b5651d", "#2e7d4f")


def _above(cells: str) -> str:
    """The cell above a range.

    >>> _above("D6:D40")
    'D5'
    """
    first = cells.partition(":")[0]
    return f"{first[0]}{int(first[1:]) - 1}"


def _chart(sheet: str, chart: Chart) -> str:
    def place(cells: str) -> str:
        return ":".join(f"{sheet}.{cell}" for cell in absolute(cells).split(":"))

    kind = {"line": "chart:line", "column": "chart:bar"}[chart.kind]
    styles = "".join(
        f'<style:style style:name="s{number}" style:family="chart"><style:graphic-properties draw:stroke="solid" '
        f'svg:stroke-width="0.6mm" svg:stroke-color="{colour}" draw:fill="solid" draw:fill-color="{colour}"/>'
        "</style:style>"
        for number, colour in enumerate(_COLOURS)
    )
    series = "".join(
        f'<chart:series chart:style-name="s{number % len(_COLOURS)}" chart:class="{kind}" '
        f'chart:values-cell-range-address="{place(values)}" chart:label-cell-address="{place(_above(values))}"/>'
        for number, values in enumerate(chart.series.values())
    )
    legend = '<chart:legend chart:legend-position="bottom"/>' if len(chart.series) > 1 else ""
    width, height = (size * _PIXEL_MILLIMETRES for size in (chart.width, chart.height))
    return (
        f"{_HEAD}<office:document-content {_NAMESPACES} "
        'xmlns:loext="urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0" office:version="1.3">'
        f"<office:automatic-styles>{styles}{_NUMBER_STYLES}"
        '<style:style style:name="wall" style:family="chart"><style:graphic-properties draw:fill="none" '
        'draw:stroke="none"/></style:style><style:style style:name="line" style:family="chart">'
        f'<style:graphic-properties draw:stroke="solid" svg:stroke-color="{LINE_COLOUR}"/></style:style>'
        '<style:style style:name="months" style:family="chart" style:data-style-name="n-month">'
        '<style:chart-properties chart:display-label="true" chart:link-data-style-to-source="true"/></style:style>'
        '<style:style style:name="amounts" style:family="chart" style:data-style-name="n-count">'
        '<style:chart-properties chart:display-label="true"/></style:style></office:automatic-styles>'
        f'<office:body><office:chart><chart:chart svg:width="{width:.1f}mm" svg:height="{height:.1f}mm" '
        f'chart:class="{kind}"><chart:title><text:p>{xml_text(chart.title)}</text:p></chart:title>{legend}'
        f"<chart:plot-area>"
        '<chart:axis chart:dimension="x" chart:name="primary-x" chart:style-name="months">'
        f'<chart:categories table:cell-range-address="{place(chart.categories)}"/></chart:axis>'
        '<chart:axis chart:dimension="y" chart:name="primary-y" chart:style-name="amounts">'
        f"<chart:title><text:p>{xml_text(chart.unit)}</text:p></chart:title>"
        f'<chart:grid chart:class="major" chart:style-name="line"/></chart:axis>{series}'
        '<chart:wall chart:style-name="wall"/></chart:plot-area></chart:chart></office:chart>'
        "</office:body></office:document-content>"
    )


def _cell(cell: SheetCell, rule: ValidationRule | None = None) -> str:
    if cell is None:
        return "<table:table-cell/>"
    look = _look(cell)
    style = f' table:style-name="{look}"' if look else ""
    checked = f' table:content-validation-name="{rule}"' if rule else ""
    value = cell.value if isinstance(cell, Shown) else cell.text if isinstance(cell, Heading) else cell
    form: NumberForm = cell.form if isinstance(cell, Shown) else "general"
    computed = ""
    if isinstance(value, Formula):
        computed, value = f' table:formula="{xml_text(open_formula(value.text))}"', value.value
    return f"<table:table-cell{style}{checked}{computed}{_typed(value, form)}</table:table-cell>"


def _typed(value: Plain, form: NumberForm) -> str:
    """The rest of the opening tag of a cell, and what the cell shows."""
    if isinstance(value, bool):
        return f' office:value-type="boolean" office:boolean-value="{str(value).lower()}">'
    if isinstance(value, str):
        paragraphs = "".join(f"<text:p>{xml_text(line)}</text:p>" for line in value.splitlines())
        return f' office:value-type="string">{paragraphs}'
    if form in ("date", "month"):
        return f' office:value-type="date" office:date-value="{DAY_ZERO + timedelta(days=int(value))}">'
    if form == "percent":
        return f' office:value-type="percentage" office:value="{value!r}">'
    return f' office:value-type="float" office:value="{value!r}">'
