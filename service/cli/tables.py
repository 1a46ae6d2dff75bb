"""Tables and texts of commands: lines to search and pipe elsewhere, fitted to the width on a terminal."""

import os
import re
import sys
from collections.abc import Collection, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


def is_coloured(stream: Any) -> bool:
    """Whether a stream is a terminal that shows colours, and NO_COLOR is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def heading(text: str) -> str:
    """The title of a section, bold on a terminal."""
    return typer.style(text, bold=True) if is_coloured(sys.stdout) else text


COLOURS = {
    **dict.fromkeys(("fits", "ok", "go"), "green"),
    **dict.fromkeys(("at_risk", "warn", "caution", "unknown"), "yellow"),
    **dict.fromkeys(("out_of_memory", "deny", "no-go"), "red"),
}
"""Colours of verdicts."""


def coloured(text: str, verdict: str) -> str:
    """A text in the colour of a verdict, on a terminal."""
    return typer.style(text, fg=COLOURS.get(verdict), bold=True) if is_coloured(sys.stdout) else text


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int] = (), indent: str = "") -> list[str]:
    """Rows of cells as lines with aligned columns; columns with an index in `right` are right-aligned.

    >>> aligned([("a", "bc"), ("def", "g")])
    ['a    bc', 'def  g']
    >>> aligned([("a", "bc"), ("def", "g")], right={1}, indent="  ")
    ['  a    bc', '  def   g']
    """
    aligners = [str.rjust if place in right else str.ljust for place in range(len(rows[0]))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        indent
        + "  ".join(align(*cell) for align, cell in zip(aligners, zip(row, widths, strict=True), strict=True)).rstrip()
        for row in rows
    ]


def table(
    rows: Sequence[Sequence[str]], *, has_header: bool = True, right: Collection[int] = (), indent: str = ""
) -> list[str]:
    """Rows of cells as aligned lines; on a terminal, under a bold header and fitted to the width.

    Numbers are never cut: names and sentences fold between words. Where that does not suffice, columns with one value
    stand above the table, or else rows stand side by side, or else each is a block of lines.
    """
    if not rows:
        return []
    if not sys.stdout.isatty():
        return aligned(rows, right=right, indent=indent)
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    if not has_header or _fits(console, rows[0], rows[1:], right, indent):
        return _grid(console, rows[0] if has_header else None, rows[has_header:], right, indent)
    return _narrowed(console, rows, right, indent)


def _narrowed(console: "Console", rows: Sequence[Sequence[str]], right: Collection[int], indent: str) -> list[str]:
    """A table that is too wide, in another form."""
    header, body, room = rows[0], rows[1:], console.width - len(indent)
    apart = [place for place in range(len(header)) if len({row[place] for row in body}) > 1]
    alike = [
        f"{name} {cell}" for place, (name, cell) in enumerate(zip(header, body[0], strict=True)) if place not in apart
    ]
    head, *narrow = [[row[place] for place in apart] for row in rows]
    narrow_right = [apart.index(place) for place in right if place in apart]
    if apart and _fits(console, head, narrow, narrow_right, indent):
        lines = folded(f"in each row: {', '.join(alike)}", room)
        return [*(f"{indent}{line}" for line in lines), *_grid(console, head, narrow, narrow_right, indent)]
    beside, numbers = [[name, *cells] for name, *cells in zip(*rows, strict=True) if any(cells)], range(1, len(rows))
    if _fits(console, None, beside, numbers, indent):
        return _grid(console, None, beside, numbers, indent)
    return _blocks(header, body, room, indent)


def _fits(
    console: "Console",
    header: Sequence[str] | None,
    body: Sequence[Sequence[str]],
    right: Collection[int],
    indent: str,
) -> bool:
    return _least_width(_least_widths(header, body, right)) <= console.width - len(indent)


def _least_widths(header: Sequence[str] | None, body: Sequence[Sequence[str]], right: Collection[int]) -> list[int]:
    """The least width of each column: all of a number, else the longest word."""
    columns = [*zip(*body, strict=True)] or [()] * len(header or ())
    heads = [""] * len(columns) if header is None else header
    return [
        max([*map(len, head.split()), *(len(cell) if place in right else _longest(cell) for cell in column)], default=0)
        for place, (head, column) in enumerate(zip(heads, columns, strict=True))
    ]


def _longest(text: str) -> int:
    """Letters of the longest word of a cell; all of a number with its unit."""
    return len(text) if text[:1].isdigit() and text.count(" ") == 1 else max(map(len, text.split()), default=0)


def _least_width(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * len(widths)


GLUE = re.compile(r"(?<=\d) (?=(?:[KMGT]iB|[KMGTPEZY]?FLOP\S*|[mu]?s|min|h|d|%|GPU\S*|USD|tokens\S*)(?:[\s,;:)]|$))")
"""The space between a number and its unit."""
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def folded(text: str, room: int, indent: str = "  ") -> list[str]:
    """A line as lines that fit, cut between words, never between a number and its unit.

    >>> folded("8 GPUs need 58.3 GiB each", 12)
    ['8 GPUs need', '  58.3 GiB', '  each']
    """
    first, *words = GLUE.sub("\0", text).split(" ")
    lines, length = [first], len(STYLE.sub("", first))
    for word in words:
        width = len(STYLE.sub("", word))
        if lines[-1].strip() and length + 1 + width > room:
            lines.append(indent + word)
            length = len(indent) + width
        else:
            lines[-1] += f" {word}"
            length += 1 + width
    return [line.replace("\0", " ").rstrip() for line in lines]


def _blocks(header: Sequence[str], body: Sequence[Sequence[str]], room: int, indent: str) -> list[str]:
    """Each row as a block of lines, a line for each cell that is not empty."""
    width = max(map(len, header))
    lines: list[str] = []
    for row in body:
        lines += [""] if lines else []
        for name, cell in zip(header, row, strict=True):
            first, *more = folded(cell, room - width - 2) if cell else [""]
            lines += [f"{indent}{heading(name.ljust(width))}  {first}"] if cell else []
            lines += [f"{indent}{' ' * (width + 2)}{line}" for line in more]
    return lines


def _grid(
    console: "Console",
    header: Sequence[str] | None,
    body: Sequence[Sequence[str]],
    right: Collection[int],
    indent: str,
) -> list[str]:
    from rich.table import Table

    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=header is not None)
    least_widths = _least_widths(header, body, right)
    console.width = max(console.width - len(indent), _least_width(least_widths))
    cells = [max(map(len, column), default=0) for column in zip(*body, strict=True)] or least_widths
    widths = cells if header is None else [max(pair) for pair in zip(cells, map(len, header), strict=True)]
    if _least_width(widths) > console.width:  # headers fold first
        widths = [max(pair) for pair in zip(cells, least_widths, strict=True)]
    while _least_width(widths) > console.width:  # rich would cut a column before it folds another
        spare = [width - least for width, least in zip(widths, least_widths, strict=True)]
        widest = max((place for place, one in enumerate(spare) if one), key=widths.__getitem__)
        widths[widest] -= 1
    for place, width in enumerate(widths):
        head = "" if header is None else header[place]
        grid.add_column(head, justify="right" if place in right else "left", width=width)
    for row in body:
        grid.add_row(*row)
    with console.capture() as captured:
        console.print(grid)
    return [f"{indent}{line.rstrip()}" for line in captured.get().splitlines()]


def fitted(text: str) -> str:
    """A text with its long lines folded to the width of a terminal; unchanged elsewhere."""
    if not sys.stdout.isatty():
        return text
    room = get_terminal_size().columns
    indents = (line[: len(line) - len(line.lstrip(" -"))] for line in text.splitlines())
    lines = zip(text.splitlines(), indents, strict=True)
    return "\n".join(part for line, indent in lines for part in folded(line, room, " " * len(indent)))
