"""Kinds of rows: models, GPUs, clusters, prices, rate cards, regions and calibrations, each with its provenance."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from json import dumps
from typing import Annotated, Literal

from annotated_types import Ge, Interval, Le, Len, Lt

from service.errors import StartupError
from service.estimator.constants import DeviceCalibration
from service.estimator.question import Cluster, Gpu, Model, Name, PriceModel, Strict

SHIPPED = "catalogue"
"""Owner of the shipped rows; the rows of any other owner are custom rows."""

Names = Annotated[tuple[Name, ...], Len(0, 64)]
Text = Annotated[str, Len(1, 2000)]
Note = Annotated[str, Len(0, 4000)]

Verified = Literal["yes", "partly", "no"]
Scope = Literal["owner", "everyone"]


DATE = re.compile(r"[0-9]{4}(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?)?")


class UnsoundFact(StartupError):
    """A row of facts that does not load: without source or date, contradicting another, or not a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a row's numbers were read, when, and how well that was checked."""

    source: Text
    """Document, repository at a commit, or page; `from memory` where there is none."""
    as_of: Annotated[str, Len(4, 10)]
    """Date at which the numbers held or were read, as exact as it is known: 2025, 2025-03 or 2025-03-17."""
    verified: Verified
    """Whether the numbers were read in the source: yes, partly, or no (recalled)."""
    note: Note = ""
    """What to know before relying on the row."""
    owner: Name = field(default=SHIPPED, repr=False, compare=False)
    """Owner of the row: catalogue for those that come with the service, else a team."""
    revision: Annotated[int, Interval(ge=1, le=1 << 31)] = field(default=1, repr=False, compare=False)
    """Number of versions of the row, this one included."""
    scope: Scope = field(default="owner", repr=False, compare=False)
    """Who may use the row: its owner alone, or everyone, which only an admin can decide. Shipped rows are for
    everyone."""

    @property
    def is_for_everyone(self) -> bool:
        """Whether every caller sees the row: it is shipped, or an admin promoted it."""
        return self.owner == SHIPPED or self.scope == "everyone"

    @property
    def holds_for(self) -> Scope:
        """The scope as lists show it."""
        return "everyone" if self.is_for_everyone else "owner"

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise UnsoundFact("a row has no source; a number without a source does not load")
        if not is_date(self.as_of):
            raise UnsoundFact("a row has no as_of date; write 2025, 2025-03 or 2025-03-17")
        if self.verified not in ("yes", "partly", "no"):
            raise UnsoundFact("a row's verified is none of yes, partly, no")


def is_date(text: str) -> bool:
    """Whether a text is a date in the format of rows.

    >>> is_date("2025-03"), is_date("2025-3"), is_date("2025-13")
    (True, False, False)
    """
    parts = DATE.fullmatch(text)
    return parts is not None and 1 <= int(parts["month"] or 1) <= 12 and 1 <= int(parts["day"] or 1) <= 31


Parameters = Annotated[int, Interval(ge=0, le=1 << 53)]
UsdPerGpuHour = Annotated[float, Ge(1e-4), Lt(1e6)]

PriceStat = Literal["point", "min", "max"]
RegionKind = Literal["cloud-region", "country", "world", "own"]

