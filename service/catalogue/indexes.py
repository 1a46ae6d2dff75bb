"""Indexes of rows by name, digests, and their renewal after a change without a full rebuild; regions by name."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Generic, NamedTuple, TypeVar
from unicodedata import normalize

from service.catalogue.rows import (
    SHIPPED,
    CalibrationRow,
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    RateCardRow,
    RegionRow,
    Row,
    UnsoundFact,
    key_of,
)
from service.errors import Problem, UnknownName, did_you_mean, nearest, quoted

PROVIDERS = ("aws", "azure", "coreweave", "crusoe", "gcp", "lambda", "nebius", "oci", "runpod")
"""Optional words before a machine type."""

SEPARATORS = re.compile(r"[^a-z0-9.+]+")

NAMES_IN_MEMORY = 8192
"""Cached normal forms. Source: a choice; five times those that ship."""

RowType = TypeVar("RowType")


class Found(NamedTuple, Generic[RowType]):
    """A row, and the assumptions of the choice."""

    row: RowType
    assumption: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[RowType]):
    """A row under its names."""

    slug: str
    aliases: tuple[str, ...]
    default_for: tuple[str, ...] = ()
    """Shared names that mean this row by default."""
    row: RowType


@dataclass(frozen=True, slots=True)
class NameIndex(Generic[RowType]):
    """Every name of one kind of row."""

    kind: str
    """model, gpu, cluster or rate_card, for error messages."""
    rows: Mapping[str, RowType]
    slugs: Mapping[str, tuple[str, ...]]
    """Slugs by normal form of a name; several where a name is shared."""
    run_together: Mapping[str, tuple[str, ...]]
    """The same without any separator: llama27b, but not llama-27b, is Llama 2 7B."""
    defaults: Mapping[str, tuple[str, str]]
    """The shared name as people write it and its slug, by its normal form."""

    @classmethod
    def of(cls, kind: str, entries: Iterable[Entry[RowType]]) -> "NameIndex[RowType]":
        rows: dict[str, RowType] = {}
        named: dict[str, list[str]] = {}
        defaults: dict[str, tuple[str, str]] = {}
        for entry in entries:
            if entry.slug in rows:
                raise UnsoundFact(f"two rows are called {kind} {entry.slug}")
            rows[entry.slug] = entry.row
            for form in forms_of(entry.slug, *entry.aliases):
                named.setdefault(form, []).append(entry.slug)
            for name in entry.default_for:
                _, winner = defaults.setdefault(_row_form(name), (name, entry.slug))
                if winner != entry.slug:
                    raise UnsoundFact(f"{kind} {entry.slug} and {winner} both claim the alias {name}")
        shadowed = next((named[form] for form in map(_row_form, rows) if len(named[form]) > 1), None)
        if shadowed:
            raise UnsoundFact(f"a name of one of the {kind} rows {', '.join(shadowed)} is the slug of another")
        together: dict[str, tuple[str, ...]] = {}
        for form, slugs in named.items():
            bare = form.replace("-", "")
            together[bare] = tuple(dict.fromkeys((*together.get(bare, ()), *slugs)))
        return cls(kind, rows, {form: tuple(slugs) for form, slugs in named.items()}, together, defaults)

    def find(self, name: str, field: str) -> Found[RowType]:
        chosen, slugs = self.meant(name)
        if not chosen:
            raise UnknownName(self._unknown(name, field, slugs))
        if self._named(name) == (chosen,):
            return Found(self.rows[chosen], None)
        spelled, _ = self.defaults.get(normal(name), (quoted(name), ""))
        others = " or ".join(other for other in slugs if other != chosen)
        also = f"; it could also mean {others}" if others else ""
        return Found(self.rows[chosen], f"{self.kind} {spelled} is taken as {chosen}{also}")

    def meant(self, name: str) -> "Meant":
        """The row that a name means, and all that it may mean."""
        form, slugs = normal(name), self._named(name)
        if len(slugs) == 1:
            return slugs[0], slugs
        if form in self.defaults:
            return self.defaults[form][1], slugs
        default, slugs = ("", slugs) if slugs else MEANT.get(self.kind, _meant_by_none)(self, name)
        if default in slugs:
            return default, slugs
        return (slugs[0] if len(slugs) == 1 else ""), slugs

    def _named(self, name: str) -> tuple[str, ...]:
        """The rows that have a name."""
        slugs = self.slugs.get(normal(name), ())
        if not slugs and not SEPARATORS.search(normalize("NFKC", name).casefold()):
            slugs = self.run_together.get(normal(name), ())
        return slugs

    def answers_to(self, name: str) -> tuple[str, ...]:
        """The rows that a name could mean, with or without its separators: another row cannot have the name."""
        form = normal(name)
        if not form:
            return ()
        default = (self.defaults[form][1],) if form in self.defaults else ()
        together = (*self.slugs.get(form, ()), *self.run_together.get(form.replace("-", ""), ()))
        return tuple(dict.fromkeys((*default, *together)))

    def _unknown(self, name: str, field: str, candidates: tuple[str, ...]) -> Problem:
        if candidates:
            message = f"{quoted(name)} means {len(candidates)} different {self.kind} rows of the catalogue"
        else:
            message = f"the catalogue holds no {self.kind.replace('_', ' ')} {quoted(name)}"
        near = list(candidates) or self._nearest(name)
        examples = ", ".join(list(self.rows)[:: max(1, len(self.rows) // 5)][:5])
        some = f"known are, for example, {examples}" if self.rows else "there is none yet; create one by POST"
        fix = did_you_mean(near) or some
        return Problem(field=field, code=f"unknown_{self.kind}", message=message, fix=fix)

    def _nearest(self, name: str) -> list[str]:
        """The slugs that a name resembles, or those of other names that do."""
        forms = nearest(normal(name), self.slugs, most=6)
        return nearest(name, self.rows) or list(dict.fromkeys(slug for form in forms for slug in self.slugs[form]))[:3]


Meant = tuple[str, tuple[str, ...]]
"""The slug that a name means by default, empty where none is, and all that it may mean."""


def _meant_by_none(_index: NameIndex[Any], _name: str) -> Meant:
    return "", ()


TUNED = re.compile(
    r"^meta(?=[- _])|[- _](?:(?:instruct|chat|it|base|thinking)(?:[- _][0-9]{4})?|hf|sft|dpo|deduped)(?=$|[- _])",
    re.IGNORECASE,
)
"""Words that say how a model was trained further and in which month, or who made it; its layers stay what they are."""


def _model_meant(index: NameIndex[Any], name: str) -> Meant:
    """The model that a tuned one was made of, under any publisher: it has the same layers."""
    form = normal(TUNED.sub("", name.rpartition("/")[2]))
    return "", index.slugs.get(form, ())


MAKERS = frozenset({"nvidia", "amd", "intel", "tesla", "geforce", "instinct", "gpu", "gpus", "tensor", "core"})
"""Words of driver names and consoles that no slug has."""
OTHER_WORDS = re.compile(r"hbm[0-9]*e?|gddr[0-9]*x?|mega|ac|hgx|dgx|gen[0-9]")
"""Words of a card's memory, of a machine's network and casing, and of its bus: they choose between no two GPUs."""
MEMORY_SIZE = re.compile(r"(?<![a-z0-9])([0-9]{1,3})[ -]*g(?:i?b|igs?)?(?![a-z0-9])|(?<=[0-9])[ -]*gi?b\b")
PLURAL = re.compile(r"(?<=[0-9])s\b")
FORM = re.compile(r"sxm[0-9]?|pcie|nvl[0-9]*|oam")
"""How a GPU is mounted."""


def _gpu_meant(index: NameIndex[Any], name: str) -> Meant:
    """The GPUs whose names have every word of another one, by default the one that its first word alone means."""
    spelled = MEMORY_SIZE.sub(lambda size: f"{size[1] or ''}gb", PLURAL.sub("", name).casefold())
    words = [
        word for word in SEPARATORS.split(spelled) if word and word not in MAKERS and not OTHER_WORDS.fullmatch(word)
    ]
    form = normal("-".join(words))
    slugs = index.slugs.get(form, ())
    if not slugs and any(not FORM.fullmatch(word) and not word.endswith("gb") for word in words):
        slugs = tuple(slug for slug, row in index.rows.items() if all(_has(row, word) for word in words))
    default = index.defaults.get(form, index.defaults.get(words[0], ("", "")) if words else ("", ""))[1]
    alike = [slug for slug in slugs if _mounting(slug) == _mounting(default)]
    return alike[0] if len(alike) == 1 and default not in slugs else default, slugs


def _mounting(slug: str) -> tuple[str, ...]:
    """The words of a GPU's slug but for the size of its memory."""
    return tuple(word for word in slug.split("-") if not word.endswith("gb"))


