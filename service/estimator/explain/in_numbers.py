"""Equations with the numbers put in, as people read them, each of which gives the value to the digits shown."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

from service.units import COUNT, Dimension, shown

DIGITS = 5
"""Significant digits of a value. Source: a choice; a person checks no more on a calculator."""
MORE_DIGITS = (DIGITS, 6, 7, 9, 12, 15)
"""Digits of what is put in: as few as give the value to its digits, more where a difference loses some."""
MOST_TERMS = 6
"""Terms of a sum that are shown; of a longer one the largest, and how much the others add. Source: a choice."""

_CONVERSIONS = {3600: "3,600 s/h", 24: "24 h/day", 730: "730 h/month", 8760: "8,760 h/year", 1e9: "1,000,000,000 B/GB"}
"""Numbers of expressions that turn one unit into another."""
_ATOM, _PRODUCT, _SUM = 3, 2, 1


@dataclass(frozen=True, slots=True)
class _Piece:
    """Part of an equation: its text, how closely its operator binds, and its value, exact and by the digits shown."""

    text: str
    rank: int
    exact: Any
    value: Any
    dimension: Dimension = COUNT

    def within(self, rank: int) -> str:
        """The text, in parentheses where its operator binds less closely."""
        return self.text if self.rank >= rank else f"({self.text})"


@dataclass(frozen=True, slots=True)
class _Scope:
    """Inputs with their dimensions, how much is shown, and the place in lists inside a sum over them."""

    inputs: Mapping[str, Any]
    dimension_of: Callable[[str], Dimension]
    digits: int
    rounds: bool = True
    """Whether `round` is shown; where five digits hide it, it is not."""
    place: int | None = None


def in_numbers(
    expression: str, inputs: Mapping[str, Any], value: float, dimension: Dimension, of: Callable[[str], Dimension]
) -> str:
    """An expression with its inputs put in, and the value that it gives.

    >>> from service.units import DIMENSIONS, dimension_of
    >>> given = {"gpu_hours": 5835.84, "usd_per_gpu_hour": 2.5, "discount_fraction": 0.0}
    >>> text = "round(gpu_hours * usd_per_gpu_hour * (1 - discount_fraction), 2)"
    >>> in_numbers(text, given, 14589.6, DIMENSIONS["usd"], lambda name: dimension_of([name]))
    '5,835.8 GPU-h × $2.50/GPU-h = $14,590'
    """
    tree, right = _parsed(expression), shown(value, dimension)
    for rounds, digits in product((False, True), MORE_DIGITS):
        piece = _read(tree, _Scope(inputs, of, digits, rounds))
        if shown(piece.value, dimension).text == right.text:
            break
    return f"{piece.text} = {right.text}"


def evaluated(expression: str, inputs: Mapping[str, Any]) -> Any:
    """Value of an expression."""
    return _read(_parsed(expression), _Scope(inputs, lambda _: COUNT, DIGITS)).exact


@cache
def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


def _read(node: ast.expr, scope: _Scope) -> _Piece:
    return _NODES[type(node)](node, scope)


def _quantity(value: float, dimension: Dimension, digits: int) -> _Piece:
    text, rounded = shown(value, dimension, digits)
    return _Piece(text, _ATOM if value >= 0 else _SUM, value, rounded, dimension)


def _constant(node: ast.Constant, _: _Scope) -> _Piece:
    value: Any = node.value
    text = "" if isinstance(value, str) else _CONVERSIONS.get(value, f"{value:,}")
    return _Piece(text, _ATOM, value, value)


def _name(node: ast.expr, scope: _Scope) -> _Piece:
    name = node.id if isinstance(node, ast.Name) else ast.unparse(node)
    value = scope.inputs[name]
    if isinstance(value, tuple):
        value = value[scope.place or 0]
    if value is None or isinstance(value, bool | str):
        return _Piece("", _ATOM, value, value)
    return _quantity(value, scope.dimension_of(name), scope.digits)


def _added(terms: list[tuple[_Piece, bool]], digits: int) -> _Piece:
    """Terms, each added or taken away; the smallest of many as one."""
    counted = [(piece, adds) for piece, adds in terms if piece.exact] or terms[:1]
    if len(counted) > MOST_TERMS:
        by_size = sorted(counted, key=lambda term: -abs(term[0].exact))[: MOST_TERMS - 1]
        largest = {id(piece) for piece, _ in by_size}
        others = [(piece, adds) for piece, adds in counted if id(piece) not in largest]
        rest = sum(piece.exact if adds else -piece.exact for piece, adds in others)
        more = _quantity(rest, others[0][0].dimension, digits)
        text = f"{len(others)} more ({more.text})"
        counted = [(piece, adds) for piece, adds in counted if id(piece) in largest]
        counted.append((replace(more, text=text, rank=_ATOM), True))
    if len(counted) == 1 and counted[0][1]:
        return counted[0][0]
    text, exact, value = "", 0, 0
    for piece, adds in counted:
        sign = "+" if adds else "−"
        text += f" {sign} {piece.within(_SUM if adds else _PRODUCT)}" if text or not adds else piece.text
        exact += piece.exact if adds else -piece.exact
        value += piece.value if adds else -piece.value
    return _Piece(text.strip(), _SUM, exact, value, counted[0][0].dimension)


def _terms(node: ast.expr, scope: _Scope) -> list[tuple[_Piece, bool]]:
    terms: list[tuple[_Piece, bool]] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        terms.append((_read(node.right, scope), isinstance(node.op, ast.Add)))
        node = node.left
    return [(_read(node, scope), True), *reversed(terms)]


def _multiplied(node: ast.BinOp, scope: _Scope) -> _Piece:
    left, right = _read(node.left, scope), _read(node.right, scope)
    times = isinstance(node.op, ast.Mult)
    operation = operator.mul if times else operator.truediv
    exact, value = operation(left.exact, right.exact), operation(left.value, right.value)
    if right.exact == 1 or (times and left.exact == 1):
        kept = left if right.exact == 1 else right
        return replace(kept, exact=exact, value=value)
    dimension = _dimension_of(left.dimension, right.dimension)
    text = f"{left.within(_PRODUCT)} {'×' if times else '÷'} {right.within(_PRODUCT if times else _ATOM)}"
    return _Piece(text, _PRODUCT, exact, value, dimension)


def _dimension_of(left: Dimension, right: Dimension) -> Dimension:
    """Dimension of a product or quotient: that of one of both where the other is a count."""
    if right.base == COUNT.base:
        return COUNT if left.base == COUNT.base else left
    return right if left.base == COUNT.base else COUNT


def _floored(node: ast.BinOp, scope: _Scope) -> _Piece:
    whole = _multiplied(ast.BinOp(node.left, ast.Div(), node.right), scope)
    return _Piece(f"⌊{whole.text}⌋", _ATOM, math.floor(whole.exact), math.floor(whole.value))


def _raised(node: ast.BinOp, scope: _Scope) -> _Piece:
    left, right = _read(node.left, scope), _read(node.right, scope)
    text = f"{left.within(_ATOM)}^{right.within(_ATOM)}"
    return _Piece(text, _PRODUCT, left.exact**right.exact, left.value**right.value)


_OPERATIONS: dict[type[ast.operator], Callable[[ast.BinOp, _Scope], _Piece]] = {
    ast.Add: lambda node, scope: _added(_terms(node, scope), scope.digits),
    ast.Sub: lambda node, scope: _added(_terms(node, scope), scope.digits),
    ast.Mult: _multiplied,
    ast.Div: _multiplied,
    ast.FloorDiv: _floored,
    ast.Pow: _raised,
}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (min, max, round, math.ceil, math.floor, math.sqrt, math.log, math.log2, math.exp, math.erf)
}
_FORMS = {"ceil": "⌈{}⌉", "floor": "⌊{}⌋", "log": "ln({})", "sqrt": "√({})"}


def _called(node: ast.Call, scope: _Scope) -> _Piece:
    name = ast.unparse(node.func)
    if name == "sum":
        return _summed(node.args[0], scope)
    pieces = [_read(one, scope) for one in node.args]
    function, first = _FUNCTIONS[name], pieces[0]
    exact, value = (function(*(getattr(one, field) for one in pieces)) for field in ("exact", "value"))
    if (name == "round" and not scope.rounds) or (name in ("round", "ceil", "floor") and exact == first.exact):
        return replace(first, exact=exact)
    if name in ("min", "max") and len({one.text for one in pieces}) == 1:
        return first
    text = _FORMS.get(name, name + "({})").format(", ".join(one.text for one in pieces))
    return _Piece(text, _ATOM, exact, value, first.dimension)


def _summed(node: ast.expr, scope: _Scope) -> _Piece:
    """The sum over the items of lists of equal length."""
    lists = [scope.inputs.get(ast.unparse(one)) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)]
    length = next((len(one) for one in lists if isinstance(one, tuple)), 0)
    return _added([(_read(node, replace(scope, place=place)), True) for place in range(length)], scope.digits)


def _chosen(node: ast.IfExp, scope: _Scope) -> _Piece:
    return _read(node.body if _read(node.test, scope).exact else node.orelse, scope)


_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _compared(node: ast.Compare, scope: _Scope) -> _Piece:
    left, right = _read(node.left, scope).exact, _read(node.comparators[0], scope).exact
    holds = _COMPARISONS[type(node.ops[0])](left, right)
    return _Piece("", _ATOM, holds, holds)


def _negated(node: ast.UnaryOp, scope: _Scope) -> _Piece:
    one = _read(node.operand, scope)
    return replace(one, text=f"−{one.within(_PRODUCT)}", rank=_SUM, exact=-one.exact, value=-one.value)


_NODES: dict[type[ast.expr], Callable[[Any, _Scope], _Piece]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _name,
    ast.BinOp: lambda node, scope: _OPERATIONS[type(node.op)](node, scope),
    ast.UnaryOp: _negated,
    ast.IfExp: _chosen,
    ast.Compare: _compared,
    ast.Call: _called,
}
