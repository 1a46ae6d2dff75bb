"""Python programs that fill in a configuration of Megatron-Bridge, followed by their syntax and never run.

Source: NVIDIA-NeMo/Megatron-Bridge@067f987 docs/recipe-usage.md, tutorials/recipes/llama/00_quickstart_pretrain.py,
src/megatron/bridge/training/config.py (methods of ConfigContainer).
"""

import ast
import operator
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service import text_bounds
from service.formats.composed import PROGRAM
from service.formats.frameworks.megatron_core.megatron_bridge_recipes import ARGUMENTS, PRECISIONS, is_recipe
from service.formats.text import NAMELESS, Entry, Unknown, checked_once
from service.text_bounds import Place, refusal

MOST_STEPS = 10_000
"""Statements and expressions that are followed, those of called functions each time. Source: a choice."""

NO_PYTHON = ("this is no Python", "mend it there, or before")

DEEPEST_CALL = 8

MOST_VALUES = 1024
"""Values of a list or an object, those of inner ones included."""

_CONTAINER = "ConfigContainer"

_MODEL = "model"
"""Part that may be another's, or made by what is not known here; its fields are then any."""

_PYTHON = (PROGRAM, "python")

_TRAIN = ("pretrain", "finetune")

_PRECISION = "get_mixed_precision_config"

_CHANGE_NOTHING = frozenset(
    {"print", "repr", "str", "type", "isinstance", "len", "vars", "info", "debug", "warning", "validate", "print_yaml"}
    | {"to_yaml", "to_dict", "destroy_process_group"}
)
"""Functions that leave a configuration as it is."""


@dataclass(slots=True)
class _Config:
    """A configuration that the program fills in."""

    place: Place
    entries: dict[str, Entry] = field(default_factory=dict)
    outer: set[str] = field(default_factory=set)
    """Names of parts whose fields are set."""
    trains: bool = False

    def put(self, name: str, entries: Iterable[Entry]) -> None:
        """Set a field, or a part with all its fields."""
        self.entries.pop(name, None)
        if name in self.outer:
            self.outer.discard(name)
            for old in [one for one in self.entries if one.startswith(f"{name}.")]:
                del self.entries[old]
        for entry in entries:
            self.entries[entry.name] = entry
            parts = entry.name.split(".")
            self.outer |= {".".join(parts[:number]) for number in range(1, len(parts))}


@dataclass(frozen=True, slots=True)
class _Part:
    """A configuration, or a part of one by its dotted name."""

    config: _Config
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Symbol:
    """What a module has under a dotted name."""

    name: str


@dataclass(frozen=True, slots=True)
class _Made:
    """An object that a class makes from fields."""

    kind: str
    fields: Mapping[str, Any]


Names = MutableMapping[str, Any]

_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip

_COMPARISONS: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.eq, ast.IsNot: operator.ne,
}  # fmt: skip


def read_program(text: str) -> tuple[Entry, ...]:
    r"""The recipe that a program takes, with what it sets of its configuration.

    >>> text = "cfg = llama3_8b_pretrain_config()\ncfg.model.tensor_model_parallel_size = 2 * 2\n"
    >>> [(entry.name, entry.value) for entry in read_program(text) if entry.name != PROGRAM]
    [('recipe', 'llama3_8b_pretrain_config'), ('model.tensor_model_parallel_size', 4)]
    """
    text_bounds.bound_python(text)
    if "\0" in text:  # Python before 3.11.4 raises ValueError
        raise refusal(Place(text.partition("\0")[0].count("\n") + 1, 1), "not_python", *NO_PYTHON)
    try:
        module = ast.parse(text)
        found = _Follower().configs_of(module)
    except SyntaxError as error:
        place = Place(error.lineno or 1, error.offset or 1)
        raise refusal(place, "not_python", *NO_PYTHON) from None
    except (RecursionError, MemoryError):
        raise refusal(Place(1, 1), *text_bounds.TOO_DEEP) from None
    if not found:
        message = "the program is in Python, and fills in no configuration of Megatron-Bridge"
        fix = "send the file or the command that says how to train, or state model, recipe and layout"
        raise refusal(Place(1, 1), "not_read", message, fix)
    if len(found) > 1:
        message = "the program fills in a second configuration, and which one trains is not known"
        raise refusal(found[1].place, "several_trainings", message, "send the part that fills in one of them")
    return checked_once(found[0].entries.values())


