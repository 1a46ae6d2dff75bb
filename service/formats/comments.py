"""Comments of a file on what of its question it does not express."""

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from service.answers.exports import NotExpressed
from service.estimator.complete import CompleteQuestion
from service.formats.rules import ExportedFile, display, values_of

_SIGNS: Mapping[str, str] = dict.fromkeys(
    ("text/plain", "text/x-python", "text/x-shellscript", "application/toml", "application/yaml"), "#"
)
"""Signs that begin a comment, by kind of text; JSON has none."""

_WIDTH = 100

_HEADS = ((False, "This file does not hold, and trains otherwise:"), (True, "This file leaves to you:"))


def with_comments(file: ExportedFile, media_type: str, question: CompleteQuestion) -> str:
    """A file with its gaps as comments: at its head, or after arguments, which continue a command."""
    sign = _SIGNS.get(media_type)
    if sign is None or not file.not_expressible:
        return file.content
    lines = _lines(file.not_expressible, values_of(question))
    comments = "".join(f"{sign} {line}\n" for line in lines)
    if media_type == "text/plain":
        return file.content + comments
    first, _, others = file.content.partition("\n")
    return f"{first}\n{comments}{others}" if first.startswith("#!") else comments + file.content


def _lines(gaps: tuple[NotExpressed, ...], values: Mapping[str, Any]) -> Iterator[str]:
    for is_open, head in _HEADS:
        listed = [one for one in gaps if one.left_open == is_open]
        if listed:
            yield head
        for one in listed:
            value = values.get(one.field)
            text = f"{value:g}" if isinstance(value, float) else display(value)
            stated = f" = {text}" if isinstance(value, str | int | float) else ""
            text = " ".join(f"{one.field}{stated}: {one.message}; {one.fix}".split())
            yield from wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