def _has(row: GpuRow, wanted: str) -> bool:
    """Whether a GPU's slug contains a word: with its number, as sxm5 for sxm, or none where the slug says less."""
    words = row.slug.split("-")
    if wanted in words or (wanted.isalpha() and any(word.startswith(wanted) for word in words)):
        return True
    if FORM.fullmatch(wanted):
        return wanted.rstrip("0123456789") in words or not any(map(FORM.fullmatch, words))
    if wanted.endswith("gb") and not any(word.endswith("gb") for word in words):
        return wanted == f"{row.gpu.memory_bytes / 2**30:.0f}gb"
    return wanted == "nvlink" and any(word.startswith("sxm") for word in words)


MEANT: Mapping[str, Callable[[NameIndex[Any], str], Meant]] = {"model": _model_meant, "gpu": _gpu_meant}


def forms_of(*names: str) -> tuple[str, ...]:
    """The different normal forms of names; a name without letters, digits or dots has none.

    >>> forms_of("H100 PCIe", "h100-pcie", "***")
    ('h100pcie',)
    """
    return tuple(dict.fromkeys(form for form in map(_row_form, names) if form))


def normal(name: str) -> str:
    """A name in the one form in which names are compared.

    Capitals and separators do not count, but a separator between two digits does: 2-7b is not 27b.

    >>> normal("meta-llama/Llama-2-7b-hf"), normal("AWS p5.48xlarge")
    ('metallamallama2-7bhf', 'p5.48xlarge')
    """
    words = SEPARATORS.sub("-", normalize("NFKC", name).casefold()).strip("-")
    for provider in PROVIDERS:
        words = words.removeprefix(f"{provider}-")
    return re.sub(r"(?<!\d)-|-(?!\d)", "", words)