class _Follower:
    """The configurations of a program, statement by statement."""

    def __init__(self) -> None:
        self._configs: list[_Config] = []
        self._names: dict[str, Any] = {}
        self._called: set[ast.FunctionDef] = set()
        self._steps = 0
        self._calls = 0
        self._condition: Unknown | None = None

    def configs_of(self, module: ast.Module) -> list[_Config]:
        """Those that train; without any, all that are filled in, by functions that nothing calls too."""
        self._run(module.body, self._names)
        functions = [one for one in module.body if isinstance(one, ast.FunctionDef)]
        if not any(one.trains for one in self._configs):
            for function in functions:
                if function not in self._called and (not self._configs or _takes_a_configuration(function)):
                    self._call(function, {})
        return [one for one in self._configs if one.trains] or [one for one in self._configs if one.entries]

    def _run(self, body: Sequence[ast.stmt], names: Names) -> Any:
        """What a body returns."""
        for one in body:
            self._step(one)
            if isinstance(one, ast.Return):
                found = None if one.value is None else self._value(one.value, names)
                if self._condition is None:
                    return found
            elif (run := _STATEMENTS.get(type(one))) is not None and (found := run(self, one, names)) is not None:
                return found
        return None

    def _step(self, node: ast.AST) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            message = f"the program takes more than {MOST_STEPS} steps to follow"
            raise refusal(_place(node), "too_long", message, "send the part that fills in the configuration")

    def _define(self, one: ast.FunctionDef, names: Names) -> None:
        names[one.name] = one

    def _import(self, one: ast.Import, names: Names) -> None:
        for name in one.names:
            first = name.name.partition(".")[0]
            names[name.asname or first] = _Symbol(name.name if name.asname else first)

    def _import_from(self, one: ast.ImportFrom, names: Names) -> None:
        for name in one.names:
            names[name.asname or name.name] = _Symbol(f"{one.module or ''}.{name.name}")

    def _express(self, one: ast.Expr, names: Names) -> None:
        self._value(one.value, names)

    def _assign(self, one: ast.Assign | ast.AnnAssign, names: Names) -> None:
        if one.value is not None:
            value = self._value(one.value, names)
            for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                self._put(target, value, names)

    def _assign_more(self, one: ast.AugAssign, names: Names) -> None:
        self._put(one.target, _unknown(one.value, "which changes a value"), names)

    def _put(self, target: ast.expr, value: Any, names: Names) -> None:
        """Bind a name, or set a field."""
        if isinstance(target, ast.Name):
            names[target.id] = value if self._condition is None or isinstance(value, _Part) else self._condition
        elif isinstance(target, ast.Tuple | ast.List):
            values = value if isinstance(value, tuple) and len(value) == len(target.elts) else None
            for number, one in enumerate(target.elts):
                self._put(one, values[number] if values else _unknown(one), names)
        elif isinstance(target, ast.Attribute):
            part = self._value(target.value, names)
            if isinstance(part, _Part):
                self._put_field(part.config, _under(part.name, target.attr), value, _place(target))
        elif isinstance(target, ast.Subscript):
            part = self._value(target.value, names)
            if isinstance(part, _Part):
                self._put_field(part.config, part.name or NAMELESS, _unknown(target), _place(target))

    def _put_field(self, config: _Config, name: str, value: Any, place: Place) -> None:
        name = f"{NAMELESS}{name}" if name == _MODEL and isinstance(value, Unknown | _Part) else name
        entries = tuple(_entries(name, value, place))
        if self._condition is not None and not all(_is_set(config, one) for one in entries):
            entries = (Entry(name, self._condition, place),)
        config.put(name, entries)

    def _choose(self, one: ast.If, names: Names) -> Any:
        condition = True if _is_main(one.test) else self._value(one.test, names)
        if isinstance(condition, bool):
            return self._run(one.body if condition else one.orelse, names)
        self._maybe(one.test, [*one.body, *one.orelse], names)
        return None

    def _repeat(self, one: ast.For | ast.While, names: Names) -> None:
        test = one.iter if isinstance(one, ast.For) else one.test
        if isinstance(one, ast.For):
            self._put(one.target, _unknown(one.target), names)
        self._maybe(test, [*one.body, *one.orelse], names)

    def _try(self, one: ast.Try, names: Names) -> Any:
        found = self._run([*one.body, *one.orelse], names)
        for handler in one.handlers:
            self._maybe(handler.type or ast.Name("an error", lineno=handler.lineno, col_offset=0), handler.body, names)
        return found if found is not None else self._run(one.finalbody, names)

    def _with(self, one: ast.With, names: Names) -> Any:
        for item in one.items:
            self._value(item.context_expr, names)
        return self._run(one.body, names)

    def _maybe(self, test: ast.expr, body: Sequence[ast.stmt], names: Names) -> None:
        """Follow what runs by a condition that is not known."""
        before = self._condition
        self._condition = _unknown(test, "a condition that is not known")
        self._run(body, names)
        self._condition = before

    def _value(self, node: ast.expr, names: Names) -> Any:
        """The value of an expression; an `Unknown` where it takes running the program."""
        self._step(node)
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int | float | str | None) else _unknown(node)
        if isinstance(node, ast.Name):
            return names.get(node.id, _unknown(node))
        find = _EXPRESSIONS.get(type(node))
        return _unknown(node) if find is None else find(self, node, names)

    def _attribute(self, node: ast.Attribute, names: Names) -> Any:
        of = self._value(node.value, names)
        if isinstance(of, _Symbol):
            return _Symbol(f"{of.name}.{node.attr}")
        return _Part(of.config, _under(of.name, node.attr)) if isinstance(of, _Part) else _unknown(node)

    def _list(self, node: ast.List | ast.Tuple, names: Names) -> Any:
        return _bounded(tuple(self._settled(one, names) for one in node.elts), node)

    def _dict(self, node: ast.Dict, names: Names) -> Any:
        keys = [one.value if isinstance(one, ast.Constant) else None for one in node.keys]
        if not all(isinstance(key, str) for key in keys):
            return _unknown(node)
        values = (self._value(one, names) for one in node.values)
        return _bounded(_Made("", dict(zip(map(str, keys), values, strict=True))), node)

    def _operate(self, node: ast.BinOp, names: Names) -> Any:
        sides = self._settled(node.left, names), self._settled(node.right, names)
        run = _OPERATORS.get(type(node.op))
        counts = [one for one in sides if isinstance(one, int)]
        most = MOST_VALUES if any(isinstance(one, tuple) for one in sides) else _LARGEST
        is_plain = all(isinstance(one, int | float | tuple) and not isinstance(one, bool) for one in sides)
        if run is None or not is_plain or any(abs(one) > most for one in counts):
            return _unknown(node)
        try:
            return _bounded(run(*sides), node)
        except (TypeError, ArithmeticError):
            return _unknown(node)

    def _compare(self, node: ast.Compare, names: Names) -> Any:
        sides = self._settled(node.left, names), self._settled(node.comparators[0], names)
        run = _COMPARISONS.get(type(node.ops[0])) if len(node.ops) == 1 else None
        if run is None or any(isinstance(one, Unknown | _Made | tuple) for one in sides):
            return _unknown(node)
        try:
            return run(*sides)
        except TypeError:
            return _unknown(node)

    def _either(self, node: ast.IfExp, names: Names) -> Any:
        condition = self._value(node.test, names)
        if not isinstance(condition, bool):
            return _unknown(node.test, "a condition that is not known")
        return self._value(node.body if condition else node.orelse, names)

    def _negate(self, node: ast.UnaryOp, names: Names) -> Any:
        value = self._settled(node.operand, names)
        if isinstance(node.op, ast.Not):
            return not value if isinstance(value, bool) else _unknown(node)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return -value if isinstance(node.op, ast.USub) and is_number else _unknown(node)

    def _settled(self, node: ast.expr, names: Names) -> Any:
        """A value, or that which a field is set to."""
        value = self._value(node, names)
        if not isinstance(value, _Part):
            return value.name.rpartition(".")[2] if isinstance(value, _Symbol) else value
        entry = value.config.entries.get(value.name)
        return _unknown(node, "which the recipe sets") if entry is None else entry.value

    def _applied(self, node: ast.Call, names: Names) -> Any:
        """What a call gives."""
        of = self._value(node.func, names)
        given = [self._value(one, names) for one in node.args]
        named = {one.arg or "**": self._value(one.value, names) for one in node.keywords}
        if isinstance(of, ast.FunctionDef):
            return self._call(of, dict(zip((one.arg for one in of.args.args), given, strict=False)) | named)
        path = of.name if isinstance(of, _Symbol) else _named(node.func)
        name = path.rpartition(".")[2]
        if name == _CONTAINER or is_recipe(path):
            return self._begun(name, named, node)
        if name in {_PRECISION, *PRECISIONS}:
            return given[0] if given else name
        if name == "setattr" and len(given) == 3 and isinstance(given[0], _Part) and isinstance(given[1], str):
            self._put_field(given[0].config, _under(given[0].name, given[1]), given[2], _place(node))
            return None
        parts = [one for one in (of, *given, *named.values()) if isinstance(one, _Part)]
        if parts:
            return self._passed(name, parts, node)
        return _bounded(_Made(path, named), node) if name[:1].isupper() and not given else _unknown(node)

    def _begun(self, name: str, named: Mapping[str, Any], node: ast.Call) -> _Part:
        """A new configuration, from a recipe or from its parts."""
        config = _Config(_place(node))
        self._configs.append(config)
        if name != _CONTAINER:
            config.put("recipe", [Entry(one, text, config.place) for one, text in (("recipe", name), _PYTHON)])
        for keyword in node.keywords:
            key = keyword.arg or "**"
            field_name = key if name == _CONTAINER else ARGUMENTS.get(key, f"recipe.{key}")
            self._put_field(config, field_name, named[key], _place(keyword.value))
        for one in node.args[:1]:
            self._put_field(config, f"{NAMELESS}recipe", _unknown(one), _place(one))
        return _Part(config)

    def _passed(self, name: str, parts: Sequence[_Part], node: ast.Call) -> Any:
        """A configuration that a function takes, which may change what is not known."""
        first = parts[0].config
        if name in _TRAIN:
            first.trains = True
        elif name not in _CHANGE_NOTHING:
            unknown = _unknown(node, "which may change the configuration")
            first.put(f"{NAMELESS}{unknown.name}", [Entry(f"{NAMELESS}{unknown.name}", unknown, _place(node))])
        return parts[0]

    def _call(self, function: ast.FunctionDef, given: Mapping[str, Any]) -> Any:
        """Follow a function of the program."""
        self._called.add(function)
        if self._calls >= DEEPEST_CALL:
            return _unknown(function)
        names: Names = ChainMap({}, self._names)
        for one in (*function.args.args, *function.args.kwonlyargs):
            names[one.arg] = given.get(one.arg, _unknown(one))
            if one.arg not in given and _is_container(one.annotation):
                config = _Config(_place(function))
                self._configs.append(config)
                names[one.arg] = _Part(config)
        self._calls += 1
        found = self._run(function.body, names)
        self._calls -= 1
        return found


