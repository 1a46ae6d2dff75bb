"""One test of many cases: it runs each, and its failure lists every case that fails.

Thousands of tests of a millisecond each take longer to collect, hand out and report than to run. Cases that need a
fixture of their own, or that a person runs one by one, stay with `pytest.mark.parametrize`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

Check = Callable[..., None]


def each_case(names: str | tuple[str, ...], cases: Iterable[Any], ids: Any = None) -> Callable[[Check], Check]:
    """Make one test of a check and its cases, given as `pytest.mark.parametrize` takes them."""
    listed = list(cases)
    parts = (names,) if isinstance(names, str) else names

    def decorated(check: Check) -> Check:
        def test() -> None:
            faults = [
                fault
                for place, case in enumerate(listed)
                if (fault := _fault(check, parts, _values(case, parts), _name(case, place, ids)))
            ]
            assert listed, "there is no case"
            assert not faults, f"{len(faults)} of {len(listed)} cases fail:\n" + "\n".join(faults)

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorated


def _values(case: Any, parts: tuple[str, ...]) -> tuple[Any, ...]:
    if hasattr(case, "values") and hasattr(case, "marks"):
        return tuple(case.values)
    return (case,) if len(parts) == 1 else tuple(case)


def _name(case: Any, place: int, ids: Any) -> str:
    if getattr(case, "id", None) and hasattr(case, "marks"):
        return str(case.id)
    if callable(ids):
        return str(ids(case))
    return str(list(ids)[place]) if ids is not None else str(place)


def _fault(check: Check, parts: tuple[str, ...], values: tuple[Any, ...], name: str) -> str | None:
    try:
        check(**dict(zip(parts, values, strict=True)))
    except (Exception, pytest.fail.Exception) as error:
        return f"{name}: {type(error).__name__}: {error}"
    return None
