"""The catalogue: models, GPUs, clusters, prices and regions, each with its source and date."""

from service.catalogue.catalogue import EVERYONE, Catalogue, Snapshot
from service.catalogue.indexes import Found
from service.catalogue.prices import PriceQuery
from service.catalogue.rows import (
    SHIPPED,
    CalibrationRow,
    ClusterRow,
    ExactCounts,
    GpuRow,
    ModelRow,
    PriceRow,
    PublishedCounts,
    Rate,
    RateCardRow,
    RegionRow,
    Row,
    UnsoundFact,
    key_of,
)
from service.catalogue.shipped import checked_catalogue, shipped_catalogue

__all__ = [
    "EVERYONE",
    "SHIPPED",
    "CalibrationRow",
    "Catalogue",
    "ClusterRow",
    "ExactCounts",
    "Found",
    "GpuRow",
    "ModelRow",
    "PriceQuery",
    "PriceRow",
    "PublishedCounts",
    "Rate",
    "RateCardRow",
    "RegionRow",
    "Row",
    "Snapshot",
    "UnsoundFact",
    "checked_catalogue",
    "key_of",
    "shipped_catalogue",
]
