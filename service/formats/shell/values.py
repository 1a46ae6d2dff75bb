"""Values of shell variables: texts that remember where each part stands in the caller's script."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

HELD = re.compile("[\U000f0000-\U000ffffd]")
"""Characters that stand for unknown parts of a text; a caller's script with one of them is refused."""

FIRST_HELD, MOST_HELD = 0xF0000, 0xFFFD


@dataclass(frozen=True, slots=True)
class Mark:
    """Begin of a part of a text."""

    start: int
    source: int
    """Offset in the caller's script."""
    runs: bool
    """Whether the next characters follow each other there too."""


@dataclass(frozen=True, slots=True)
class Text:
    plain: str
    marks: tuple[Mark, ...] = ()

    def source(self, at: int) -> int:
        """Offset in the caller's script of a character."""
        if not self.marks:
            return 0
        mark = self.marks[max(bisect_right(self.marks, at, key=lambda one: one.start) - 1, 0)]
        return mark.source + (at - mark.start if mark.runs else 0)

    def cut(self, start: int, end: int) -> "Text":
        """The characters between two offsets."""
        if start >= end:
            return Text("", (Mark(0, self.source(start), runs=False),))
        first = max(bisect_right(self.marks, start, key=lambda one: one.start) - 1, 0)
        last = bisect_right(self.marks, end - 1, key=lambda one: one.start)
        kept = [Mark(max(one.start - start, 0), one.source, one.runs) for one in self.marks[first:last]]
        if kept:
            kept[0] = Mark(0, self.source(start), kept[0].runs)
        return Text(self.plain[start:end], tuple(kept))


def joined(parts: Sequence[Text]) -> Text:
    """Texts one after another."""
    if len(parts) == 1:
        return parts[0]
    marks: list[Mark] = []
    at = 0
    for part in parts:
        if part.plain:
            marks += [Mark(at + one.start, one.source, one.runs) for one in part.marks]
            at += len(part.plain)
    return Text("".join(part.plain for part in parts), tuple(marks) or (parts[0].marks if parts else ()))


def between(parts: Iterable[Text], sign: str) -> Text:
    """Texts with a sign between each two."""
    found: list[Text] = []
    for part in parts:
        found += [made(sign, part.source(0)), part] if found else [part]
    return joined(found) if found else Text("")


def whole(script: str) -> Text:
    """A caller's script."""
    return Text(script, (Mark(0, 0, runs=True),))


def made(plain: str, source: int) -> Text:
    """A text that no place of the script has, for one."""
    return Text(plain, (Mark(0, source, runs=False),))


Value = Text | tuple[Text, ...]
"""A text, or the texts of an array."""

_TOKENS = re.compile(r"[ \t\n]+|[^ \t\n]+")


def tokens(text: Text) -> Iterator[Text | None]:
    """What a text is split into: words, and None for each run of blanks."""
    for found in _TOKENS.finditer(text.plain):
        yield None if found[0].isspace() else text.cut(found.start(), found.end())


def matches(text: str, pattern: str) -> bool | None:
    """Whether a pattern of stars and question marks matches a whole text; None for one with brackets.

    >>> matches("v100-32", "v*-32"), matches("a100", "v*"), matches("x", "[xy]")
    (True, False, None)
    """
    if "[" in pattern or "\\" in pattern or "(" in pattern:
        return None
    first, *others = pattern.split("*")
    if not others:
        return len(text) == len(first) and _begins(text, first, 0)
    *middle, last = others
    at, end = len(first), len(text) - len(last)
    if at > end or not (_begins(text, first, 0) and _begins(text, last, end)):
        return False
    if any("?" in part for part in middle):
        return None
    for part in middle:
        at = text.find(part, at, end) + len(part)
        if at < len(part):
            return False
    return True


def _begins(text: str, part: str, at: int) -> bool:
    if "?" not in part:
        return text.startswith(part, at)
    return all(sign in ("?", text[at + place]) for place, sign in enumerate(part))
