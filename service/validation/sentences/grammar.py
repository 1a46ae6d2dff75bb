"""The grammar of sentences: at each word the first rule that matches reads as much as it can, in linear time."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from service.catalogue import Catalogue
from service.validation.quantities import Ambiguous, number_of
from service.validation.sentences.names import Match, ModelNames, machine_at, machine_named_in, pieces, runs, size_of
from service.validation.sentences.patterns import (
    CLOUD,
    CLOUDS,
    COUNT_AFTER,
    COUNTS,
    DEADLINE,
    DECIMAL_COMMA,
    LARGEST_NODE,
    MONEY,
    NEGATION,
    NODE_TIMES,
    NODES_OF,
    OF_NODES,
    PER_NODE,
    QUALIFIER,
    SIZE_ALONE,
    SOME_GPUS,
    SOME_NODES,
    TIMES,
    TOKENS,
    Choice,
    bare,
    path_of,
    words,
)
from service.validation.understanding import option_of

LONGEST = 500
"""Characters of a sentence."""

SAME_LENGTH = str.maketrans("\u00d7\u2010\u2011\u2013\u00a0\t\n\r", "x---  ; ")
"""Letters of prose by those of the grammar, one for one, so that places stay."""
GAPS = re.compile(r"[\s,;()\[\]{}\"'!?|.:/-]*", re.ASCII)
WORD = re.compile(r"[^\s,;()\[\]{}\"'!?|]+")
MOST_CHOICE_WORDS = 4
CHOICE_WORD = re.compile(r"[^\s,;:()\[\]{}\"'!?*=]+")
SHORTEST_SEQUENCE = 16
"""Tokens below which a number beside a sequence is another one. Source: a choice."""
LEAST_TRAINED = 1e6
"""Tokens below which a number of them is a sequence. Source: a choice; no run is shorter than a step."""
MOST_RATE = 100.0
"""Dollars up to which an amount without more words is a price [USD/GPU-h]. Source: a choice; no run costs so little."""
TAKEN_AS_TOKENS = "a number beside a model is taken as tokens"
NODE_PRICE, WHOLE_PRICE = "price.usd_per_node_hour", "price.usd_per_hour"
"""Prices of a node and of all GPUs, which are of no field."""


@dataclass(slots=True)
class Part:
    """A part of the sentence, and the field and value that it means."""

    start: int
    end: int
    path: str | None = None
    value: Any = None
    others: tuple[Any, ...] = ()
    is_sure: bool = True
    note: str | None = None


@dataclass(slots=True)
class Sentence:
    """A sentence, read from its start to its end."""

    text: str
    catalogue: Catalogue
    parts: list[Part] = field(default_factory=list)
    """What is understood, in order; several parts may share letters."""
    unknown: list[Part] = field(default_factory=list)
    """What is not understood, with the reason where one is known."""
    machine: tuple[Part, Match] | None = None
    gpus: Part | None = None
    nodes: Part | None = None
    per_node: Part | None = None
    model: tuple[Part, Match] | None = None
    family: tuple[Part, tuple[str, ...]] | None = None
    """Words of a model's name that name several models."""
    size: Part | None = None
    """The size of a model beside its family, or alone."""
    provider: Part | None = None
    limits: list[Part] = field(default_factory=list)
    _view: str = ""
    """The sentence with single spaces, in the letters of the grammar."""
    _places: list[int] = field(default_factory=list)
    """Where each of its letters stands in the sentence."""
    _priced: int = 0
    """Where the price names its GPU."""
    models: ModelNames = field(init=False)

    def words_of(self, part: Part) -> str:
        """The letters of the sentence from which a part was read."""
        return self.text[self._places[part.start] : self._places[part.end - 1] + 1]

    def read(self) -> None:
        view = self.text.translate(SAME_LENGTH)
        self._places = [at for at, letter in enumerate(view) if letter != " " or view[at - 1 : at] != " "]
        self._view = "".join(view[at] for at in self._places)
        self.models = ModelNames(self.catalogue)
        at = self._after_gap(0)
        while at < len(self._view):
            end = next((end for rule in RULES if (end := rule(self, at)) is not None), None)
            if end is None:
                end = self._skip(at)
            at = max(self._after_gap(end), at + 1)
        if self.machine is None and self._priced and (found := machine_at(self._view, self._priced, self.catalogue)):
            self._machine(self._priced, found)

    def _after_gap(self, at: int) -> int:
        gap = GAPS.match(self._view, at)
        return gap.end() if gap else at

    def _skip(self, at: int) -> int:
        word = WORD.match(self._view, at)
        end = word.end() if word else at + 1
        while end > at + 1 and self._view[end - 1] in ".:":
            end -= 1
        if self._view[at:end].casefold() not in words().fillers:
            self.not_understood(at, end)
        return end

    def not_understood(self, start: int, end: int, reason: str | None = None) -> None:
        last = self.unknown[-1] if self.unknown else None
        if last and reason is None and last.note is None and not self._view[last.end : start].strip(" "):
            last.end = end
        else:
            self.unknown.append(Part(start, end, note=reason))

    def put(self, part: Part) -> None:
        """Add what a part means; a part that contradicts an earlier one is not understood."""
        given = next((one for one in self.parts if one.path == part.path), None)
        if given is not None and part.is_sure and not given.is_sure:
            self.parts.remove(given)
            self.not_understood(given.start, given.end, f"{part.path} is stated elsewhere")
            self.parts.append(part)
        elif given is not None and given.value != part.value:
            self.not_understood(
                part.start, part.end, f"{part.path} is {given.value} already; one question has one value"
            )
        else:
            self.parts.append(part)

    # The rules, each at the start of a word: the end of what it reads, or None where it does not apply.

    def money(self, at: int) -> int | None:
        match = MONEY.match(self._view, at)
        if match is None:
            return None
        amount = re.sub(r"[^\d.e]", "", match["dollars"] or match["usd"] or match["plain"])
        scale = (match["scale"] or "").strip().lower()[:1]
        value = float(amount) * {"k": 1e3, "t": 1e3, "m": 1e6, "b": 1e9}.get(scale, 1)
        if match["gpu"]:
            self._priced = self._priced or match.start("gpu")
        if match["per"]:
            part = Part(at, match.end(), "price.usd_per_gpu_hour", value)
            if match["budget"]:
                part.path, part.note = WHOLE_PRICE, "the price of all GPUs, divided by their number"
            elif match["machine"] or match["node"]:
                part.path, part.note = NODE_PRICE, "the price of a node, divided by its GPUs"
            self.put(part)
        elif match["limit"] or match["budget"] or match["scale"]:
            self.limits.append(Part(at, match.end(), "limits.cost_usd", value))
        elif value <= MOST_RATE:
            note = "so few dollars are the price of a GPU-hour"
            self.put(Part(at, match.end(), "price.usd_per_gpu_hour", value, is_sure=False, note=note))
        else:
            self.not_understood(at, match.end(), "write $3/h for the price of a GPU-hour, or under $3000 for a budget")
        return match.end()

    def decimal_comma(self, at: int) -> int | None:
        match = DECIMAL_COMMA.match(self._view, at)
        if match is None:
            return None
        reason = "a comma stands between thousands or parts; write decimals with a point, and a space after a comma"
        self.not_understood(at, match.end(), reason)
        return match.end()

    def deadline(self, at: int) -> int | None:
        match = DEADLINE.match(self._view, at)
        if match is None or not (match["limit"] or match["most"]):
            return None
        number = str(COUNTS.get(match["number"].lower(), match["number"]))
        days = (
            30 * float(number)
            if match["unit"].lower().startswith("month")
            else number_of("days", f"{number} {match['unit'].lower()}")
        )
        if days is None:
            return None
        self.limits.append(Part(at, match.end(), "limits.days", days))
        return match.end()

    def reasons(self, at: int) -> int | None:
        for pattern, reason in words().reasons:
            match = pattern.match(self._view, at)
            if match:
                self.not_understood(at, match.end(), reason)
                return match.end()
        return None

    def phrases(self, at: int) -> int | None:
        for pattern, choice, unless in words().phrases:
            match = pattern.match(self._view, at)
            if match and not (unless and unless.search(self._view)):
                self.put(Part(at, match.end(), choice.path, choice.value, choice.others, not choice.others))
                return match.end()
        return None

    def negation(self, at: int) -> int | None:
        match = NEGATION.match(self._view, at)
        if match is None:
            return None
        start, end = match.span("word")
        choice = self._choice_at(start)
        if choice or self._view[start:end].casefold() not in words().fillers:
            end = choice[0] if choice else end
            self.not_understood(at, end, "what is not used is left out, but for no recompute")
        return end

    def machines(self, at: int) -> int | None:
        """GPUs with their number, in every order: 64xH100, 8 nodes of 8 H100, H100 x 64, 64 GPUs."""
        view = self._view
        for pattern in (NODES_OF, NODE_TIMES, TIMES):
            match = pattern.match(view, at)
            found = machine_at(view, match.end(), self.catalogue) if match else None
            if match and found:
                return self._counted(match, found)
        found = machine_at(view, at, self.catalogue)
        if found is not None:
            return self._uncounted(at, found)
        for pattern, name in ((PER_NODE, "per_node"), (SOME_GPUS, "gpus"), (SOME_NODES, "nodes")):
            match = pattern.match(view, at)
            if match:
                self._number(name, match, "count")
                return match.end()
        return None

    def _counted(self, match: re.Match[str], found: Match) -> int:
        groups = match.groupdict()
        tail = OF_NODES.match(self._view, found.end)
        count = _count_of(groups["count"])
        if not self._machine(match.end(), found):
            return found.end
        if groups.get("nodes"):
            self._number("nodes", match, "nodes")
            is_total = count > LARGEST_NODE and _count_of(groups["nodes"]) > 0 and groups.get("each") is None
            self._number("gpus" if is_total else "per_node", match, "count")
        elif found.per_node is not None or (tail and not _is_of_one_node(groups, tail, count)):
            self._number("nodes", match, "count")
        elif tail:
            self._number("per_node", match, "count")
        else:
            self._number("gpus", match, "count")
        return tail.end() if tail else found.end

    def _uncounted(self, at: int, found: Match) -> int:
        if not self._machine(at, found):
            return found.end
        after = COUNT_AFTER.match(self._view, found.end)
        if after:
            self._number("nodes" if found.per_node else "gpus", after, "count")
            return after.end()
        return found.end

    def _machine(self, at: int, found: Match) -> bool:
        part = Part(at, found.end, found.kind, found.slug, found.others, found.is_sure)
        if self.machine is not None and self.machine[1].slug != found.slug:
            reason = "one question has one kind of GPU; POST /v1/compare compares several"
            self.not_understood(at, found.end, reason)
            return False
        if self.machine is None:
            self.machine = part, found
        return True

    def _number(self, name: str, match: re.Match[str], group: str) -> None:
        count = _count_of(match[group])
        others = (1000 * count // 1024,) if match[group][-1:] in "kK" else ()
        part = Part(*match.span(group), name, count, others, not others)
        given: Part | None = getattr(self, name)
        if not count:
            self.not_understood(part.start, part.end, "a number of GPUs or nodes is at least 1")
        elif given is not None and given.value != part.value:
            self.not_understood(part.start, part.end, f"{name} is {given.value} already; one question has one value")
        elif given is None:
            setattr(self, name, part)

    def qualifier(self, at: int) -> int | None:
        """The memory or form of the GPU that is named, which may tell it from others of its name."""
        match = QUALIFIER.match(self._view, at)
        if match is None or self.machine is None:
            return None
        part, found = self.machine
        more = match["form"] or f"{match['size']}gb"
        name = self._view[part.start : found.end - found.is_plural]
        narrower = machine_named_in(f"{name} {more}", self.catalogue)
        gpu = self.catalogue.gpus.get(found.slug)
        if narrower is not None:
            self.machine = part, replace(narrower, end=found.end, is_plural=found.is_plural)
            part.value, part.others, part.is_sure = narrower.slug, narrower.others, narrower.is_sure
        elif gpu is None or match["form"] or not 0.9 <= gpu.gpu.memory_bytes / (float(match["size"]) * 1e9) <= 1.12:
            self.not_understood(at, match.end(), f"no {found.slug} has it; GET /v1/gpus lists all")
        return match.end()

    def named(self, at: int) -> int | None:
        """A field by its name, before or after its number."""
        match = words().before.match(self._view, at)
        name = match["name"] if match else ""
        if match is None:
            match = words().after.match(self._view, at)
            name = (match["name"] or match["of"] or match["axis"]) if match else ""
        if match is None:
            return None
        path = words().names[bare(name)]
        if path == "recipe.method.rank" and bare(name) == "r" and "=" not in match[0]:
            return None
        if path == "recipe.batch_size" and match["each"]:
            path = "recipe.micro_batch"
        is_tokens = (match["unit"] or "").strip(" -").lower().startswith("tok")
        if path in {"recipe.global_batch", "recipe.batch_size", "recipe.micro_batch"} and is_tokens:
            path = "recipe.global_batch_tokens"
        return self._quantity(path, match)

    def _quantity(self, path: str, match: re.Match[str]) -> int:
        value, others = _value(path, match["quantity"])
        if value is None or (path == "recipe.sequence_length" and value < SHORTEST_SEQUENCE):
            self.not_understood(match.start(), match.end(), f"{path} takes no such number")
        else:
            self.put(Part(match.start(), match.end(), path, value, others, not others))
        return match.end()

    def tokens(self, at: int) -> int | None:
        match = TOKENS.match(self._view, at)
        if match is None:
            return None
        if match["batch"]:
            return self._quantity("recipe.global_batch_tokens", match)
        value, _ = _value("recipe.training_tokens", match["quantity"])
        if value is None:
            return None
        if value < LEAST_TRAINED:
            note = "so few tokens are a sequence; a run has a million or more"
            self.put(Part(at, match.end(), "recipe.sequence_length", int(value), is_sure=False, note=note))
        else:
            self.put(Part(at, match.end(), "recipe.training_tokens", value))
        return match.end()

    def model_name(self, at: int) -> int | None:
        found = self.models.exact_at(self._view, at)
        if found is None or not found.is_sure:
            return None
        if self.model is not None and self.model[1].slug != found.slug:
            self.not_understood(at, found.end, "one question has one model; POST /v1/batch answers several")
        else:
            self.model = self.model or (Part(at, found.end), found)
        return found.end

    def model_family(self, at: int) -> int | None:
        """Words of a model's name, which may mean several."""
        family = self.models.family_at(self._view, at)
        if family is None:
            return None
        if self.model is None and self.family is None:
            self.family = Part(at, family[0]), family[1]
        elif not set(family[1]) <= self._model_words():
            self.not_understood(at, family[0])
        return family[0]

    def _is_resized(self, size: str) -> bool:
        """Let a size choose the model, where its name has none: GPT-2 (1.5B)."""
        if self.model is None:
            return False
        part, found = self.model
        named = pieces(self._view[part.start : found.end])
        if size_of(named) is not None or not self.models.with_words((*named, size)):
            return False
        self.model, self.family = None, (part, named)
        return True

    def _model_words(self) -> set[str]:
        """The words of the model as far as it is named."""
        return {*(pieces(self.model[1].slug) if self.model else ()), *(self.family[1] if self.family else ())}

    def model_size(self, at: int) -> int | None:
        """A size alone: of the model, or without a better use the tokens of the run."""
        match = SIZE_ALONE.match(self._view, at)
        if match is None:
            return None
        size = match["size"].lower().replace(" ", "").replace("illion", "")
        known = size_of(tuple(self._model_words()))
        if self.unknown and self.unknown[-1].end == at - 1 and known is None and not match["what"]:
            self.not_understood(at, match.end())  # the size of a model whose name is not in the catalogue
            return match.end()
        if size[-1] != "t" and (match["what"] or known is None or self._is_resized(size)):
            if size_of(tuple(self._model_words())) not in {None, size} or self.size is not None:
                self.not_understood(at, match.end(), "the model has another size")
            elif self.model is None:
                self.size = Part(at, match.end(), value=size)
            return match.end()
        value, _ = _value("recipe.training_tokens", match["size"])
        if value is None or value < LEAST_TRAINED:
            return None
        self.put(Part(at, match.end(), "recipe.training_tokens", value, is_sure=False, note=TAKEN_AS_TOKENS))
        return match.end()

    def choice(self, at: int) -> int | None:
        """A choice of some field in up to four words."""
        found = self._choice_at(at)
        if found is None:
            return None
        end, choice = found
        note = f"{self._view[at:end]} may mean {' or '.join(map(str, (choice.value, *choice.others)))}"
        self.put(Part(at, end, *choice, is_sure=not choice.others, note=note if choice.others else None))
        return end

    def named_choice(self, at: int) -> int | None:
        """A choice after the name of its field, in up to six words."""
        match = words().chosen.match(self._view, at)
        if match is None:
            return None
        one = words().chosen_fields[bare(match["name"])]
        others: list[str] = []
        for end, text in runs(self._view, match.end()):
            try:
                value = one.meant(text)
            except Ambiguous as several:
                value, *others = several.readings
            if value is not None:
                self.put(Part(at, end, path_of(one), value, tuple(others), not others))
                return end
        return None

    def _choice_at(self, at: int) -> tuple[int, Choice] | None:
        ends: list[int] = []
        place = at
        while len(ends) < MOST_CHOICE_WORDS and (word := CHOICE_WORD.match(self._view, place)):
            ends.append(word.end())
            place = word.end() + 1
            if self._view[word.end() : place] != " ":
                break
        for end in reversed(ends):
            name = self._view[at:end].rstrip(".")
            choice = words().choices.get(re.sub(r"[\s_]+", "-", name.casefold()))
            if choice is not None:
                return at + len(name), choice
        return None

    def option(self, at: int) -> int | None:
        match = OPTION.match(self._view, at)
        found = option_of(match["name"], match["text"]) if match else None
        if match is None or found is None:
            return None
        self.put(Part(at, match.end(), *found))
        return match.end()

    def cloud(self, at: int) -> int | None:
        match = CLOUD.match(self._view, at)
        if match is None or self.provider is not None:
            return None
        self.provider = Part(
            *match.span("cloud"), "price.provider", CLOUDS.get(bare(match["cloud"]), bare(match["cloud"]))
        )
        return match.end()


OPTION = re.compile(r"(?:--?)?(?P<name>[a-z][\w.-]{1,60})=(?P<text>[\w.+-]{1,40})(?![\w=])", re.ASCII | re.IGNORECASE)
"""A launcher's option with its value, as optim=adamw_torch."""

RULES: tuple[Callable[[Sentence, int], int | None], ...] = (
    Sentence.decimal_comma,
    Sentence.money,
    Sentence.deadline,
    Sentence.option,
    Sentence.reasons,
    Sentence.named_choice,
    Sentence.phrases,
    Sentence.negation,
    Sentence.machines,
    Sentence.qualifier,
    Sentence.named,
    Sentence.tokens,
    Sentence.model_name,
    Sentence.choice,
    Sentence.model_family,
    Sentence.model_size,
    Sentence.cloud,
)
"""The rules in their order: the more particular first."""


def _is_of_one_node(groups: Mapping[str, str | None], tail: re.Match[str], count: int) -> bool:
    """Whether a number before GPUs and the word node is that of each node: 8xH100 nodes, an 8 H100 node."""
    return count <= LARGEST_NODE and (bool(groups.get("times")) or (count > 1 and tail[0][-1] not in "sS"))


def _count_of(text: str) -> int:
    plain = text.lower().replace(",", "")
    return COUNTS.get(plain) or int(plain.removesuffix("k")) * (1024 if plain.endswith("k") else 1)


def _value(path: str, text: str) -> tuple[Any, tuple[Any, ...]]:
    """The number that a text means for a field, and others that it may mean; None where it means none."""
    name = {"max_steps": "steps", "gradient_accumulation_steps": "steps", "batch_size": "global_batch"}.get(
        path.rpartition(".")[2], path.rpartition(".")[2]
    )
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    plain = re.sub(r"(?<=[\d ])([bm])n$", r"\1", plain, flags=re.IGNORECASE)
    try:
        value = number_of(name, plain)
    except Ambiguous as several:
        first, *others = reversed([int(one) for one in several.readings])
        return first, tuple(others)
    is_whole = isinstance(value, int) or path in {"recipe.training_tokens", "price.usd_per_gpu_hour"}
    return (value, ()) if value and is_whole else (None, ())
