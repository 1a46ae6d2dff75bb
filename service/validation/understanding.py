"""What a refused question means where it uses other names, quantities or spellings: the same question in plain JSON."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import prod
from types import NoneType
from typing import Any

from service.catalogue.machines import machine_named
from service.errors import Problem, Refused, did_you_mean, quoted
from service.validation.flat import FlatField, flat_fields, value_at, with_value
from service.validation.other_names import ACCUMULATION, NO_EFFECT, STEPS, other_names, plain, switches
from service.validation.problems import inside
from service.validation.quantities import Ambiguous, ambiguous, number_of
from service.validation.question_parts import PARTS

TIMES = r"\s*(?-i:[x*\u00d7])\s*"
MAKER = r"(?:(?:nvidia|amd|tesla|geforce|instinct)\s+)*(?:rtx\s*)?"
COUNTED = re.compile(
    rf"(?:gpu[_-])?(?P<first>\d{{1,7}})(?:\s*[x*\u00d7]\s*(?P<of>\S.*)|\s+(?P<kind>(?=[a-z]){MAKER}[a-z]{{0,4}}\d.*))"
    rf"|(?P<name>.*\S)(?:(?::|{TIMES})(?P<last>\d{{1,7}})|\s*\((?P<inside>\d{{1,7}})x\))",
    re.ASCII | re.IGNORECASE,
)
"""So many GPUs, as in 8xH100, 8 H100s, H100:8 and A100 x8; a name ends in no letter x of its own there."""

SIZES = frozenset({"gpus", "nodes", "gpus_per_node", "preset"})
"""Fields of a cluster that say its size."""
RECOMPUTED: Mapping[bool, str] = {True: "full", False: "none"}
"""Recompute where another tool's option for it is a switch."""
SWITCHED: Mapping[str, bool] = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def understood(body: Mapping[str, Any]) -> "Understood | None":
    """A question's body in plain JSON; None where nothing of it was understood otherwise."""
    reader = Understood(body)
    reader.read()
    return reader if reader.notes or reader.problems else None


def at_home(problems: Iterable[Problem]) -> Refused:
    """The refusal of fields that stand in a part to which they do not belong, each with its own path."""

    def moved(problem: Problem) -> Problem:
        name = problem.field.rpartition(".")[2]
        homes = _homes().get(name, ()) if problem.code == "unknown_field" else ()
        return replace(problem, fix=did_you_mean(homes)) if homes else problem

    return Refused(*map(moved, problems))


@cache
def _homes() -> Mapping[str, tuple[str, ...]]:
    """The paths of fields of the parts of a question, by their names."""
    found: dict[str, tuple[str, ...]] = {}
    for field in flat_fields().values():
        if len(field.path) == 2:
            found[field.path[1]] = (*found.get(field.path[1], ()), ".".join(field.path))
    return found


