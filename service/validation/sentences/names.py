"""Names of models and machines in a sentence, as far as its words reach."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service.catalogue import Catalogue, GpuRow, ModelRow
from service.catalogue.indexes import NameIndex, normal
from service.catalogue.machines import machine_named

NAME_WORD = re.compile(r"[^\s,;:()\[\]{}\"'!?*=]+")
MOST_WORDS = 6
"""Words of the longest name, as in NVIDIA RTX PRO 6000 Blackwell Server Edition."""
GAP = re.compile(r" |:(?=\S)|")
LEAST_LETTERS = 3
"""Letters of a word that may belong to a GPU's name without digits, as in pcie; shorter ones may be any word."""
QUALIFIERS = frozenset({"gb", "g"})
BARE_GPU = re.compile(r"[2-5]0[5-9]0", re.ASCII)
"""A GeForce by its number alone."""
NUMBERED = re.compile(r"[a-z]+-?\d", re.ASCII)
"""A word of a GPU's name that tells it from others: letters, then a number."""
PIECE = re.compile(r"\d+x\d+(?:\.\d+)?b(?![a-z])|\d+(?:\.\d+)?[bm](?![a-z])|\d+(?:\.\d+)*|[a-z]+")
"""A word of a model's name: letters, a version, or a size with its unit."""
SIZE = re.compile(r"\d+x\d+(?:\.\d+)?b|\d+(?:\.\d+)?[bm]")
ALIKE = 1.15
"""Ratio of parameter counts up to which models without a stated size are one choice. Source: a choice; releases of one
size differ by less, as Mistral 7B v0.1 and v0.3."""


@dataclass(frozen=True, slots=True)
class Match:
    """A name in a sentence: where it ends, the row that it means, and others that it may mean."""

    end: int
    slug: str
    others: tuple[str, ...] = ()
    is_sure: bool = True
    kind: str = "gpu"
    """gpu, preset, or machine for a cloud's machine without a preset."""
    per_node: int | None = None
    is_plural: bool = False


def runs(text: str, at: int) -> Iterator[tuple[int, str]]:
    """The ends and texts of up to so many words from a place, the longest first."""
    ends: list[int] = []
    place = at
    while len(ends) < MOST_WORDS and (word := NAME_WORD.match(text, place)):
        ends.append(word.end())
        gap = GAP.match(text, word.end())
        if gap is None or gap.end() == word.end():
            break
        place = gap.end()
    for end in reversed(ends):
        trimmed = text[at:end].rstrip(".")
        yield at + len(trimmed), trimmed


def machine_at(text: str, at: int, catalogue: Catalogue) -> Match | None:
    """The longest name of a GPU, a cloud's machine or a cluster preset at a place."""
    for end, name in runs(text, at):
        for form, is_plural in ((name, False), (name[:-1], True)) if name[-1:] == "s" else ((name, False),):
            match = _machine(form, catalogue)
            if match is not None:
                return Match(end, *match, is_plural=is_plural)
    return None


def machine_named_in(name: str, catalogue: Catalogue) -> Match | None:
    """The machine that a whole name means."""
    match = _machine(name, catalogue)
    return Match(len(name), *match) if match is not None else None


def _machine(name: str, catalogue: Catalogue) -> tuple[str, tuple[str, ...], bool, str, int | None] | None:
    form = normal(name)
    presets = catalogue.cluster_index.slugs.get(form, ())
    machine = machine_named(name)
    if presets and (machine is not None or form not in catalogue.gpu_index.slugs):
        row = catalogue.clusters[presets[0]].cluster
        return presets[0], (), True, "preset", row.gpus
    if machine is not None:
        return machine.gpu, (), True, "machine", machine.gpus
    chosen, slugs = _gpus(name, form, catalogue.gpu_index)
    if not slugs:
        return None
    best = chosen or next((slug for slug in slugs if "sxm" in slug), slugs[0])
    return best, tuple(slug for slug in slugs if slug != best), bool(chosen), "gpu", None


