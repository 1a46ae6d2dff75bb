"""Rules for custom rows: consistent values, and no name that already means another row."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from service.catalogue import (
    CalibrationRow,
    Catalogue,
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    RateCardRow,
    RegionRow,
    Row,
    key_of,
)
from service.catalogue.indexes import NameIndex, names_of, names_of_region
from service.catalogue.shipped import UNMEASURED_ARCHITECTURES
from service.errors import Conflict, Problem, did_you_mean, misspelt, refuse
from service.estimator.model.counts import count_parameters
from service.estimator.question import Model
from service.estimator.rules.training import problems_of_model
from service.estimator.time.rates import MATRIX_RATES

AnyRow = TypeVar("AnyRow", bound=Row)

SLUG = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
"""Slugs of custom rows, which appear in URLs and cells unquoted."""
LONGEST_SLUG = 100
RESERVED = frozenset({"import"})
TYPO_LIKENESS = 0.75
"""Likeness above which an unknown architecture counts as misspelt."""
MOST_DIFFERENCE_FRACTION = 0.01
"""Largest relative difference between the price of a machine and that of its GPUs together."""


def validated(row: AnyRow, catalogue: Catalogue) -> AnyRow:
    """Validate a row and replace the names of its GPUs by their slugs."""
    resolved = cast(AnyRow, _resolved(row, catalogue))
    problems = [*_slug_problems(resolved), *_problems_of_kind(resolved)]
    refuse(problems)
    return resolved


def _resolved(row: Row, catalogue: Catalogue) -> Row:
    if isinstance(row, ClusterRow):
        gpu, place = catalogue.find_gpu(row.cluster.gpu, "gpu").row.slug, row.cluster.grid_region
        region = None if place is None else catalogue.find_region(place, "grid_region").row.slug
        return replace(row, cluster=replace(row.cluster, gpu=gpu, grid_region=region))
    if isinstance(row, PriceRow):
        return replace(row, gpu=catalogue.find_gpu(row.gpu, "gpu").row.slug)
    if isinstance(row, RateCardRow):
        found = [catalogue.find_gpu(rate.gpu, f"rates.{i}.gpu").row.slug for i, rate in enumerate(row.rates)]
        return replace(row, rates=tuple(replace(rate, gpu=gpu) for rate, gpu in zip(row.rates, found, strict=True)))
    return row


def refuse_taken(row: Row, catalogue: Catalogue) -> None:
    """Refuse a row with a name that already means another row."""
    if isinstance(row, PriceRow | CalibrationRow):
        return
    if isinstance(row, RegionRow):
        slugs = {name: other.slug for other in catalogue.regions.values() for name in names_of_region(other)}
        for field, names in (("slug", (row.slug,)), ("aliases", row.aliases), ("name", (row.name,))):
            others = {slugs.get(name.casefold(), row.slug) for name in names} - {row.slug}
            if others:
                raise Conflict(_taken(field, min(others)))
        return
    indexes: dict[type, NameIndex[Any]] = {
        ModelRow: catalogue.model_index,
        GpuRow: catalogue.gpu_index,
        ClusterRow: catalogue.cluster_index,
        RateCardRow: catalogue.rate_card_index,
    }
    index = indexes[type(row)]
    problems = [
        _taken(field, other)
        for field, names in {
            "slug": (row.slug,),
            **names_of(row),
            "default_for": getattr(row, "default_for", ()),
        }.items()
        if (other := next((slug for name in names for slug in index.answers_to(name) if slug != row.slug), None))
    ]
    if problems:
        raise Conflict(*problems)


def _taken(field: str, other: str) -> Problem:
    message = f"{field} holds a name that already means {other}; with two meanings it could not be asked for"
    return Problem(field=field, code="name_taken", message=message, fix="choose a name that no other row has")


def is_free_slug(text: str) -> bool:
    """Whether a custom row may have this slug.

    >>> [is_free_slug(text) for text in ("our-gpu", "b-..-c", "import", "")]
    [True, False, False, False]
    """
    return _is_slug(text) and text not in RESERVED


def _is_slug(text: str) -> bool:
    return SLUG.fullmatch(text) is not None and len(text) <= LONGEST_SLUG


def _slug_problems(row: Row) -> Iterator[Problem]:
    if isinstance(row, PriceRow | CalibrationRow):
        return
    if not _is_slug(row.slug):
        message = "slug is no plain name; it stands in URLs and cells, where other characters would have to be quoted"
        fix = f"use lower-case letters and digits with single . _ - between them, at most {LONGEST_SLUG} characters"
        yield Problem(field="slug", code="not_a_slug", message=message, fix=fix)
    elif row.slug in RESERVED:
        message = "slug is the name of a path beside the rows, so the row could not be reached"
        yield Problem(field="slug", code="reserved", message=message, fix="choose another slug")


def _problems_of_kind(row: Row) -> Iterator[Problem]:
    if isinstance(row, ModelRow) and row.model is not None:
        yield from _model_problems(row, row.model)
    if isinstance(row, GpuRow):
        yield from _gpu_problems(row)
    if isinstance(row, PriceRow):
        together = row.usd_per_gpu_hour * row.gpu_count
        if abs(row.usd_per_instance_hour / together - 1) > MOST_DIFFERENCE_FRACTION:
            message = f"usd_per_instance_hour is not what the gpu_count of {row.gpu_count} costs together, {together:g}"
            fix = "mend one of the two, or leave usd_per_instance_hour out"
            yield Problem(field="usd_per_instance_hour", code="contradiction", message=message, fix=fix)
    if isinstance(row, RateCardRow):
        terms = [(rate.gpu, rate.price_model) for rate in row.rates]
        if len(set(terms)) < len(terms):
            message = "rates hold two rates for one GPU on the same terms, so it is unclear which counts"
            yield Problem(field="rates", code="repeated", message=message, fix="give one rate for each GPU and terms")


def _model_problems(row: ModelRow, model: Model) -> Iterator[Problem]:
    wrong = [replace(problem, field=problem.field.removeprefix("model.")) for problem in problems_of_model(model)]
    yield from wrong
    if wrong or row.exact is None:
        return
    counted = count_parameters(model)
    for name in (field.name for field in fields(row.exact) if field.name != "source"):
        count = counted.active.total if name == "active" else getattr(counted, name)
        if count != getattr(row.exact, name):
            message = f"the fields of the model make {count} parameters where exact_{name} says another number"
            fix = f"mend the fields of the model, give {count}, or leave every exact_ column out"
            yield Problem(field=f"exact_{name}", code="counts_differ", message=message, fix=fix)


def _gpu_problems(row: GpuRow) -> Iterator[Problem]:
    if row.gpu.usable_bytes > row.gpu.memory_bytes:
        message = "usable_bytes is more than memory_bytes, and a job cannot use more than the device has"
        yield Problem(field="usable_bytes", code="out_of_range", message=message, fix="give at most memory_bytes")
    if not any(getattr(row.gpu, one.name) for one in fields(row.gpu) if one.name.endswith("_flop_per_s")):
        message = "no rate of FLOP is given, so no time could be estimated"
        yield Problem(field="bf16_flop_per_s", code="required", message=message, fix="give at least one _flop_per_s")
    known = MATRIX_RATES.keys() | UNMEASURED_ARCHITECTURES
    near = misspelt(row.gpu.architecture, known, likeness=TYPO_LIKENESS)
    if row.gpu.architecture not in known and near:
        message = (
            "architecture resembles a known one; misspelt, it would silently lose that one's measured efficiencies"
        )
        fix = f"{did_you_mean(near)} for another generation, give a name less like these"
        yield Problem(field="architecture", code="not_a_choice", message=message, fix=fix)


def refuse_used(gpu: GpuRow, catalogues: Iterable[Catalogue]) -> None:
    """Refuse to remove a GPU that other rows reference."""
    users: dict[str, set[int]] = {"cluster": set(), "price": set(), "calibration": set(), "rate card": set()}
    for catalogue in catalogues:
        users["cluster"] |= {id(row) for row in catalogue.clusters.values() if row.cluster.gpu == gpu.slug}
        users["price"] |= {id(row) for row in catalogue.price_index.of_gpu(gpu.slug)}
        users["calibration"] |= {id(row) for row in catalogue.calibrations.values() if row.gpu == gpu.slug}
        users["rate card"] |= {
            id(row) for row in catalogue.rate_cards.values() if any(rate.gpu == gpu.slug for rate in row.rates)
        }
    counts = {kind: len(rows) for kind, rows in users.items() if rows}
    if counts:
        used_by = " and ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items())
        message = f"{key_of(gpu)} is used by {used_by}, which would speak of a GPU that is not there"
        raise Conflict(Problem(field="", code="in_use", message=message, fix="delete or change those first"))