class Understood:
    """A copy of a body in plain JSON, with what was read how, and what may mean several things."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = {name: dict(part) if isinstance(part, Mapping) else part for name, part in body.items()}
        self.notes: list[str] = []
        self.problems: list[Problem] = []
        self._origins: dict[str, str] = {}
        """The name and text that were given for a field."""
        self._places: dict[str, str] = {}
        """Where a field stands in the request, by its own path."""
        self._counts: dict[str, tuple[str, Any]] = {}
        """Steps and accumulation, which follow from other fields, with the path at which they were given."""

    def refused(self, others: Iterable[Problem] = ()) -> Refused:
        """The refusal of what is ambiguous and of what else is wrong, each at the place that the request has."""
        own = [f"{problem.field}." for problem in self.problems]
        more = [one for one in others if not any(path.startswith(f"{one.field}.") for path in own)]
        placed = (replace(one, field=self._places.get(one.field, one.field)) for one in more)
        return Refused(*self.problems, *at_home(placed).problems)

    def read(self) -> None:
        self._read_wholes()
        unknown = list(self._unknown())
        for place, name, value in unknown:
            self._move(place, name, value)
        for place, name, value in unknown:
            self._switch(place, name, value)
        for path, text in list(self._texts()):
            self._read_text(path, text)
        self.notes += [f"{given} -> {path} = {quoted(self._at(path))}" for path, given in self._origins.items()]
        self._count()

    def _read_wholes(self) -> None:
        cluster = self.body.get("cluster")
        if isinstance(cluster, str) and _counted(cluster):
            self.body["cluster"] = {}
            self._read_gpus("cluster", cluster)

    def _unknown(self) -> Iterator[tuple[str, str, Any]]:
        for place, part in (("", self.body), *((one, self.body.get(one)) for one in PARTS)):
            if isinstance(part, dict) and not (place == "model" and "hf_config" in part):
                known = {*PARTS} if not place else _names_of(place)
                yield from ((place, name, value) for name, value in part.items() if name not in known)

    def _move(self, place: str, name: str, value: Any) -> None:
        path, given = _meant(place, name), f"{inside(place, name)} {quoted(value)}"
        if path is None:
            return
        if path == NO_EFFECT:
            self.notes.append(f"{given} changes no number of this answer")
        elif path in {STEPS, ACCUMULATION}:
            self._counts[path] = inside(place, name), value
        else:
            is_switch = path == "recipe.recompute" and isinstance(value, bool)
            self._give(place, name, path, RECOMPUTED[value] if is_switch else value, given)
        del (self.body[place] if place else self.body)[name]

    def _give(self, place: str, name: str, path: str, value: Any, given: str) -> None:
        if self._put(path, value):
            self._origins[path], self._places[path] = given, inside(place, name)
        else:
            message = f"{given} means {path}, which is {quoted(self._at(path))}"
            self.problems.append(Problem(inside(place, name), "told_twice", message, "give it once"))

    def _switch(self, place: str, name: str, value: Any) -> None:
        """Set what a switch sets; one that is off and sets nothing only says what does not hold."""
        states, is_on = switches().get(plain(name)), SWITCHED.get(str(value).lower())
        if states is None or is_on is None:
            return
        (path, setting), given = states[is_on], f"{inside(place, name)} {quoted(value)}"
        if path:
            self._give(place, name, path, setting, given)
        elif self._at(states[True][0]) in {None, states[True][1]}:
            message = f"{given} says what does not hold, and not what does"
            self.problems.append(Problem(inside(place, name), "ambiguous", message, f"give {states[True][0]}"))
        else:
            self.notes.append(f"{given} changes no number of this answer")
        del (self.body[place] if place else self.body)[name]

    def _put(self, path: str, value: Any) -> bool:
        """Set a field; False where it has another value."""
        steps = path.split(".")
        given = value_at(self.body, steps)
        if given is None and isinstance(self.body.get(steps[0], ""), (str, dict, NoneType)):
            self.body = with_value(self.body, steps, value)
            return True
        return bool(given == value)

    def _at(self, path: str) -> Any:
        value: Any = self.body
        for step in path.split("."):
            value = value.get(step) if isinstance(value, Mapping) else value
        return value

    def _texts(self) -> Iterator[tuple[FlatField, str]]:
        for field in flat_fields().values():
            value = self._at(".".join(field.path))
            if isinstance(value, str) and (field.choices or field.form != "text" or field.path == ("cluster", "gpu")):
                yield field, value

    def _read_text(self, field: FlatField, text: str) -> None:
        """Read the text of a field; it stays where it means nothing, and is then refused as it is."""
        path = ".".join(field.path)
        if field.path == ("cluster", "gpu"):
            self._read_gpus(path, text)
            return
        if text in field.choices:
            return
        try:
            value = field.meant(text)
        except Ambiguous as several:
            self.problems += ambiguous(path, text, several).problems
            return
        if value is not None:
            self._replace(field.path, value)
            self._origins.setdefault(path, f"{path} {quoted(text)}")

    def _replace(self, path: tuple[str, ...], value: Any) -> None:
        whole: Any = self.body
        for step in path[:-1]:
            inner = whole[step]
            if isinstance(inner, Mapping):
                whole[step] = whole = dict(inner)
            else:  # a name in place of the object
                whole[step] = value
                return
        whole[path[-1]] = value

    def _read_gpus(self, path: str, text: str) -> None:
        """Read GPUs with their number: of the cluster, or of each node where the cluster has a multiple of it."""
        cluster, counted = self.body["cluster"], _counted(text)
        if counted is None:
            return
        count, name = counted
        inner = _counted(name)
        if inner is not None and not cluster.keys() & SIZES:
            cluster |= {"gpu": inner[1], "nodes": count, "gpus_per_node": inner[0]}
            self.notes.append(f"{path} {quoted(text)} -> {count} nodes of {inner[0]} x {quoted(inner[1])}")
            return
        cluster["gpu"] = name
        given = cluster.get("gpus")
        is_sized = given is not None or "nodes" in cluster or "preset" in cluster
        field = "gpus_per_node" if is_sized and given != count else "gpus"
        if machine_named(name) is not None:
            field = "nodes"
        if field == "gpus_per_node" and isinstance(given, int) and given % count:
            message = f"{path} {quoted(text)} says {count} GPUs, but cluster.gpus says {given}"
            self.problems.append(Problem("cluster.gpus", "told_twice", message, "give the number once"))
            return
        cluster.setdefault(field, count)
        self.notes.append(f"{path} {quoted(text)} -> cluster.gpu = {quoted(name)}, cluster.{field} = {count}")

    def _count(self) -> None:
        """The batch of accumulated micro-batches, and the tokens of so many steps."""
        if ACCUMULATION in self._counts:
            path, steps = self._counts[ACCUMULATION]
            parts = (steps, self._at("recipe.micro_batch") or 1, self._data())
            wording = "micro_batch x data x these steps; give data, or the number of GPUs"
            self._derive("recipe.global_batch", path, parts, wording)
        if STEPS in self._counts:
            path, steps = self._counts[STEPS]
            batch = self._at("recipe.global_batch_tokens")
            apart = (self._at("recipe.global_batch"), self._at("recipe.sequence_length"))
            sizes = apart if batch is None else (batch,)
            wording = "steps x global_batch x sequence_length; give both"
            self._derive("recipe.training_tokens", path, (steps, *sizes), wording)

    def _derive(self, path: str, given: str, factors: tuple[Any, ...], wording: str) -> None:
        numbers = [one for factor in factors if (one := _whole(factor))]
        if len(numbers) < len(factors):
            message = f"{given} is {quoted(factors[0])}, from which {path} follows with other fields"
            self.problems.append(Problem(given, "unknown_field", message, f"give {path}: {wording}"))
            return
        value = prod(numbers)
        if self._put(path, value):
            factors_text = " x ".join(map(str, numbers))
            self.notes.append(f"{given} {quoted(factors[0])} -> {path} = {value} = {factors_text}")
        else:
            message = f"{given} {quoted(factors[0])} makes {path} {value}, which is {quoted(self._at(path))}"
            self.problems.append(Problem(given, "told_twice", message, f"leave it or {path} out"))

    def _data(self) -> Any:
        """The replicas of the model: stated, or what the other degrees leave of the GPUs."""
        layout = self.body.get("layout") or {}
        if not isinstance(layout, dict):
            return None
        if layout.get("data") is not None:
            return layout["data"]
        gpus, ranks = self._gpus(), prod(_whole(layout.get(axis, 1)) for axis in RANKS)
        return gpus // ranks if ranks and gpus % ranks == 0 else None

    def _gpus(self) -> int:
        """The GPUs that a cluster states, itself or by its nodes and machine; 0 where a preset has to say it."""
        given = self.body.get("cluster")
        cluster = given if isinstance(given, dict) else {"gpu": given}
        name = cluster.get("gpu")
        machine = machine_named(name) if isinstance(name, str) else None
        per_node = _whole(cluster.get("gpus_per_node", machine.gpus if machine else 0))
        nodes = _whole(cluster.get("nodes", 1 if machine else 0))
        return _whole(cluster.get("gpus")) or per_node * nodes


def _meant(place: str, name: str) -> str | None:
    """The path that an unknown name means: the only one, or the only one of the part in which it stands."""
    spelled = plain(name)
    if place and spelled != name and spelled in _names_of(place):
        return f"{place}.{spelled}"
    paths = other_names().get(spelled, ())
    here = paths if len(paths) == 1 else [path for path in paths if place and path.startswith(f"{place}.")]
    return here[0] if len(here) == 1 else None


def option_of(name: str, text: str) -> tuple[str, Any] | None:
    """The choice that a launcher's option and its text make, with its path; None where they make none alone.

    >>> option_of("optim", "adamw_torch"), option_of("bf16", "True"), option_of("batch_size", "8")
    (('recipe.optimizer', 'adamw'), ('recipe.precision', 'bf16'), None)
    """
    states, is_on = switches().get(plain(name)), SWITCHED.get(text.lower())
    if states is not None and is_on is not None:
        path, setting = states[is_on]
        return (path, setting) if path else None
    for path in other_names().get(plain(name), (f"recipe.{plain(name)}", f"layout.{plain(name)}")):
        field = _choosing().get(path)
        if field is not None:
            with suppress(Ambiguous):
                value = field.meant(text)
                return None if value is None else (path, value)
    return None


@cache
def _choosing() -> Mapping[str, FlatField]:
    """Fields with choices by the path of what they choose."""
    fields = (field for field in flat_fields().values() if field.choices and not field.is_list)
    return {".".join(field.path[:-1] if field.own_name != field.path[-1] else field.path): field for field in fields}


RANKS = ("tensor", "context", "pipeline")


def _whole(value: object) -> int:
    """A positive whole number, perhaps as a text; 0 for anything else."""
    number = number_of("count", value) if isinstance(value, str) else value
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


def _counted(text: str) -> tuple[int, str] | None:
    match = COUNTED.fullmatch(text.strip()) if len(text) <= 200 else None
    if match is None:
        return None
    count = int(match["first"] or match["last"] or match["inside"])
    return (count, (match["of"] or match["kind"] or match["name"]).strip()) if count else None


@cache
def _names_of(part: str) -> frozenset[str]:
    """Names that an object of a part may have."""
    own = {"model": ("preset", "hf_config"), "cluster": ("preset",)}.get(part, ())
    return frozenset((*own, *(field.path[1] for field in flat_fields().values() if field.path[0] == part)))