def _gpus(name: str, form: str, index: NameIndex[GpuRow]) -> tuple[str, tuple[str, ...]]:
    """The GPU that a name means, empty where it is none of several, and all that it may mean."""
    if form not in index.slugs:
        words = name.casefold().split()
        if not any(NUMBERED.match(word) or BARE_GPU.fullmatch(word) for word in words):
            return "", ()
        if any(len(word) < LEAST_LETTERS and word.isalpha() and word not in QUALIFIERS for word in words):
            return "", ()
    sized = re.sub(r"\b(\d{2,3} ?)g\b", r"\1gb", name, flags=re.IGNORECASE)
    return index.meant(re.sub(r"(?<=\d)-(\d{2,3})$", r"-\1gb", sized))


def pieces(text: str) -> tuple[str, ...]:
    """The words of a model's name.

    >>> pieces("Qwen2.5 72B"), pieces("mixtral-8x7b"), pieces("DeepSeek-V3")
    (('qwen', '2.5', '72b'), ('mixtral', '8x7b'), ('deepseek', 'v', '3'))
    """
    return tuple(PIECE.findall(text.casefold()))


def size_of(words: Sequence[str]) -> str | None:
    """The size among the words of a name, as 8b."""
    return next((word for word in words if SIZE.fullmatch(word)), None)


class ModelNames:
    """The models of a catalogue by the words of their names."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._index = catalogue.model_index
        self._words = {
            slug: frozenset((*pieces(slug), *pieces(row.name)))
            for slug, row in catalogue.models.items()
            if row.model is not None
        }
        self._families = {pieces(slug)[0] for slug in self._words}

    def exact_at(self, text: str, at: int) -> Match | None:
        """The longest name of one model at a place."""
        first = NAME_WORD.match(text, at)
        begun = pieces(first[0][:40]) if first else ()
        if first is None or not ("/" in first[0] or "-" in first[0] or (begun and begun[0] in self._begins())):
            return None
        for end, name in runs(text, at):
            chosen, slugs = self._index.meant(name)
            if (chosen or slugs) and (chosen or slugs[0]) in self._words:
                return Match(end, chosen or slugs[0], tuple(one for one in slugs if one != chosen), bool(chosen))
        return None

    def _begins(self) -> set[str]:
        return self._families | {"meta"}

    def family_at(self, text: str, at: int) -> tuple[int, tuple[str, ...]] | None:
        """The words of a family's name at a place, as far as some model has all of them."""
        word = NAME_WORD.match(text, at)
        begun = pieces(word[0][:40]) if word else ()
        if not begun or begun[0] not in self._families:
            return None
        for end, name in runs(text, at):
            words = pieces(name)
            if words and self.with_words(words):
                return end, words
        return None

    def with_words(self, words: Sequence[str]) -> list[str]:
        """The models whose names have all of these words, the smallest first."""
        slugs = [slug for slug, own in self._words.items() if own.issuperset(words)]
        return sorted(slugs, key=lambda slug: (_total(self._index.rows[slug]), slug))

    def chosen(self, words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """The newest model of these words, and the others; the first is empty where their sizes differ.

        A size without a family means the newest Llama of it, else the first model of it: dense models of one size take
        about as much.
        """
        slugs = self.with_words(words)
        if not slugs:
            return "", ()
        rows = self._index.rows
        totals = [_total(rows[slug]) for slug in slugs]
        if not any(word.isalpha() for word in words):
            slugs.sort(key=lambda slug: not slug.startswith("llama"))
            best = _newest([rows[slug] for slug in slugs if slug.startswith("llama")]) or slugs[0]
        elif max(totals) > ALIKE * min(totals):
            return "", tuple(slugs)
        else:
            best = _newest([rows[slug] for slug in slugs])
        return best, tuple(slug for slug in slugs if slug != best)


def _newest(rows: Sequence[ModelRow]) -> str:
    return max(rows, key=lambda row: (row.release or "", row.slug)).slug if rows else ""


def _total(row: ModelRow) -> float:
    return float(row.exact.total if row.exact else row.published.total if row.published else 1)