@lru_cache(maxsize=NAMES_IN_MEMORY)
def _row_form(name: str) -> str:
    """The normal form of a row's name, cached: every change of the catalogue indexes the same names again."""
    return normal(name)


Named = ModelRow | GpuRow | ClusterRow | RateCardRow
NamedRow = TypeVar("NamedRow", ModelRow, GpuRow, ClusterRow, RateCardRow)
AnyRow = TypeVar("AnyRow", bound=Row)
Key = tuple[type, str]
Change = Mapping[Key, Row | None]
"""New rows by key; None for a removed row."""


def index_of(kind: str, rows: Iterable[NamedRow]) -> NameIndex[NamedRow]:
    return NameIndex.of(
        kind,
        (
            Entry(
                slug=row.slug,
                aliases=tuple(name for names in names_of(row).values() for name in names),
                default_for=getattr(row, "default_for", ()),
                row=row,
            )
            for row in rows
        ),
    )


def renewed(index: NameIndex[NamedRow], kind: type[NamedRow], change: Change) -> NameIndex[NamedRow]:
    if all(changed is not kind for changed, _ in change):
        return index
    return index_of(index.kind, rows_after(index.rows, kind, change).values())


def rows_after(rows: Mapping[str, AnyRow], kind: type[AnyRow], change: Change) -> Mapping[str, AnyRow]:
    if all(changed is not kind for changed, _ in change):
        return rows
    after = dict(rows)
    for (changed, key), row in change.items():
        if changed is kind and row is None:
            del after[key]
        elif isinstance(row, kind):
            after[key] = row
    return after