TELLS_PRICES_APART = ("provider", "instance_type", "gpu", "region", "price_model", "stat", "as_of")
"""Fields that identify a price."""
NOT_IN_IDS = re.compile(r"[^a-z0-9.]+")
"""Characters that ids of prices leave out, so that they need no quoting in a URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCounts:
    """Parameters as the model's makers print them, rounded."""

    total: Parameters
    """In all."""
    active: Parameters | None = None
    """Used by one token, by the makers' own definition."""
    source: Text
    """Where they print it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactCounts:
    """Parameters counted in another implementation of the model: every trained number once, buffers not."""

    total: Parameters
    """In all, multi-token-prediction depths left out."""
    active: Parameters
    """Used by one token: all but the routed experts that it does not visit."""
    non_embedding: Parameters
    """Without token embedding, positions and an untied head."""
    input_embedding: Parameters
    """Token embedding."""
    position_embedding: Parameters = 0
    """Learned position table."""
    lm_head: Parameters = 0
    """Head matrix; 0 where tied."""
    routed_experts: Parameters = 0
    """All routed experts."""
    shared_experts: Parameters = 0
    """All shared experts."""
    multi_token_prediction: Parameters = 0
    """Own weights of the multi-token-prediction depths."""
    source: Text
    """What counted them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow(Provenance):
    """A model preset."""

    slug: Name
    """Catalogue name, e.g. llama-3.1-8b."""
    name: Name
    """Name in print."""
    family: Name
    """Models published together."""
    aliases: Names = ()
    """Other names that mean this model."""
    hugging_face_id: Name | None = None
    """Repository of its weights."""
    release: Name | None = None
    """Month of publication."""
    model: Model | None
    """Its architecture; absent where it cannot be expressed yet."""
    not_estimated: Text | None = None
    """Why it cannot be estimated, where model is absent."""
    published: PublishedCounts | None = None
    """Parameters in print."""
    exact: ExactCounts | None = None
    """Parameters counted elsewhere; the ledger must equal them."""

    def __post_init__(self) -> None:
        Provenance.__post_init__(self)
        if (self.model is None) == (self.not_estimated is None):
            raise UnsoundFact(f"model {self.slug} needs either a model or the reason why it has none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """Purchase price of one accelerator, with its share of the server where it came in one."""

    usd: Annotated[float, Ge(1), Lt(1e9)]
    """US dollars for one GPU."""
    as_of: Annotated[str, Len(4, 10)]
    """Date of the offer, as exact as it is known."""
    source: Text
    """Who offered or reported it, and whether it was a share of a server or a single unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow(Provenance):
    """An accelerator."""

    gpu: Gpu
    """Its facts in base units."""
    name: Name
    """Name in print."""
    vendor: Name
    """Who makes it."""
    release_year: Annotated[int, Interval(ge=1950, le=2200)]
    """Year of its announcement."""
    aliases: Names = ()
    """Names by nvidia-smi, Kubernetes labels, GKE labels, cloud machine types; several GPUs may share one."""
    default_for: Names = ()
    """Shared aliases that mean this GPU by default."""
    usable_basis: Text
    """How the usable memory is known."""
    link_name: Name
    """Fast link between the GPUs."""
    purchase: Purchase | None = None
    """Purchase price of one of them; absent where unknown."""

    @property
    def slug(self) -> str:
        """Catalogue name."""
        return self.gpu.slug


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow(Provenance):
    """A machine that people name as a whole."""

    slug: Name
    """Catalogue name, e.g. dgx-h100."""
    name: Name
    """Name in print."""
    aliases: Names = ()
    """Other names that mean it, e.g. the cloud's machine type."""
    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow(Provenance):
    """A price of a GPU-hour at some date."""

    provider: Name
    """Who rents it out; `market:...` for a range over many."""
    instance_type: Name
    """Machine, in the provider's spelling."""
    gpu: Name
    """Catalogue name of the GPU."""
    gpu_count: Annotated[int, Interval(ge=1, le=1 << 16)]
    """GPUs in the machine."""
    region: Name
    """Where, in the provider's spelling; `all` where there is one price for everywhere."""
    price_model: PriceModel
    """On what terms."""
    stat: PriceStat
    """The price itself, or an end of a range (spot prices over zones, a market survey)."""
    usd_per_gpu_hour: UsdPerGpuHour
    """US dollars for one GPU for one hour."""
    usd_per_instance_hour: Annotated[float, Ge(1e-4), Lt(1e11)]
    """US dollars for the whole machine for one hour."""

    @property
    def id(self) -> str:
        """Identity of this price, unique among all."""
        return price_id(tuple(getattr(self, name) for name in TELLS_PRICES_APART))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Strict):
    """What one GPU costs for one hour by a rate card."""

    gpu: Name
    """Catalogue name of the GPU."""
    usd_per_gpu_hour: UsdPerGpuHour
    """US dollars for one GPU for one hour."""
    price_model: PriceModel | None = None
    """On what terms; any where absent."""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.gpu, self.price_model, f"{self.usd_per_gpu_hour:g}")))


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCardRow(Provenance):
    """A team's own prices, GPU by GPU."""

    slug: Name
    """Catalogue name."""
    name: Name
    """Name in print."""
    rates: Annotated[tuple[Rate, ...], Len(1, 256)]
    """The rates, at most one for each GPU and terms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRow(Provenance):
    """A place, and the electricity that a cluster there runs on."""

    slug: Name
    """Catalogue name: cloud:region in the cloud's spelling, or the ISO 3166 code of a country."""
    name: Name
    """Name in print."""
    kind: RegionKind
    """A cloud's region, a country, the world, or a place of one's own."""
    country: Annotated[str, Len(3, 3)] | None = None
    """ISO 3166 code of the country, three letters."""
    aliases: Names = ()
    """Other names that mean it."""
    grid_kg_co2e_per_kwh: Annotated[float, Ge(0), Lt(10)]
    """Carbon intensity of its electricity."""
    carbon_free_fraction: Annotated[float, Ge(0), Le(1)] | None = None
    """Share of its electricity from carbon-free sources."""
    pue: Annotated[float, Ge(1), Lt(10)] | None = None
    """Power usage effectiveness of its operator's data centres."""
    pue_source: Text | None = None
    """Where that was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRow(Provenance):
    """The calibration that holds for a GPU: one that was promoted."""

    gpu: Name
    """Catalogue name of the GPU."""
    calibration: DeviceCalibration
    """Measured rates, in place of published ones."""


Row = ModelRow | GpuRow | ClusterRow | PriceRow | RateCardRow | RegionRow | CalibrationRow


@lru_cache(1 << 14)
def price_id(identity: tuple[str, ...]) -> str:
    """The id of a price: its words in URL form, and a digest of the exact words."""
    words = NOT_IN_IDS.sub("-", "-".join(identity).lower()).strip("-")
    return f"{words}-{sha256(dumps(list(identity)).encode()).hexdigest()[:8]}"


def key_of(row: Row) -> str:
    """Identity of a row among those of its kind."""
    if isinstance(row, CalibrationRow):
        return row.gpu
    return row.id if isinstance(row, PriceRow) else row.slug