_STATEMENTS: Mapping[type, Callable[[_Follower, Any, Names], Any]] = {
    ast.FunctionDef: _Follower._define, ast.Import: _Follower._import, ast.ImportFrom: _Follower._import_from,
    ast.Expr: _Follower._express, ast.Assign: _Follower._assign, ast.AnnAssign: _Follower._assign,
    ast.AugAssign: _Follower._assign_more, ast.If: _Follower._choose, ast.For: _Follower._repeat,
    ast.While: _Follower._repeat, ast.Try: _Follower._try, ast.With: _Follower._with,
}  # fmt: skip

_EXPRESSIONS: Mapping[type, Callable[[_Follower, Any, Names], Any]] = {
    ast.Attribute: _Follower._attribute, ast.List: _Follower._list, ast.Tuple: _Follower._list,
    ast.Dict: _Follower._dict, ast.BinOp: _Follower._operate, ast.UnaryOp: _Follower._negate,
    ast.Call: _Follower._applied, ast.Compare: _Follower._compare, ast.IfExp: _Follower._either,
}  # fmt: skip


def _place(node: Any) -> Place:
    return Place(node.lineno, node.col_offset + 1)


_LARGEST = 1 << 62
"""Largest whole number that is computed with."""


def _bounded(value: Any, node: ast.expr) -> Any:
    """A value, or that it is not known where it holds too many."""
    return value if _count(value, MOST_VALUES) <= MOST_VALUES else _unknown(node)


