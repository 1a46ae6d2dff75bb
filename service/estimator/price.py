"""What does a run cost: rented GPUs or own ones, and the bytes that it keeps and sends out?"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Interval, Le, Len, Lt

from service.estimator.names import PriceModel
from service.estimator.noun import STRICT

Bytes = Annotated[float, Ge(0), Lt(1e18)]
Share = Annotated[float, Ge(0), Lt(1)]
SmallUsd = Annotated[float, Ge(0), Lt(1e6)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Bytes that are kept for as long as the run takes."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    usd_per_gb_month: SmallUsd
    """US dollars for one GB (1e9 bytes) kept for one month (730 hours)."""
    checkpoints: Annotated[int, Interval(ge=0, le=1 << 20)] = 1
    """Checkpoints that are kept at a time."""
    data_bytes: Bytes = 0.0
    """Other bytes that are kept: training data, logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """Bytes that leave the provider's network once."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    bytes: Bytes
    """Bytes sent out."""
    usd_per_gb: SmallUsd
    """US dollars for one GB (1e9 bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one rented GPU costs for one hour, and what is paid beside it."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    usd_per_gpu_hour: Annotated[float, Ge(1e-4), Lt(1e6)]
    """US dollars for one GPU for one hour, before any discount."""
    price_model: PriceModel | None = None
    """On what terms; spot capacity is taken back now and then."""
    discount_fraction: Share = 0.0
    """Own discount on that price."""
    preemptions_per_instance_hour: Annotated[float, Ge(0), Lt(100)] | None = None
    """How often the provider takes one machine (a node) back; 2.2e-4, some 15 % of machines in a month, for spot where
    absent, else 0."""
    as_of: Annotated[str, Len(4, 10)] | None = None
    """Date at which the price held, e.g. 2025, 2025-03 or 2025-03-17; descriptive, but an old price is warned of."""
    storage: Storage | None = None
    """Bytes that are kept; no such cost where absent."""
    egress: Egress | None = None
    """Bytes that are sent out; no such cost where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPrice:
    """What owned hardware costs: its purchase written off over the hours that it works, and its upkeep."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    amortisation_years: Annotated[float, Ge(0.01), Le(50)]
    """Years over which the purchase is written off."""
    purchase_usd: Annotated[float, Ge(1), Lt(1e9)] | None = None
    """Purchase price of one GPU with its share of server and network; the catalogue's where absent."""
    residual_fraction: Share = 0.0
    """Share of the purchase price that it still brings after those years."""
    utilisation_fraction: Annotated[float, Ge(0.01), Le(1)] = 0.8
    """Share of those years in which it works for somebody: idle hours are paid by the busy ones."""
    maintenance_fraction: Share = 0.0
    """Maintenance and support of one year over the purchase price."""
    usd_per_kwh: SmallUsd | None = None
    """US dollars for one kWh; the cost holds no electricity where absent."""
    usd_per_kw_month: SmallUsd | None = None
    """US dollars for hosting one kW of rated power for one month (730 hours); no such cost where absent."""
    as_of: Annotated[str, Len(4, 10)] | None = None
    """Date at which the purchase price held, e.g. 2025-03; descriptive, but an old price is warned of."""
    storage: Storage | None = None
    """Bytes that are kept; no such cost where absent."""
    egress: Egress | None = None
    """Bytes that are sent out; no such cost where absent."""
