"""Arithmetic of shells on known numbers. Source: GNU bash 5.2 manual, 6.5 Shell Arithmetic."""

import operator
import re
from collections.abc import Callable

LARGEST = 1 << 63
DEEPEST = 32
MOST_TOKENS = 512

_TOKEN = re.compile(
    r"\s*(0[xX][0-9a-fA-F]{1,16}|\d{1,19}|[A-Za-z_]\w*|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^!~?:()])"
)


class _Unclear(Exception):
    pass


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise _Unclear
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {"<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b), ">": lambda a, b: int(a > b),
     ">=": lambda a, b: int(a >= b)},
    {"<<": lambda a, b: a << b if 0 <= b < 64 else LARGEST, ">>": lambda a, b: a >> b if 0 <= b < 64 else LARGEST},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _quotient, "%": lambda a, b: a - b * _quotient(a, b)},
    {"**": lambda a, b: a**b if 0 <= b < 64 and abs(a) < 1 << 16 else LARGEST},
)  # fmt: skip


def calculated(text: str, value_of: Callable[[str], str | None]) -> int | None:
    """The value of an expression; None where it is unknown, assigns, or leaves 64 bits.

    >>> calculated("(A*2 + 1) % 4", {"A": "5"}.get), calculated("A * 2", {}.get), calculated("1 ? 8 : 9", {}.get)
    (3, None, 8)
    """
    tokens: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or len(tokens) > MOST_TOKENS:
            return None
        tokens.append(found[1])
        at = found.end()
    try:
        reader = _Reader(tokens[::-1], value_of)
        found_value = reader.chosen(0)
    except _Unclear:
        return None
    return None if reader.tokens else found_value


class _Reader:
    def __init__(self, tokens: list[str], value_of: Callable[[str], str | None]) -> None:
        self.tokens, self._value_of = tokens, value_of

    def _next(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def chosen(self, depth: int) -> int:
        """An expression, a choice of two by a third included."""
        condition = self._level(0, depth)
        if self._next() != "?":
            return condition
        self.tokens.pop()
        first = self.chosen(depth + 1)
        if self._next() != ":":
            raise _Unclear
        self.tokens.pop()
        second = self.chosen(depth + 1)
        return first if condition else second

    def _level(self, level: int, depth: int) -> int:
        if depth > DEEPEST:
            raise _Unclear
        if level == len(_LEVELS):
            return self._term(depth)
        found = self._level(level + 1, depth)
        while (sign := self._next()) in _LEVELS[level]:
            self.tokens.pop()
            right = self._level(level if sign == "**" else level + 1, depth + (sign == "**"))
            found = _LEVELS[level][sign](found, right)
            if not -LARGEST <= found < LARGEST:
                raise _Unclear
        return found

    def _term(self, depth: int) -> int:
        if not self.tokens:
            raise _Unclear
        sign = self.tokens.pop()
        if sign == "(":
            found = self.chosen(depth + 1)
            if self._next() != ")":
                raise _Unclear
            self.tokens.pop()
            return found
        if sign in _UNARY:
            return _UNARY[sign](self._unary(depth + 1))
        return _number(sign if sign[0].isdigit() else self._value_of(sign))

    def _unary(self, depth: int) -> int:
        if depth > DEEPEST:
            raise _Unclear
        return self._term(depth)


_UNARY: dict[str, Callable[[int], int]] = {
    "-": operator.neg, "+": operator.pos, "!": lambda a: int(not a), "~": operator.invert,
}  # fmt: skip

_HEX, _OCTAL, _DECIMAL = (
    re.compile(r"0[xX][0-9a-fA-F]{1,15}"),
    re.compile(r"0[0-7]{1,20}"),
    re.compile(r"-?(?:0|[1-9]\d{0,17})"),
)


def _number(text: str | None) -> int:
    word = (text or "").strip()
    if _DECIMAL.fullmatch(word):
        return int(word)
    if _HEX.fullmatch(word):
        return int(word, 16)
    if _OCTAL.fullmatch(word):
        return int(word, 8)
    raise _Unclear
