"""Evaluation of the expressions that explanations of answers carry."""

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Scalar = float | int | bool | str | None
Value = Scalar | tuple[float, ...]


class UnreadableExpression(ValueError):
    """An expression that does not follow the rules, or names an input that is not listed."""


MOST_CHARACTERS = 100_000
"""Longest expression that is read. Source: a choice; those of the service are some hundred characters long."""


def evaluate(expression: str, inputs: Mapping[str, Scalar | Sequence[float]]) -> float:
    """Value of an explained number from the inputs that its explanation lists.

    An expression has numbers, inputs by name (names may have dots), `+ - * / // % **`, comparisons, `and`, `or`,
    `not`, `a if condition else b`, and the functions `min max sum ceil floor round sqrt log log2 exp erf`. Arithmetic
    on lists of equal length is element by element, and `sum` adds a list up. Nothing else is evaluated, so an
    expression can do no harm.

    Args:
        expression: `expression` of an explanation
        inputs: `inputs` of the same explanation
    Returns: the value
    Raises:
        UnreadableExpression: the expression has anything else, or an input is missing or of the wrong kind

    >>> evaluate("steps * step_seconds * gpus / 3600", {"steps": 3600, "step_seconds": 2.0, "gpus": 8})
    16.0
    >>> evaluate("sum(steps * batches) * tokens", {"steps": [5, 3], "batches": [1, 2], "tokens": 10})
    110
    """
    if len(expression) > MOST_CHARACTERS:
        raise UnreadableExpression(f"the expression has {len(expression)} characters; at most {MOST_CHARACTERS}")
    try:
        tree = ast.parse(expression, mode="eval")
        result = _value(tree.body, inputs)
    except (SyntaxError, TypeError, ArithmeticError, ValueError, RecursionError, MemoryError) as error:
        raise UnreadableExpression(f"{expression[:80]!r} cannot be evaluated: {error}") from error
    if isinstance(result, bool) or not isinstance(result, int | float):
        raise UnreadableExpression(f"{expression[:80]!r} is no number but {result!r}"[:200])
    return result


MOST_EXPONENT = 64
MOST_BITS = 256
"""Largest exponent, and longest whole number that is raised to one, so that no expression takes long.
Source: a choice."""


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > MOST_EXPONENT:
        raise UnreadableExpression(f"exponent {exponent} is larger than {MOST_EXPONENT}")
    if isinstance(base, int) and base.bit_length() > MOST_BITS:
        raise UnreadableExpression(f"the base of a power has more than {MOST_BITS} bits")
    return base**exponent


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: _power,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: lambda a: -a,
    ast.UAdd: lambda a: +a,
    ast.Not: lambda a: not a,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: bool(a == b),
    ast.NotEq: lambda a, b: bool(a != b),
    ast.Lt: lambda a, b: bool(a < b),
    ast.LtE: lambda a, b: bool(a <= b),
    ast.Gt: lambda a, b: bool(a > b),
    ast.GtE: lambda a, b: bool(a >= b),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": round,
    "sqrt": math.sqrt,
    "log": math.log,
    "log2": math.log2,
    "exp": math.exp,
    "erf": math.erf,
}
"""Functions of expressions: those of Python's `math` and built-in ones of the same names."""


def _value(node: ast.expr, inputs: Mapping[str, Any]) -> Any:
    read = _NODES.get(type(node))
    if read is None:
        raise UnreadableExpression(f"{type(node).__name__} is no part of an expression")
    return read(node, inputs)


def _constant(node: ast.Constant, _: Mapping[str, Any]) -> Any:
    if not isinstance(node.value, int | float | str):
        raise UnreadableExpression(f"{node.value!r} is neither a number nor a word")
    return node.value


def _name(node: ast.Name | ast.Attribute, inputs: Mapping[str, Any]) -> Any:
    name = _dotted(node)
    if name not in inputs:
        raise UnreadableExpression(f"input {name!r} is not listed")
    value = inputs[name]
    return tuple(value) if isinstance(value, list) else value


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    raise UnreadableExpression(f"{type(node).__name__} is no part of a name")


def _binary(node: ast.BinOp, inputs: Mapping[str, Any]) -> Any:
    chain = [node]
    while isinstance(chain[-1].left, ast.BinOp):
        chain.append(chain[-1].left)  # a long sum is as deep as it is long
    result = _value(chain[-1].left, inputs)
    for one in reversed(chain):
        result = _operated(one.op, result, _value(one.right, inputs))
    return result


def _operated(operator: ast.operator, left: Any, right: Any) -> Any:
    """The result of an operator: of two numbers, or of each number of a list."""
    operation = _BINARY.get(type(operator))
    if operation is None:
        raise UnreadableExpression(f"{type(operator).__name__} is no operator of expressions")
    if isinstance(left, tuple) and isinstance(right, tuple):
        return tuple(operation(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, tuple):
        return tuple(operation(a, right) for a in left)
    if isinstance(right, tuple):
        return tuple(operation(left, b) for b in right)
    if isinstance(left, str) or isinstance(right, str):
        raise UnreadableExpression("words have no arithmetic")
    return operation(left, right)


def _unary(node: ast.UnaryOp, inputs: Mapping[str, Any]) -> Any:
    operation = _UNARY.get(type(node.op))
    if operation is None:
        raise UnreadableExpression(f"{type(node.op).__name__} is no operator of expressions")
    return operation(_value(node.operand, inputs))


def _logic(node: ast.BoolOp, inputs: Mapping[str, Any]) -> bool:
    values = (bool(_value(one, inputs)) for one in node.values)
    return all(values) if isinstance(node.op, ast.And) else any(values)


def _comparison(node: ast.Compare, inputs: Mapping[str, Any]) -> bool:
    left = _value(node.left, inputs)
    for operator, operand in zip(node.ops, node.comparators, strict=True):
        compare, right = _COMPARISONS.get(type(operator)), _value(operand, inputs)
        if compare is None:
            raise UnreadableExpression(f"{type(operator).__name__} is no comparison of expressions")
        if not compare(left, right):
            return False
        left = right
    return True


def _choice(node: ast.IfExp, inputs: Mapping[str, Any]) -> Any:
    return _value(node.body if _value(node.test, inputs) else node.orelse, inputs)


def _call(node: ast.Call, inputs: Mapping[str, Any]) -> Any:
    function = FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is None or node.keywords:
        raise UnreadableExpression("an expression calls " + ", ".join(FUNCTIONS) + ", without names of arguments")
    return function(*(_value(argument, inputs) for argument in node.args))


_NODES: dict[type[ast.expr], Callable[[Any, Mapping[str, Any]], Any]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _name,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _logic,
    ast.Compare: _comparison,
    ast.IfExp: _choice,
    ast.Call: _call,
}
