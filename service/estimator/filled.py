"""What does a formula read of a field that may be left out? Its value, once the question is resolved."""

from typing import TypeVar

Value = TypeVar("Value")


def filled(value: Value | None) -> Value:
    """The value of a field that `resolve` has filled.

    A formula that meets an empty one was given a question as asked; a default here would be a quiet wrong number.

    Args:
        value: the field

    Returns:
        its value

    >>> filled(0)
    0
    """
    if value is None:
        message = "the question is not resolved: a field that resolve fills is empty"
        raise TypeError(message)
    return value
