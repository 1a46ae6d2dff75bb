"""Conditions of shells, decided where what they compare is known.

Source: POSIX.1-2024 test; GNU bash 5.2 manual, 6.4 Bash Conditional Expressions.
"""

import operator
from collections.abc import Callable, Sequence

from service.formats.shell.values import HELD, matches

DEEPEST = 32

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt,
    "-ge": operator.ge,
}  # fmt: skip
_BINARY = frozenset({*_NUMBERS, "=", "==", "!=", "=~", "<", ">", "-nt", "-ot", "-ef"})
_UNARY = frozenset(f"-{letter}" for letter in "abcdefghknoprstuvwxzGLNOSR")

Decided = bool | None
"""Whether something holds; None where that depends on what is unknown."""


def negated(one: Decided) -> Decided:
    return None if one is None else not one


def both(one: Decided, other: Decided) -> Decided:
    """Whether both hold.

    >>> both(None, False), both(None, True), both(True, True)
    (False, None, True)
    """
    return False if False in (one, other) else None if None in (one, other) else True


def either(one: Decided, other: Decided) -> Decided:
    return negated(both(negated(one), negated(other)))


class Condition:
    """Words of one condition."""

    def __init__(
        self,
        words: Sequence[str],
        is_unset: Callable[[str], bool],
        number: Callable[[str], int | None],
        *,
        patterns: bool,
    ) -> None:
        self._left = list(words[::-1])
        self._is_unset, self._number, self._patterns = is_unset, number, patterns

    def decided(self) -> Decided:
        """Whether it holds; None too for one that is not understood."""
        if not self._left:
            return False
        found = self._either(0)
        return None if self._left else found

    def _next(self) -> str | None:
        return self._left[-1] if self._left else None

    def _either(self, depth: int) -> Decided:
        found = self._both(depth)
        while self._next() in ("||", "-o"):
            self._left.pop()
            found = either(found, self._both(depth))
        return found

    def _both(self, depth: int) -> Decided:
        found = self._one(depth)
        while self._next() in ("&&", "-a"):
            self._left.pop()
            found = both(found, self._one(depth))
        return found

    def _one(self, depth: int) -> Decided:
        if not self._left or depth > DEEPEST:
            self._left.append("")
            return None
        word = self._left.pop()
        if word == "!" and self._left:
            return negated(self._one(depth + 1))
        if word == "(" and self._left:
            found = self._either(depth + 1)
            if self._next() == ")":
                self._left.pop()
            return found
        if len(self._left) > 1 and self._left[-1] in _BINARY:
            return self._compared(word, self._left.pop(), self._left.pop())
        if word in _UNARY and self._left and self._left[-1] not in ("&&", "||"):
            return self._of_one(word, self._left.pop())
        return negated(self._is_empty(word))

    def _of_one(self, sign: str, word: str) -> Decided:
        if sign in ("-z", "-n"):
            empty = self._is_empty(word)
            return empty if sign == "-z" else negated(empty)
        return None

    def _is_empty(self, word: str) -> Decided:
        if self._is_unset(word):
            return True
        if HELD.search(word):
            return False if HELD.sub("", word) else None
        return not word

    def _compared(self, left: str, sign: str, right: str) -> Decided:
        if sign in _NUMBERS:
            numbers = [self._number(word) for word in (left, right)]
            return None if None in numbers else _NUMBERS[sign](*[one or 0 for one in numbers])
        left, right = ("" if self._is_unset(word) else word for word in (left, right))
        if HELD.search(left) or HELD.search(right) or sign not in ("=", "==", "!="):
            return None
        found = matches(left, right) if self._patterns else left == right
        return negated(found) if sign == "!=" else found
