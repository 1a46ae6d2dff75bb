"""Arithmetic on an `Amount`: one plain number, or one float64 value for each layout in a NumPy column.

No other module looks at types. The path of a single layout never touches NumPy, which a column alone imports.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, reduce
from math import ceil, log2, prod, sqrt
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Amount: TypeAlias = "float | NDArray[np.float64]"
Condition: TypeAlias = "bool | np.bool_ | NDArray[np.bool_]"

_NUMBERS = (int, float)


@cache
def _numpy() -> Any:
    import numpy

    return numpy


def column(numbers: Sequence[float]) -> "NDArray[np.float64]":
    """One float64 column of some numbers.

    >>> column((2, 3)).tolist()
    [2.0, 3.0]
    """
    numpy = _numpy()
    made: NDArray[np.float64] = numpy.array(numbers, dtype=numpy.float64)
    return made


def is_nothing(amount: Amount) -> bool:
    """Whether an amount is a plain zero, so that no column has to be worked through for it.

    >>> is_nothing(0), is_nothing(0.5)
    (True, False)
    """
    return isinstance(amount, _NUMBERS) and not amount


def summed(amounts: Iterable[Amount]) -> Amount:
    """The sum of some amounts, added one after the other.

    >>> summed((1, 2.5))
    3.5
    """
    return reduce(add, amounts, 0)


def summed_by_shape(amounts: Iterable[Amount]) -> Amount:
    """The sum of some amounts: numbers one after the other; of columns, first those that one shape has room for.

    So most additions are those of small columns.

    >>> from numpy import ones
    >>> summed_by_shape((1, 2.5)), summed_by_shape((1, ones((3, 1)), ones((1, 2)), ones((3, 1)))).tolist()
    (3.5, [[4.0, 4.0], [4.0, 4.0], [4.0, 4.0]])
    """
    sums: dict[tuple[int, ...], Amount] = {}
    for amount in amounts:
        shape = () if isinstance(amount, _NUMBERS) else amount.shape
        sums[shape] = sums[shape] + amount if shape in sums else amount
    shapes = sorted(sums, key=prod)
    for place, small in enumerate(shapes):
        for large in shapes[place + 1 :]:
            if not small or (len(small) == len(large) and all(a in (1, b) for a, b in zip(small, large, strict=True))):
                sums[large] = sums[large] + sums.pop(small)
                break
    return summed(sums[shape] for shape in shapes if shape in sums)


def maximum(a: Amount, b: Amount) -> Amount:
    """The larger of two amounts, element by element.

    >>> maximum(2, 3)
    3
    """
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
        return b if b > a else a  # noqa: FURB136 - a call of max takes twice as long
    larger: Amount = _numpy().maximum(a, b)
    return larger


def minimum(a: Amount, b: Amount) -> Amount:
    """The smaller of two amounts, element by element.

    >>> minimum(2, 3)
    2
    """
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
        return b if b < a else a  # noqa: FURB136 - a call of min takes twice as long
    smaller: Amount = _numpy().minimum(a, b)
    return smaller


def where(condition: Condition, yes: Amount, no: Amount) -> Amount:
    """`yes` where the condition holds, else `no`; both are evaluated.

    >>> where(2 > 1, 10, 20)
    10
    """
    if condition is True or condition is False:
        return yes if condition else no
    chosen: Amount = _numpy().where(condition, yes, no)
    return chosen


def where_needed(condition: Condition, yes: Callable[[], Amount], no: Amount) -> Amount:
    """`yes()` where the condition holds, else `no`; where no layout needs it, it is not computed.

    >>> where_needed(1 > 2, lambda: 1 / 0, 20)
    20
    """
    if condition is True:
        return yes()
    return where(condition, yes(), no) if condition is not False and condition.any() else no


def both(a: Condition, b: Condition) -> Condition:
    """Whether both conditions hold, element by element.

    >>> both(2 > 1, 1 > 2)
    False
    """
    if a is False or b is False or (a is True and b is True):
        return a is True and b is True
    held: Condition = _numpy().logical_and(a, b)
    return held


def implies(premise: Condition, conclusion: Condition) -> Condition:
    """Whether the conclusion holds wherever the premise does, element by element.

    >>> implies(1 > 2, 2 > 3), implies(2 > 1, 2 > 3)
    (True, False)
    """
    if isinstance(premise, bool) and isinstance(conclusion, bool):
        return conclusion or not premise
    numpy = _numpy()
    held: Condition = numpy.logical_or(numpy.logical_not(premise), conclusion)
    return held


def either(a: Condition, b: Condition) -> Condition:
    """Whether one of two conditions holds, element by element.

    >>> either(2 > 1, 1 > 2)
    True
    """
    if a is True or b is True or (a is False and b is False):
        return a is True or b is True
    held: Condition = _numpy().logical_or(a, b)
    return held


def equal_everywhere(a: Amount, b: Amount) -> bool:
    """Whether two amounts are the same number in every layout.

    >>> equal_everywhere(2, 2.0), equal_everywhere(2, 3)
    (True, False)
    """
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
        return a == b
    return bool((a == b).all())  # type: ignore[union-attr]  # one of them is a column


def number_or_column(amount: Amount) -> Amount:
    """An amount as one number where it is the same in every layout, so that what follows is computed once for all.

    >>> from numpy import array
    >>> number_or_column(array([1.0, 1.0])), number_or_column(array([1.0, 2.0])).tolist()
    (1.0, [1.0, 2.0])
    """
    if isinstance(amount, _NUMBERS):
        return amount
    first = float(amount.flat[0])
    return first if equal_everywhere(amount, first) else amount


def ceil_div(a: Amount, b: Amount) -> Amount:
    """a / b rounded up; exact for integers, and for columns below 2^53.

    >>> ceil_div(7, 2)
    4
    """
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
        return -(-a // b)
    rounded: Amount = _numpy().ceil(a / b)
    return rounded


def divides(divisor: Amount, amount: Amount) -> Condition:
    """Whether the amount is a whole multiple of the divisor.

    >>> divides(4, 28), divides(8, 28)
    (True, False)
    """
    whole: Condition = amount % divisor == 0
    return whole


def take(table: tuple[float, ...], index: Amount) -> Amount:
    """The entry of a table at an index, or one entry for each index of a column.

    >>> take((10, 20, 30), 1)
    20
    """
    if isinstance(index, _NUMBERS):
        return table[int(index)]
    numpy = _numpy()
    entries: Amount = numpy.asarray(table, dtype=numpy.float64)[index.astype(numpy.int64)]
    return entries


def floor_div(a: Amount, b: Amount) -> Amount:
    """a / b rounded down; exact for integers, and for columns below 2^53.

    >>> floor_div(7, 2)
    3
    """
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
        return a // b
    rounded: Amount = _numpy().floor(a / b)
    return rounded


def square_root(a: Amount) -> Amount:
    """The square root of an amount, the same to the last bit in both forms.

    >>> square_root(9)
    3.0
    """
    if isinstance(a, _NUMBERS):
        return sqrt(a)
    root: Amount = _numpy().sqrt(a)
    return root


def doublings(a: Amount) -> Amount:
    """How often 1 has to double to reach an amount of at least 1.

    >>> doublings(8), doublings(9), doublings(1)
    (3, 4, 0)
    """
    if isinstance(a, _NUMBERS):
        return ceil(log2(a))
    numpy = _numpy()
    rounded: Amount = numpy.ceil(numpy.log2(a))
    return rounded
