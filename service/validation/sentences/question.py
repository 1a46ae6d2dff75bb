"""A sentence as a question in plain JSON, with what was understood, assumed and not understood of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from service.answers.ask import Chip, ChipChoice, ChipState, LimitName
from service.catalogue import Catalogue
from service.errors import Problem, Refused, did_you_mean, nearest, quoted
from service.estimator.rule import divisors
from service.validation.quantities import number_of
from service.validation.sentences.grammar import LONGEST, NODE_PRICE, TAKEN_AS_TOKENS, WHOLE_PRICE, Part, Sentence
from service.validation.sentences.names import pieces, size_of
from service.validation.understanding import Understood

EXAMPLE = "llama 3.1 8b, 200B tokens, 64xH100, $2.50/h"

USUAL_SEQUENCE, TUNED_SEQUENCE = 8192, 4096
"""Tokens of a sequence of pretraining and of fine-tuning where a sentence says none; fewer for a model with fewer
positions. Source: Llama 3, arXiv:2407.21783, section 3.4.1, before its context is extended; Llama 2, arXiv:2307.09288,
section 3.1."""

USUAL_BATCH_TOKENS, TUNED_BATCH = 1 << 22, 64
"""Tokens of a step of pretraining, and sequences of one of fine-tuning, where a sentence says none. Source: Llama 2,
table 1 and section 3.1."""
MOST_BATCH_TOKENS = 1 << 24
"""Most tokens of such a step, however many GPUs share it. Source: Llama 3, section 3.4.1, of 16,384 GPUs."""

TUNING = re.compile(r"(?i)fine[ -]?tun|finetun|\bsft\b|\bdpo\b|\brlhf\b|lora|instruct(?:ion)?[ -]tun")
MOST_CHOICES = 8
LIMITS: Mapping[str, LimitName] = {"limits.days": "days", "limits.cost_usd": "cost_usd"}


@dataclass(frozen=True, slots=True)
class ReadSentence:
    """A sentence as a question."""

    chips: tuple[Chip, ...]
    body: dict[str, Any]
    """The question in plain JSON."""
    limits: dict[LimitName, float]
    """Deadline and budget, by the totals that they limit."""


def read_sentence(text: str, catalogue: Catalogue, field: str = "q") -> ReadSentence:
    """Read a sentence as a question; refuse one that names no model or no GPU.

    >>> from service.catalogue import shipped_catalogue
    >>> read_sentence("llama 3.1 8b, 64xH100, seq 8k, gbs 512", shipped_catalogue()).body["cluster"]
    {'gpu': 'h100-sxm5-80gb', 'gpus': 64}
    """
    if len(text) > LONGEST:
        message = f"the sentence has {len(text)} characters, and at most {LONGEST} are read"
        raise Refused(Problem(field, "wrong_length", message, "say what is trained on what, and leave the rest out"))
    sentence = Sentence(text.removeprefix("="), catalogue)
    sentence.read()
    return _Assembly(sentence, field).read()


class _Assembly:
    """The question of a sentence, its parts put together."""

    def __init__(self, sentence: Sentence, field: str) -> None:
        self.sentence = sentence
        self.catalogue = sentence.catalogue
        self.field = field
        self.body: dict[str, Any] = {"model": "", "recipe": {}, "cluster": {}}
        self.chips: list[tuple[int, Chip]] = []
        self.is_tuned = TUNING.search(sentence.text) is not None
        self.replicas = 1

    def read(self) -> ReadSentence:
        problems = [*self._model(), *self._cluster()]
        if problems:
            raise Refused(*problems)
        self._parts()
        self._sequence()
        self._batch()
        self._layout()
        self._price()
        self._derive()
        for part in self.sentence.limits:
            self._chip(part, part.path, part.value)
        for part in self.sentence.unknown:
            self._chip(part, None, None, state="not_understood")
        chips = tuple(chip for _, chip in sorted(self.chips, key=lambda one: one[0]))
        limits = {LIMITS[str(part.path)]: float(part.value) for part in self.sentence.limits}
        return ReadSentence(chips, self.body, limits)

    def _chip(
        self,
        part: Part | None,
        path: str | None,
        value: Any,
        *,
        state: ChipState | None = None,
        note: str | None = None,
        others: Sequence[tuple[Any, str]] = (),
    ) -> None:
        text = self.sentence.words_of(part) if part else ""
        sure = part is not None and part.is_sure
        chip = Chip(
            text=text,
            field=None if path is None else f"/{path.replace('.', '/')}",
            value=value,
            state=state or ("understood" if sure else "assumed"),
            choices=tuple(ChipChoice(value=other, label=label) for other, label in others[:MOST_CHOICES]),
            note=note or (part.note if part else None),
        )
        self.chips.append((part.start if part else LONGEST + len(self.chips), chip))

    def _missing(self, code: str, message: str, fix: str) -> Problem:
        return Problem(self.field, code, message, f"{fix}, as in {EXAMPLE}")

    def _model(self) -> list[Problem]:
        sentence, names = self.sentence, self.sentence.models
        if sentence.model is not None:
            part, found = sentence.model
            alike = [slug for slug in names.with_words(pieces(found.slug)) if slug != found.slug]
            if sentence.size is not None and size_of(pieces(found.slug)) != sentence.size.value:
                self._size_as_tokens(sentence.size)
            slug, others = found.slug, tuple(alike)
        else:
            family, size = sentence.family, sentence.size
            words = (*(family[1] if family else ()), *([size.value] if size else []))
            if not words:
                return [self._no_model()]
            slug, others = names.chosen(words)
            if not slug:
                known = did_you_mean(others[:MOST_CHOICES]) or "GET /v1/models lists all;"
                message = f"{quoted(' '.join(words))} means {len(others) or 'no'} models of the catalogue"
                return [self._missing("unknown_model", message, f"{known} name one")]
            part = replace(family[0] if family else size or Part(0, 0), is_sure=not others)
            part.note = f"the newest of {1 + len(others)} models of these words" if others and family else None
            if others and not family:
                part.note = (
                    "a size alone is taken as the newest Llama of it; dense models of one size take about as much"
                )
            if family and size:
                self._chip(size, "model", slug)
        self.body["model"] = slug
        self._chip(part, "model", slug, others=[(other, self.catalogue.models[other].name) for other in others])
        return []

    def _no_model(self) -> Problem:
        unknown = [self.sentence.words_of(part) for part in self.sentence.unknown if part.note is None]
        known = {*self.catalogue.models}
        near = next((found for one in unknown[:3] if len(one) > 2 and (found := nearest(one, known))), [])
        return self._missing(
            "required", "the sentence names no model of the catalogue", f"{did_you_mean(near)} name one".strip()
        )

    def _size_as_tokens(self, size: Part) -> None:
        """A size beside a model of another one."""
        tokens = number_of("training_tokens", size.value)
        part = replace(size, path="recipe.training_tokens", value=tokens, is_sure=False, note=TAKEN_AS_TOKENS)
        self.sentence.put(part)

    def _cluster(self) -> list[Problem]:
        sentence = self.sentence
        if sentence.machine is None:
            count = sentence.gpus or sentence.nodes
            what = (
                f"says {count.value} {'GPUs' if count is sentence.gpus else 'nodes'}, and not which"
                if count
                else "names no GPU"
            )
            return [self._missing("required", f"the sentence {what}", "name GPUs and their number")]
        part, found = sentence.machine
        per_node = sentence.per_node.value if sentence.per_node else found.per_node
        nodes, total = sentence.nodes, sentence.gpus
        if total is not None and nodes is not None and sentence.per_node is None and total.value % nodes.value == 0:
            per_node = total.value // nodes.value
        gpus = total.value if total else (nodes.value if nodes else 1) * (per_node or (8 if nodes else 0))
        assumed = gpus or (8 if found.is_plural else 1)
        cluster = {"preset" if found.kind == "preset" else "gpu": found.slug, "gpus": assumed}
        if per_node and (sentence.per_node or found.kind == "machine" or (nodes and total)):
            cluster["gpus_per_node"] = per_node
        self.body["cluster"] = cluster
        path = "cluster.preset" if found.kind == "preset" else "cluster.gpu"
        rows = self.catalogue.gpus
        others = [(slug, rows[slug].name) for slug in found.others if slug in rows]
        note = f"it may also mean {' or '.join(label for _, label in others)}" if others else None
        self._chip(part, path, found.slug, others=others, note=note)
        for number, name in ((total, "gpus"), (sentence.per_node, "gpus_per_node"), (nodes, "gpus")):
            if number is not None and name in cluster:
                self._chip(
                    number,
                    f"cluster.{name}",
                    cluster[name],
                    note=None if number is not nodes else f"nodes of {per_node or 8} GPUs",
                )
        if not gpus:
            counts = [(count, f"{count} GPUs") for count in (1, 8, 16, 64) if count != assumed]
            self._chip(
                None,
                "cluster.gpus",
                assumed,
                note="one where the sentence says no number; a node of 8 for several",
                others=counts,
            )
        return []

    def _parts(self) -> None:
        """Put the parts that are fields into the question."""
        for part in self.sentence.parts:
            section, _, name = str(part.path).partition(".")
            if part.path in LATER or section == "price":
                continue
            if part.path == "recipe.method.rank":
                method = self._given("recipe.method")
                self.body["recipe"]["method"] = {"name": method or "lora", "rank": part.value}
            elif not (part.path == "recipe.method" and isinstance(self.body["recipe"].get("method"), dict)):
                self.body.setdefault(section, {})[name] = part.value
            self._chip(part, part.path, part.value, others=[(other, str(other)) for other in part.others])

    def _given(self, path: str) -> Any:
        return next((part.value for part in self.sentence.parts if part.path == path), None)

    def _part(self, path: str) -> Part | None:
        return next((part for part in self.sentence.parts if part.path == path), None)

    def _sequence(self) -> None:
        layout = self.body.get("layout", {})
        ranks = 1
        for axis in ("tensor", "context", "pipeline"):
            ranks *= layout.get(axis, 1)
        self.replicas = layout.get("data") or max(1, self.body["cluster"]["gpus"] // ranks)
        if "sequence_length" in self.body["recipe"]:
            return
        row = self.catalogue.models[self.body["model"]]
        positions = (row.model.max_position_embeddings if row.model else None) or USUAL_SEQUENCE
        most = TUNED_SEQUENCE if self.is_tuned else USUAL_SEQUENCE
        self.body["recipe"]["sequence_length"] = min(positions, most)
        note = f"the model's {positions:,} positions, at most {most:,} where the sentence says no length"
        lengths = [
            (length, f"{length:,} tokens") for length in (2048, 4096, 8192, 32768, 131072) if length <= positions
        ]
        lengths = [one for one in lengths if one[0] != min(positions, most)]
        self._chip(None, "recipe.sequence_length", min(positions, most), note=note, others=lengths)

    def _batch(self) -> None:
        recipe = self.body["recipe"]
        length = recipe["sequence_length"]
        plain, tokens = self._part("recipe.batch_size"), self._part("recipe.global_batch_tokens")
        if plain is not None:
            is_global = not self.is_tuned and plain.value % self.replicas == 0 and "global_batch" not in recipe
            name, other = ("global_batch", "micro_batch") if is_global else ("micro_batch", "global_batch")
            recipe[name], plain.is_sure = plain.value, False
            note = f"a batch may be of all GPUs or of one; it is taken as {name}, {other} {plain.value} says the other"
            self._chip(plain, f"recipe.{name}", plain.value, note=note)
        if tokens is not None:
            self._batch_of_tokens(tokens, length)
        if "global_batch" in recipe or self._part("recipe.gradient_accumulation_steps"):
            return
        micro = recipe.get("micro_batch", 1)
        most = max(1, MOST_BATCH_TOKENS // (length * micro))
        least = micro * max(one for one in divisors(self.replicas) if one <= most)
        wanted = TUNED_BATCH if self.is_tuned else USUAL_BATCH_TOKENS / length
        recipe["global_batch"] = max(1, ceil(wanted / least)) * least
        what = (
            f"{TUNED_BATCH} sequences of fine-tuning"
            if self.is_tuned
            else f"{USUAL_BATCH_TOKENS:,} tokens of pretraining"
        )
        note = f"the usual {what}, as a multiple of {least:,}, which the GPUs share evenly"
        self._chip(None, "recipe.global_batch", recipe["global_batch"], note=note)

    def _batch_of_tokens(self, part: Part, length: int) -> None:
        """A batch in tokens as sequences: exactly where a reading of it allows, else a round number near it."""
        micro = self.body["recipe"].get("micro_batch", 1)
        readings = [part.value, *part.others]
        exact = next((one for one in readings if one % (length * micro) == 0), None)
        sequences = readings[-1] / length
        unit = max(micro, 1 << max(0, int(sequences / 8).bit_length() - 1))
        batch = exact // length if exact else max(1, round(sequences / unit)) * unit
        self.body["recipe"]["global_batch"] = batch
        part.is_sure = exact is not None
        part.note = None if exact else f"the nearest multiple of {unit} sequences of {length:,} tokens"
        self._chip(part, "recipe.global_batch", batch)

    def _layout(self) -> None:
        """Leave what the sentence does not say of the layout to the planner."""
        pins = self.body.pop("layout", {})
        self.body["layout"] = {"auto": True, **pins}
        note = "planned: the fastest layout, micro-batch and recomputation that fit" + (
            ", with what is given" if pins else ""
        )
        self._chip(None, "layout.auto", self.body["layout"]["auto"], note=note)

    def _price(self) -> None:
        given = next((part for part in self.sentence.parts if part.path in RATES), None)
        terms = self._part("price.price_model")
        if given is not None:
            cluster = self.body["cluster"]
            sharing = {NODE_PRICE: min(cluster.get("gpus_per_node", 8), cluster["gpus"]), WHOLE_PRICE: cluster["gpus"]}
            value = round(given.value / sharing.get(str(given.path), 1), 6)
            self.body["price"] = {"usd_per_gpu_hour": value, **({"price_model": terms.value} if terms else {})}
            self._chip(given, "price.usd_per_gpu_hour", value)
            if self.sentence.provider is not None:
                self._chip(
                    self.sentence.provider,
                    None,
                    None,
                    note="the sentence has a price, so the cloud's own does not count",
                )
        elif self.sentence.provider is not None:
            self._catalogue_price(self.sentence.provider, terms)
        elif terms is not None and (cloud := self._cloud_of_machine()):
            self._catalogue_price(cloud, terms)
        elif terms is not None:
            self._chip(
                terms,
                None,
                None,
                state="not_understood",
                note="terms need a price or a cloud; write on aws, or $2.50/h",
            )
            return
        if terms is not None and "price" in self.body:
            self._chip(terms, "price.price_model", terms.value)

    def _cloud_of_machine(self) -> Part | None:
        """The cloud that rents out the machine of the sentence."""
        if self.sentence.machine is None:
            return None
        part = self.sentence.machine[0]
        name = self.sentence.words_of(part).casefold()
        provider = next((row.provider for row in self.catalogue.prices if row.instance_type.casefold() == name), None)
        return Part(part.start, part.end, "price.provider", provider) if provider else None

    def _catalogue_price(self, provider: Part, terms: Part | None) -> None:
        """The newest price of a cloud: of the region that the sentence names, else of the first."""
        machine = self.body["cluster"]
        gpu = machine.get("gpu") or self.catalogue.clusters[machine["preset"]].cluster.gpu
        model = terms.value if terms else "on-demand"
        rows = [row for row in self.catalogue.price_index.offered_by(gpu, provider.value) if row.price_model == model]
        regions = list(dict.fromkeys(row.region for row in rows))
        if not regions:
            note = f"the catalogue has no {model} price of {gpu} there; write e.g. $2.50/h"
            self._chip(provider, None, None, state="not_understood", note=note)
            return
        words_of = self.sentence.words_of
        named = next((part for part in self.sentence.unknown if words_of(part).casefold() in regions), None)
        region = words_of(named).casefold() if named else regions[0]
        self.body["price"] = {"provider": provider.value, "region": region, "price_model": model}
        self._chip(provider, "price.provider", provider.value)
        if named is not None:
            self.sentence.unknown.remove(named)
        others = [(other, other) for other in regions if other != region]
        self._chip(
            named,
            "price.region",
            region,
            others=[] if named else others,
            note=None if named else "the first region of the catalogue",
        )
        if terms is None:
            self._chip(None, "price.price_model", model, note="the price without a commitment")

    def _derive(self) -> None:
        """Fields that follow from steps and accumulation."""
        derived = {"recipe.max_steps": "training_tokens", "recipe.gradient_accumulation_steps": "global_batch"}
        counts = [(part, name) for path, name in derived.items() if (part := self._part(path)) is not None]
        if not counts:
            return
        extra = {str(part.path).partition(".")[2]: part.value for part, _ in counts}
        reader = Understood({**self.body, "recipe": {**self.body["recipe"], **extra}})
        reader.read()
        if reader.problems:
            raise reader.refused()
        self.body = reader.body
        for part, name in counts:
            self._chip(part, f"recipe.{name}", self.body["recipe"][name])


RATES = ("price.usd_per_gpu_hour", NODE_PRICE, WHOLE_PRICE)
LATER = frozenset(
    {"recipe.batch_size", "recipe.global_batch_tokens", "recipe.max_steps", "recipe.gradient_accumulation_steps"}
)
"""Parts that follow from others."""
