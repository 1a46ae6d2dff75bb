"""Names of rows: slugs, aliases and Hugging Face ids, independent of capitals and separators."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar
from unicodedata import normalize

from service.catalogue.provenance import UnsoundFact
from service.errors import Problem, UnknownName, did_you_mean, nearest

PROVIDERS = ("aws", "azure", "coreweave", "crusoe", "gcp", "lambda", "nebius", "oci", "runpod")
"""Optional words before a machine type."""

SEPARATORS = re.compile(r"[^a-z0-9.+]+")
"""Separators of the words of a name."""

NAMES_IN_MEMORY = 8192
"""Cached normal forms. Source: a choice; five times those that ship."""

Row = TypeVar("Row")


class Found(NamedTuple, Generic[Row]):
    """A row, and the assumptions of the choice."""

    row: Row
    assumption: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[Row]):
    """A row under its names."""

    slug: str
    aliases: tuple[str, ...]
    """Other names."""
    default_for: tuple[str, ...] = ()
    """Shared names that mean this row by default."""
    row: Row


@dataclass(frozen=True, slots=True)
class NameIndex(Generic[Row]):
    """Every name of one kind of row."""

    kind: str
    """model, gpu, cluster or rate_card, for error messages."""
    rows: Mapping[str, Row]
    """Rows by slug."""
    slugs: Mapping[str, tuple[str, ...]]
    """Slugs by normal form of a name; several where a name is shared."""
    run_together: Mapping[str, tuple[str, ...]]
    """The same without any separator: llama27b, but not llama-27b, is Llama 2 7B."""
    defaults: Mapping[str, tuple[str, str]]
    """The shared name as people write it and its slug, by its normal form."""

    @classmethod
    def of(cls, kind: str, entries: Iterable[Entry[Row]]) -> "NameIndex[Row]":
        """The index of some rows."""
        rows: dict[str, Row] = {}
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
        return cls(kind, rows, {form: tuple(slugs) for form, slugs in named.items()}, _run_together(named), defaults)

    def find(self, name: str, field: str) -> Found[Row]:
        """The row that a name means."""
        form = normal(name)
        slugs = self.slugs.get(form, ())
        if not slugs and not SEPARATORS.search(normalize("NFKC", name).casefold()):
            slugs = self.run_together.get(form, ())
        if len(slugs) == 1:
            return Found(self.rows[slugs[0]], None)
        if form in self.defaults:
            spelled, slug = self.defaults[form]
            others = " or ".join(other for other in slugs if other != slug)
            return Found(self.rows[slug], f"{self.kind} {spelled} is taken as {slug}; it could also mean {others}")
        raise UnknownName(self._unknown(name, field, slugs))

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
            message = f"this name means {len(candidates)} different {self.kind} rows of the catalogue"
        else:
            message = f"the catalogue holds no {self.kind.replace('_', ' ')} of this name"
        near = list(candidates) or self._nearest(name)
        some = f"known are, for example, {self._examples()}" if self.rows else "there is none yet; create one by POST"
        fix = did_you_mean(near) or some
        return Problem(field=field, code=f"unknown_{self.kind}", message=message, fix=fix)

    def _nearest(self, name: str) -> list[str]:
        forms = nearest(normal(name), self.slugs, most=6)
        return list(dict.fromkeys(slug for form in forms for slug in self.slugs[form]))[:3]

    def _examples(self) -> str:
        return ", ".join(list(self.rows)[:: max(1, len(self.rows) // 5)][:5])


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


def _run_together(named: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    forms: dict[str, tuple[str, ...]] = {}
    for form, slugs in named.items():
        bare = form.replace("-", "")
        forms[bare] = tuple(dict.fromkeys((*forms.get(bare, ()), *slugs)))
    return forms
