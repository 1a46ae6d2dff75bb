"""Bounds on the structure of callers' texts, checked in linear time before parsing.

A short text can take a parser long: a key of a hundred thousand dotted parts, a number of a million digits, deeply
nested lists. Real launcher files have some 300 settings, six levels and numbers of 20 digits.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice

from service.errors import Problem, Refused

DEEPEST = 16
"""Largest nesting depth of lists, objects and tables, and most parts of a dotted key."""
LONGEST_NAME = 256
"""Characters of a setting's full name, including its parents."""
MOST_DIGITS = 64
"""Characters of one number; any double takes at most 24."""

MOST_SETTINGS = 4096

MOST_WORDS = 4 * MOST_SETTINGS
"""Words of one file, names and values together."""
MOST_COLUMNS = 256
"""Columns of a table; sacct has some 110."""
MOST_DIRECTIVES = 8
"""Lines of a YAML file that begin with a percent sign."""


@dataclass(frozen=True, slots=True)
class Place:
    line: int
    column: int


class Lines:
    r"""Line and column lookup in a text, with an index that is built at the first lookup.

    >>> Lines("ab\ncd").place(4)
    Place(line=2, column=2)
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] = []

    def place(self, offset: int) -> Place:
        """Line and column of the character at an offset."""
        if not self._starts:
            self._starts = [0, *(match.end() for match in _LINE_END.finditer(self._text))]
        line = bisect_right(self._starts, offset)
        return Place(line, offset - self._starts[line - 1] + 1)


_LINE_END = re.compile("\n")

FIELD = "content"
"""Field of problems about a file."""


_HALF = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair."""


def is_text(text: str) -> bool:
    """Whether a text can be stored and sent as it is: false if it contains a NUL or half of a surrogate pair."""
    return "\0" not in text and (text.isascii() or _HALF.search(text) is None)


def refusal(place: Place, code: str, message: str, fix: str, field: str = FIELD) -> Refused:
    """A refusal of a text at a line and column; it does not quote the text."""
    located = f"line {place.line}, column {place.column}: {message}"
    return Refused(Problem(field=field, code=code, message=located, fix=fix))


Bound = tuple[str, str, str]
"""Code, message and fix of the refusal of a text that breaks a bound."""

NOT_TEXT: Bound = ("not_text", "the text holds a NUL or half of a surrogate pair", "remove that character")
TOO_DEEP: Bound = ("too_deep", f"lists, objects or dotted names nest deeper than {DEEPEST}", "flatten the file")
TOO_MANY_DIGITS: Bound = ("too_many_digits", f"the number has more than {MOST_DIGITS} digits", "round the number")
TOO_MANY_SETTINGS: Bound = ("too_long", f"a file has at most {MOST_SETTINGS} settings", "send less")
TOO_MANY_WORDS: Bound = ("too_long", f"a file has at most {MOST_WORDS} words and values", "send less")
TOO_MUCH_YAML: Bound = (
    "too_long",
    f"a YAML file has at most {MOST_WORDS} words and values, those that aliases repeat included",
    "send less",
)
TOO_LONG_A_NAME: Bound = (
    "too_long",
    f"the setting's name has more than {LONGEST_NAME} characters, outer names included",
    "shorten it, or leave the setting out",
)
_TOO_MANY_DIRECTIVES: Bound = (
    "too_long", f"more than {MOST_DIRECTIVES} lines begin with a percent sign", "leave directives out"
)  # fmt: skip


_TOML_STRINGS = re.compile(
    r"""\#[^\n]*+
    |\"\"\"(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}|\Z)|\'\'\'(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)
    |"(?:[^"\\\n]++|\\.)*+"?|'[^'\n]*+'?""",
    re.VERBOSE | re.DOTALL,
)
"""Comments and strings of TOML. Quantifiers are possessive and closing quotes optional: the match never backtracks."""

_PYTHON_STRINGS = re.compile(
    r"""\#[^\n]*+
    |\"\"\"(?:[^"\\]++|\\.|"(?!""))*+(?:\"\"\")?|\'\'\'(?:[^'\\]++|\\.|'(?!''))*+(?:\'\'\')?
    |"(?:[^"\\\n]++|\\.)*+"?|'(?:[^'\\\n]++|\\.)*+'?""",
    re.VERBOSE | re.DOTALL,
)

_PYTHON_TOKEN = re.compile(r"\w++|[^\w\s]")

_JSON_STRINGS = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)

_LONG_NUMBER = re.compile(rf"(?<![\w.])[0-9.][\w.]{{{MOST_DIGITS}}}")
_BRACKET = re.compile(r"[\[\]{}]")
_DOTS = re.compile(rf"(?:\.[^\n=.,\[\]{{}}]*+){{{DEEPEST}}}")
_SETTING = re.compile(r"=|^[ \t]*+\[", re.MULTILINE)
_VALUE = re.compile(r"[,:\[{]")
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)


def bound_toml(text: str) -> None:
    """Reject a TOML text with a structure beyond any real file."""
    plain = _without(text, _TOML_STRINGS)
    lines = Lines(text)
    _bound_depth(lines, plain)
    _bound_count(lines, plain, _SETTING, MOST_SETTINGS, TOO_MANY_SETTINGS)
    _bound_count(lines, plain, _VALUE, MOST_WORDS, TOO_MANY_WORDS)
    _bound_count(lines, plain, _DOTS, 0, TOO_DEEP)
    _bound_count(lines, plain, _LONG_NUMBER, 0, TOO_MANY_DIGITS)


def bound_json(text: str) -> None:
    """Reject a JSON text with a structure beyond any real file."""
    plain = _without(text, _JSON_STRINGS)
    lines = Lines(text)
    _bound_depth(lines, plain)
    _bound_count(lines, plain, _VALUE, MOST_WORDS, TOO_MANY_WORDS)
    _bound_count(lines, plain, _LONG_NUMBER, 0, TOO_MANY_DIGITS)


def bound_yaml(text: str) -> None:
    """Reject a YAML text with too many directives; its reader bounds the rest event by event."""
    _bound_count(Lines(text), text, _DIRECTIVE, MOST_DIRECTIVES, _TOO_MANY_DIRECTIVES)


def bound_python(text: str) -> None:
    """Reject a program in Python with a structure beyond any real file; what follows it bounds its steps."""
    lines = Lines(text)
    _bound_count(lines, text, _PYTHON_TOKEN, MOST_WORDS, TOO_MANY_WORDS)  # a text may hold expressions
    _bound_depth(lines, _without(text, _PYTHON_STRINGS))


def _without(text: str, texts: re.Pattern[str]) -> str:
    """A text of the same length, with blanks in place of quoted texts and comments."""
    return texts.sub(lambda match: " " * len(match[0]), text)


def _bound_count(lines: Lines, plain: str, pattern: re.Pattern[str], most: int, broken: Bound) -> None:
    """Reject a text with more matches of a pattern than the limit, at the first one beyond it."""
    extra = next(islice(pattern.finditer(plain), most, None), None)
    if extra is not None:
        raise refusal(lines.place(extra.start()), *broken)


def _bound_depth(lines: Lines, plain: str) -> None:
    depth = 0
    for match in _BRACKET.finditer(plain):
        depth = depth + 1 if match[0] in "[{" else max(depth - 1, 0)
        if depth > DEEPEST:
            raise refusal(lines.place(match.start()), *TOO_DEEP)