def of_kind(rows: Iterable[Row], kind: type[AnyRow]) -> list[AnyRow]:
    return [row for row in rows if isinstance(row, kind)]


def rows_by_key(rows: Iterable[AnyRow], duplicate: str) -> dict[str, AnyRow]:
    """Rows of one kind by key, in the order of the keys; the text begins the refusal of two with one key."""
    found: dict[str, AnyRow] = {}
    for row in rows:
        key = key_of(row)
        if key in found:
            raise UnsoundFact(f"{duplicate} {key}")
        found[key] = row
    return dict(sorted(found.items()))


def changed_of(change: Change, kind: type[AnyRow]) -> dict[str, AnyRow | None]:
    return {key: row if isinstance(row, kind) else None for (changed, key), row in change.items() if changed is kind}


def digests_of(rows: Iterable[Row]) -> dict[Key, bytes]:
    """A digest of each row, in the order of the digests: a later change leaves little to sort."""
    digests = {(type(row), key_of(row)): digest_of(row) for row in rows}
    return {key: digests[key] for key in sorted(digests, key=digests.__getitem__)}


def digest_of(row: Row) -> bytes:
    """Digest of a row's facts; for a custom row also of its owner and scope, because answers name them."""
    origin = "" if row.owner == SHIPPED else f" {row.owner!r} {row.scope}"
    return sha256(f"{row!r}{origin}".encode()).digest()


def forms_of_row(row: Row) -> tuple[str, ...]:
    """Every name of a row in normal form; none where only its key finds it."""
    if isinstance(row, PriceRow | RegionRow | CalibrationRow):
        return ()
    named = (name for names in names_of(row).values() for name in names)
    return forms_of(row.slug, *named, *getattr(row, "default_for", ()))


def revision_of(digests: Mapping[Key, bytes]) -> str:
    """Digest of a set of rows."""
    return sha256(b"".join(sorted(digests.values()))).hexdigest()[:12]


def names_of(row: Named) -> Mapping[str, tuple[str, ...]]:
    """Every name of a row, beside its slug."""
    return {
        "name": (row.name,),
        "aliases": getattr(row, "aliases", ()),
        "hugging_face_id": (row.hugging_face_id,) if isinstance(row, ModelRow) and row.hugging_face_id else (),
    }


def gpus_of(row: Row) -> tuple[str, ...]:
    if isinstance(row, ClusterRow):
        return (row.cluster.gpu,)
    if isinstance(row, PriceRow | CalibrationRow):
        return (row.gpu,)
    return tuple(rate.gpu for rate in row.rates) if isinstance(row, RateCardRow) else ()


def find_region(regions: Mapping[str, RegionRow], name: str, field: str) -> Found[RegionRow]:
    """The region that a name means; a machine's region needs its cloud, because clouds share names."""
    form = name.casefold()
    row = regions.get(name) or next((row for row in regions.values() if form in names_of_region(row)), None)
    if row is not None:
        return Found(row, None)
    near = nearest(form, [row.slug for row in regions.values()])
    some = (
        "known are, for example, gcp:us-central1, aws:us-east-1, azure:eastus, USA or world; GET /v1/regions lists all"
    )
    message = f"the catalogue holds no region {quoted(name)}, so nothing is known of its electricity"
    fix = f"{did_you_mean(near) or some + ';'} or give grid_kg_co2e_per_kwh"
    raise UnknownName(Problem(field=field, code="unknown_region", message=message, fix=fix))


def names_of_region(row: RegionRow) -> tuple[str, ...]:
    """Every name of a region, in normal form."""
    names = (row.slug, *row.aliases, *(() if row.kind == "cloud-region" else (row.name,)))
    return tuple(name.casefold() for name in names)
