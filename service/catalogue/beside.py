"""Rows beside others that stay as they are: a row gives up the names that those have, or is left out."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from service.catalogue.indexes import Key, Named, forms_of_row, gpus_of
from service.catalogue.names import forms_of
from service.catalogue.rows import CalibrationRow, GpuRow, ModelRow, PriceRow, RegionRow, Row, key_of


class Beside(NamedTuple):
    """What becomes of a row beside those that stay."""

    row: Row
    """The row as it is."""
    kept: Row | None
    """What stays of it; None where it is left out."""
    missing_gpu: str | None = None
    """GPU that it speaks of and that is left out; None where a name stands in its way."""


def beside(fixed: Iterable[Row], others: Iterable[Row]) -> Iterator[Beside]:
    """Rows beside rows that stay as they are.

    A row whose slug is a name of a fixed one is left out, as is one that speaks of a GPU that is; any other goes
    without the names that fixed rows have.

    Args:
        fixed: rows that stay as they are
        others: rows that give way, GPUs before what speaks of them

    Yields:
        what becomes of each of the others
    """
    stay = tuple(fixed)
    keys = {(type(row), key_of(row)) for row in stay}
    taken = {(type(row), form) for row in stay for form in forms_of_row(row)}
    left_out: set[str] = set()
    for row in others:
        key: Key = (type(row), key_of(row))
        missing = left_out.intersection(gpus_of(row))
        if missing:
            yield Beside(row, None, min(missing))
        elif key in keys or any((type(row), form) in taken for form in forms_of(key_of(row))):
            left_out |= {key_of(row)} if isinstance(row, GpuRow) and key not in keys else set()
            yield Beside(row, None)
        else:
            yield Beside(row, row if isinstance(row, PriceRow | RegionRow | CalibrationRow) else _without(row, taken))


def _without(row: Named, taken: Container[tuple[type, str]]) -> Named:
    """A row without the names that other rows have."""

    def is_free(name: str) -> bool:
        return not any((type(row), form) in taken for form in forms_of(name))

    names: dict[str, Any] = {
        name: tuple(filter(is_free, getattr(row, name))) for name in ("aliases", "default_for") if hasattr(row, name)
    }
    if not is_free(row.name):
        names["name"] = row.slug
    if isinstance(row, ModelRow) and row.hugging_face_id and not is_free(row.hugging_face_id):
        names["hugging_face_id"] = None
    return replace(row, **names) if any(getattr(row, name) != value for name, value in names.items()) else row
