"""What do stretches of time have in common? Sorted, disjoint spans, and their unions, intersections and differences."""

from collections.abc import Iterable, Sequence

Span = tuple[float, float]
"""A beginning and an end [s]."""


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans as few as cover the same.

    Args:
        spans: spans, in any order

    Returns:
        sorted spans that do not touch

    >>> merged([(4, 6), (0, 2), (1, 3)])
    [(0, 3), (4, 6)]
    """
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """What two sets of spans have in common.

    Args:
        one: merged spans
        other: merged spans

    Returns:
        merged spans

    >>> common([(0, 3), (4, 6)], [(2, 5)])
    [(2, 3), (4, 5)]
    """
    found: list[Span] = []
    first = second = 0
    while first < len(one) and second < len(other):
        start, end = max(one[first][0], other[second][0]), min(one[first][1], other[second][1])
        if start < end:
            found.append((start, end))
        if one[first][1] < other[second][1]:
            first += 1
        else:
            second += 1
    return found


def without(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """What one set of spans has that another has not.

    Args:
        one: merged spans
        other: merged spans

    Returns:
        merged spans

    >>> without([(0, 3), (4, 6)], [(2, 5)])
    [(0, 2), (5, 6)]
    """
    found: list[Span] = []
    place = 0
    for start, end in one:
        begin = start
        while place < len(other) and other[place][1] <= begin:
            place += 1
        at = place
        while at < len(other) and other[at][0] < end:
            if other[at][0] > begin:
                found.append((begin, other[at][0]))
            begin = max(begin, other[at][1])
            at += 1
        if begin < end:
            found.append((begin, end))
    return found


def length_seconds(spans: Iterable[Span]) -> float:
    """Time that merged spans take.

    Args:
        spans: merged spans

    Returns:
        the time [s]

    >>> length_seconds([(0, 3), (4, 6)])
    5
    """
    return sum(end - start for start, end in spans)
