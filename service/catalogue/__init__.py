"""What facts does an estimate rest on? Models, GPUs, clusters and prices, each with its source and its date."""

from service.catalogue.catalogue import Catalogue
from service.catalogue.names import Found
from service.catalogue.prices import PriceQuery
from service.catalogue.rows import (
    SHIPPED,
    ClusterRow,
    ExactCounts,
    GpuRow,
    ModelRow,
    PriceRow,
    PublishedCounts,
    Rate,
    RateCardRow,
    Row,
    UnsoundFact,
    key_of,
)
from service.catalogue.shipped import shipped_catalogue

__all__ = [
    "SHIPPED",
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
    "Row",
    "UnsoundFact",
    "key_of",
    "shipped_catalogue",
]