def _count(value: Any, most: int) -> int:
    """The values that one holds; those beyond the most are not counted."""
    inner = value if isinstance(value, tuple) else (*value.fields.values(),) if isinstance(value, _Made) else None
    if inner is None:
        return 1
    found = 1
    for one in inner:
        found += _count(one, most - found)
        if found > most:
            break
    return found


def _under(outer: str, name: str) -> str:
    """The dotted name of a field; cut beyond the longest allowed, so that it is refused and never grows."""
    return f"{outer}.{name}"[: text_bounds.LONGEST_NAME + 1] if outer else name


def _named(node: ast.AST) -> str:
    """The dotted name that an expression is or begins with."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return _under(_named(node.value), node.attr)
    if isinstance(node, ast.Call):
        return f"{_named(node.func)}()"
    inner = next((one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)), None)
    return _named(inner) if inner is not None else ""


def _unknown(node: Any, why: str = "which the program finds as it runs") -> Unknown:
    return Unknown((_named(node) or "an expression")[:80], why, _place(node))


def _is_main(test: ast.expr) -> bool:
    """Whether a condition holds for a program that is run."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _is_container(annotation: ast.expr | None) -> bool:
    return annotation is not None and _named(annotation).rpartition(".")[2] == _CONTAINER


def _takes_a_configuration(function: ast.FunctionDef) -> bool:
    return any(_is_container(one.annotation) for one in function.args.args)


def _is_set(config: _Config, entry: Entry) -> bool:
    return entry.name in config.entries and config.entries[entry.name].value == entry.value


def _entries(name: str, value: Any, place: Place) -> Iterator[Entry]:
    """A value as settings: an object by its fields, what a module has by its own name."""
    if isinstance(value, _Made):
        if value.kind:
            yield Entry(f"{name}._target_", value.kind, place)
        for key, one in value.fields.items():
            yield from _entries(_under(name, key), one, place)
    elif isinstance(value, _Part | ast.FunctionDef):
        yield Entry(name, Unknown(value.name or "a configuration", "which is another's", place), place)
    else:
        yield Entry(name, value.name.rpartition(".")[2] if isinstance(value, _Symbol) else value, place)
