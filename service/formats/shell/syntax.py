"""The grammar of shell scripts, read in one pass that never goes back.

Source: POSIX.1-2024, Shell Command Language 2.2 to 2.10; GNU bash 5.2 manual for arrays, `+=`, `[[`, `((` and `<<<`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from service.errors import Refused
from service.text_bounds import Bound

DEEPEST = 32
"""Largest nesting of quotes, substitutions and compound commands."""
MOST_NODES = 16_384
"""Commands and words of a script."""
MOST_HERE_DOCUMENTS = 256

_NOT_CLOSED: Bound = ("not_closed", "a quote or a bracket is not closed", "close it")
_TOO_DEEP: Bound = ("too_deep", f"quotes and commands nest deeper than {DEEPEST}", "send the part that starts training")
_TOO_LONG: Bound = (
    "too_long",
    f"a script holds at most {MOST_NODES} words and {MOST_HERE_DOCUMENTS} here-documents",
    "send the part that starts training",
)
_NOT_SHELL: Bound = ("not_shell", "this is no shell command", "mend it there, or before")

Refuse = Callable[[int, Bound], Refused]


@dataclass(frozen=True, slots=True)
class Raw:
    """A word, as the text has it."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    subscript: Raw | None
    appends: bool
    value: "Raw | tuple[Raw, ...]"
    """A word, or the words of an array."""
    start: int


@dataclass(frozen=True, slots=True)
class Redirect:
    operator: str
    target: Raw
    body: "HereDocument | None" = None


@dataclass(slots=True)
class HereDocument:
    delimiter: str
    quoted: bool
    """Whether nothing in it is expanded."""
    tabs: bool
    """Whether tabs at the begin of its lines are removed."""
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Simple:
    start: int
    assignments: tuple[Assignment, ...]
    words: tuple[Raw, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    parts: "tuple[Node, ...]"
    negated: bool


@dataclass(frozen=True, slots=True)
class Chain:
    first: "Node"
    others: "tuple[tuple[str, Node], ...]"


@dataclass(frozen=True, slots=True)
class If:
    start: int
    arms: "tuple[tuple[Nodes, Nodes], ...]"
    otherwise: "Nodes"


@dataclass(frozen=True, slots=True)
class While:
    start: int
    condition: "Nodes"
    body: "Nodes"
    until: bool


@dataclass(frozen=True, slots=True)
class For:
    start: int
    name: str
    words: tuple[Raw, ...] | None
    """None for the arguments of the script."""
    body: "Nodes"


@dataclass(frozen=True, slots=True)
class Case:
    start: int
    word: Raw
    arms: "tuple[tuple[tuple[Raw, ...], Nodes], ...]"


@dataclass(frozen=True, slots=True)
class Group:
    body: "Nodes"
    subshell: bool
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    body: "Nodes"


@dataclass(frozen=True, slots=True)
class Test:
    """What stands between [[ and ]]: words, and operators as text."""

    start: int
    items: tuple[Raw | str, ...]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What stands between (( and ))."""

    text: Raw


Node = Simple | Pipeline | Chain | If | While | For | Case | Group | Function | Test | Arithmetic
Nodes = tuple[Node, ...]


def walk(value: Any) -> Iterator[Any]:
    """Every part of a node, itself included."""
    left: list[Any] = [value]
    while left:
        one = left.pop()
        if isinstance(one, tuple):
            left += one
        elif one is not None and not isinstance(one, str | int | Raw):
            yield one
            left += [getattr(one, part.name) for part in fields(one)]


_PLAIN = {
    "": re.compile(r"[^\\'\"`$ \t\r\n;&|<>()]+"),
    '"': re.compile(r"[^\\\"`$]+"),
    ")": re.compile(r"[^\\'\"`$()#<\n]+"),
    "}": re.compile(r"[^\\'\"`$}]+"),
    '"}': re.compile(r"[^\\\"`$}]+"),
    "`": re.compile(r"[^\\`]+"),
}
"""Runs of characters without a meaning, by the closing sign of what they stand in; a brace in double quotes apart."""

_HERE = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|(\\?)([^\s;&|<>()'\"\\]+))")
_HEX = re.compile(r"\$'(?:[^'\\]++|\\.)*+'", re.DOTALL)


class Words:
    """Ends of words and of what is nested in them."""

    def __init__(self, text: str, refuse: Refuse) -> None:
        self.text, self.refuse = text, refuse
        self.documents = 0

    def end(self, at: int, closer: str = "") -> int:
        """End of the word at an offset, or after the sign that closes what the offset stands in."""
        text, length = self.text, len(self.text)
        start, stack, pending = at, [closer] if closer else [], list[HereDocument]()
        while at < length:
            inside = stack[-1] if stack else ""
            if run := _PLAIN[inside].match(text, at):
                at = run.end()
                continue
            sign = text[at]
            if sign == "\\":
                at += 2
                continue
            if sign == inside[-1:]:
                stack.pop()
                at += 1
                if not stack and closer:
                    return at
                continue
            if not stack and sign in ";&|<>() \t\r\n":
                return at
            at = self._nested(at, inside, stack, pending)
            if len(stack) > DEEPEST:
                raise self.refuse(at, _TOO_DEEP)
        if stack:
            raise self.refuse(start, _NOT_CLOSED)
        return min(at, length)

    def _nested(self, at: int, inside: str, stack: list[str], pending: list[HereDocument]) -> int:
        """The offset after a sign that has a meaning inside another."""
        text, sign = self.text, self.text[at]
        quoted = inside in ('"', '"}')
        if sign == "$":
            return self._dollar(at, stack, quoted=quoted)
        if sign == "'" and not quoted:
            return self._quote(at)
        if sign in '"`':
            stack.append(sign)
        elif sign == "(":
            stack.append(")")
        elif sign == "#" and text[at - 1].isspace():
            return self._line_end(at)
        elif text.startswith("<<<", at):
            return at + 3
        elif found := _HERE.match(text, at):
            pending.append(self.document(found, at))
            return found.end()
        elif sign == "\n":
            at = self.bodies(at + 1, pending) - 1
            pending.clear()
        return at + 1

    def _dollar(self, at: int, stack: list[str], *, quoted: bool) -> int:
        after = self.text[at + 1 : at + 2]
        if after == "(":
            stack.append(")")
            return at + 2
        if after == "{":
            stack.append('"}' if quoted else "}")
            return at + 2
        if after == "'" and not quoted and (found := _HEX.match(self.text, at)):
            return found.end()
        return at + 1

    def _quote(self, at: int) -> int:
        end = self.text.find("'", at + 1)
        if end < 0:
            raise self.refuse(at, _NOT_CLOSED)
        return end + 1

    def _line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end

    def document(self, found: re.Match[str], at: int) -> HereDocument:
        """A here-document whose body follows; the number of all is bounded, for each is looked for to the end."""
        self.documents += 1
        if self.documents > MOST_HERE_DOCUMENTS:
            raise self.refuse(at, _TOO_LONG)
        name = found[2] or found[3] or found[5]
        return HereDocument(name, bool(found[2] or found[3] or found[4]), bool(found[1]))

    def bodies(self, at: int, pending: list[HereDocument]) -> int:
        """The offset after the bodies of here-documents that begin at an offset."""
        for one in pending:
            one.start = at
            tabs = r"\t*" if one.tabs else ""
            found = re.compile(rf"^{tabs}{re.escape(one.delimiter)}(?:\r?\n|\Z)", re.MULTILINE).search(self.text, at)
            one.end, at = (found.start(), found.end()) if found else (len(self.text), len(self.text))
        return at


_BLANKS = re.compile(r"(?:[ \t\r]|\\\r?\n)*+(?:#[^\n]*+)?")
_KEYWORD = re.compile(r"[A-Za-z_]\w*(?=[\s;&|()<>]|\Z)|\{(?=\s)|\}|\[\[(?=\s)|!(?=\s)")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[[^\]\n]*\])?(\+?)=")
_REDIRECT = re.compile(r"(?:\d+|\{\w+\})?(<<<|<<-?|<>|<&|>&|>>|>\||&>>|&>|<(?!\()|>(?!\())")
_FUNCTION = re.compile(r"[ \t]*\([ \t]*\)")
_NAME = re.compile(r"[A-Za-z_]\w*")

DECLARES = frozenset({"export", "declare", "typeset", "local", "readonly"})

_ENDS = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}", ";;"})


class Parser:
    """The commands of a text."""

    def __init__(self, text: str, refuse: Refuse) -> None:
        self.text, self._refuse = text, refuse
        self._words = Words(text, refuse)
        self._at = self._nodes = self._depth = 0
        self._pending: list[HereDocument] = []

    def script(self) -> Nodes:
        """The whole text."""
        found = self._list()
        if self._at < len(self.text):
            raise self._refuse(self._at, _NOT_SHELL)
        return found

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise self._refuse(self._at, _TOO_LONG)

    def _blanks(self) -> str:
        """The next character after blanks and comments."""
        found = _BLANKS.match(self.text, self._at)
        self._at = found.end() if found else self._at
        return self.text[self._at : self._at + 1]

    def _lines(self) -> str:
        """The same after line ends too, with the here-documents that begin there."""
        while (sign := self._blanks()) == "\n":
            self._at = self._words.bodies(self._at + 1, self._pending)
            self._pending = []
        return sign

    def _keyword(self) -> str:
        found = _KEYWORD.match(self.text, self._at)
        return found[0] if found else ""

    def _take(self, wanted: str) -> None:
        self._lines()
        if not self.text.startswith(wanted, self._at):
            raise self._refuse(min(self._at, len(self.text)), _NOT_SHELL)
        self._at += len(wanted)

    def _list(self) -> Nodes:
        """Commands up to a word that ends them."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._refuse(self._at, _TOO_DEEP)
        found: list[Node] = []
        while sign := self._lines():
            if sign in ";&" and not self.text.startswith(";;", self._at):
                self._at += 1
            elif sign == ")" or self.text.startswith(";;", self._at) or self._keyword() in _ENDS:
                break
            else:
                found.append(self._chain())
        self._depth -= 1
        return tuple(found)

    def _chain(self) -> Node:
        first = self._pipeline()
        others: list[tuple[str, Node]] = []
        while True:
            self._blanks()
            operator = self.text[self._at : self._at + 2]
            if operator not in ("&&", "||"):
                return Chain(first, tuple(others)) if others else first
            self._at += 2
            self._lines()
            others.append((operator, self._pipeline()))

    def _pipeline(self) -> Node:
        negated = False
        while (word := self._keyword()) in ("!", "time"):
            negated ^= word == "!"
            self._at += len(word)
            self._blanks()
        parts = [self._command()]
        while self._blanks() == "|" and not self.text.startswith("||", self._at):
            self._at += 2 if self.text.startswith("|&", self._at) else 1
            self._lines()
            parts.append(self._command())
        return Pipeline(tuple(parts), negated) if negated or len(parts) > 1 else parts[0]

    def _command(self) -> Node:
        self._count()
        self._blanks()
        if self.text.startswith("((", self._at):
            return self._arithmetic()
        word = self._keyword()
        compound = _COMPOUND.get(word) or (_COMPOUND["("] if self.text.startswith("(", self._at) else None)
        if compound is None:
            return self._simple()
        start = self._at
        self._at += len(word) or 1
        found = compound(self, start)
        redirects = tuple(self._redirects())
        return Group((found,), subshell=False, redirects=redirects) if redirects else found

    def _redirects(self) -> Iterator[Redirect]:
        self._blanks()
        while found := _REDIRECT.match(self.text, self._at):
            yield self._redirect(found)
            self._blanks()

    def _redirect(self, found: re.Match[str]) -> Redirect:
        operator = found[1]
        if operator.startswith("<<") and operator != "<<<":
            here = _HERE.match(self.text, found.start(1))
            if here is None:
                raise self._refuse(self._at, _NOT_SHELL)
            document = self._words.document(here, self._at)
            self._pending.append(document)
            self._at = here.end()
            return Redirect(operator, Raw(here.start(), here.end()), document)
        self._at = found.end()
        self._blanks()
        return Redirect(operator, self._word())

    def _word(self) -> Raw:
        """The word that stands here; one is needed."""
        self._count()
        start = self._at
        process = self.text[start : start + 2] in ("<(", ">(")
        self._at = self._words.end(start + 2, ")") if process else self._words.end(start)
        if self._at == start:
            raise self._refuse(min(start, len(self.text)), _NOT_SHELL)
        return Raw(start, self._at)

    def _simple(self) -> Node:
        start, words = self._at, list[Raw]()
        assignments, redirects = list[Assignment](), list[Redirect]()
        while (sign := self._blanks()) and (sign not in "\n;&|()" or self.text.startswith("&>", self._at)):
            if found := _REDIRECT.match(self.text, self._at):
                redirects.append(self._redirect(found))
            elif (found := _ASSIGNED.match(self.text, self._at)) and self._assigns(words):
                assignments.append(self._assignment(found))
            else:
                words.append(self._word())
                if len(words) == 1 and not assignments and (after := _FUNCTION.match(self.text, self._at)):
                    self._at = after.end()
                    return self._function(self.text[words[0].start : words[0].end])
        if not (words or assignments or redirects):
            raise self._refuse(min(self._at, len(self.text)), _NOT_SHELL)
        return Simple(start, tuple(assignments), tuple(words), tuple(redirects))

    def _assigns(self, words: list[Raw]) -> bool:
        return not words or self.text[words[0].start : words[0].end] in DECLARES

    def _assignment(self, found: re.Match[str]) -> Assignment:
        self._count()
        start, self._at = self._at, found.end()
        subscript = Raw(found.start(2) + 1, found.end(2) - 1) if found[2] else None
        value: Raw | tuple[Raw, ...]
        if self.text.startswith("(", self._at):
            value = self._array()
        else:
            self._at = self._words.end(self._at)
            value = Raw(found.end(), self._at)
        return Assignment(found[1], subscript, bool(found[3]), value, start)

    def _array(self) -> tuple[Raw, ...]:
        start = self._at
        self._at += 1
        words: list[Raw] = []
        while (sign := self._lines()) != ")":
            if not sign:
                raise self._refuse(start, _NOT_CLOSED)
            words.append(self._word())
        self._at += 1
        return tuple(words)

    def _function(self, name: str) -> Node:
        self._lines()
        return Function(name, (self._command(),))

    def _arithmetic(self) -> Node:
        start = self._at
        self._at = self._words.end(self._words.end(start + 2, ")"), ")")
        return Arithmetic(Raw(start + 2, self._at - 2))

    def _keyword_function(self, _: int) -> Node:
        self._blanks()
        word = self._word()
        if after := _FUNCTION.match(self.text, self._at):
            self._at = after.end()
        return self._function(self.text[word.start : word.end])

    def _if(self, start: int) -> Node:
        arms: list[tuple[Nodes, Nodes]] = []
        otherwise: Nodes = ()
        while True:
            condition = self._list()
            self._take("then")
            arms.append((condition, self._list()))
            if self._keyword() != "elif":
                break
            self._at += len("elif")
        if self._keyword() == "else":
            self._at += len("else")
            otherwise = self._list()
        self._take("fi")
        return If(start, tuple(arms), otherwise)

    def _while(self, start: int) -> Node:
        until = self.text.startswith("until", start)
        condition = self._list()
        return While(start, condition, self._do(), until)

    def _do(self) -> Nodes:
        if self._lines() == ";":
            self._at += 1
        self._take("do")
        body = self._list()
        self._take("done")
        return body

    def _for(self, start: int) -> Node:
        self._blanks()
        if self.text.startswith("((", self._at):
            self._arithmetic()
            return While(start, (Simple(start, (), (), ()),), self._do(), until=False)
        found = _NAME.match(self.text, self._at)
        if found is None:
            raise self._refuse(min(self._at, len(self.text)), _NOT_SHELL)
        self._at = found.end()
        self._lines()
        words: list[Raw] | None = None
        if self._keyword() == "in":
            self._at += len("in")
            words = []
            while (sign := self._blanks()) and sign not in "\n;":
                words.append(self._word())
        return For(start, found[0], None if words is None else tuple(words), self._do())

    def _case(self, start: int) -> Node:
        self._blanks()
        word = self._word()
        self._take("in")
        arms: list[tuple[tuple[Raw, ...], Nodes]] = []
        while self._lines() and self._keyword() != "esac":
            if self.text.startswith("(", self._at):
                self._at += 1
            patterns = [self._pattern()]
            while self._blanks() == "|":
                self._at += 1
                patterns.append(self._pattern())
            self._take(")")
            arms.append((tuple(patterns), self._list()))
            self._lines()
            while self.text[self._at : self._at + 1] in (";", "&") and self._at < len(self.text):
                self._at += 1
        self._take("esac")
        return Case(start, word, tuple(arms))

    def _pattern(self) -> Raw:
        self._blanks()
        return self._word()

    def _braces(self, _: int) -> Node:
        body = self._list()
        self._take("}")
        return Group(body, subshell=False)

    def _parentheses(self, _: int) -> Node:
        body = self._list()
        self._take(")")
        return Group(body, subshell=True)

    def _test(self, start: int) -> Node:
        items: list[Raw | str] = []
        while True:
            sign = self._lines()
            if not sign:
                raise self._refuse(start, _NOT_CLOSED)
            if self.text.startswith("]]", self._at):
                self._at += 2
                return Test(start, tuple(items))
            pair = self.text[self._at : self._at + 2]
            if items and items[-1] == "=~":
                items.append(self._pattern_of_words())
            elif pair in ("&&", "||", "=~"):
                items.append(pair)
                self._at += 2
            elif sign in "()<>":
                items.append(sign)
                self._at += 1
            elif sign in ";&|":
                raise self._refuse(self._at, _NOT_SHELL)
            else:
                items.append(self._word())

    def _pattern_of_words(self) -> Raw:
        """A regular expression, whose brackets have no meaning here."""
        start = self._at
        while self.text[self._at : self._at + 1] in ("(", ")", "|") or self._words.end(self._at) > self._at:
            self._count()
            self._at = max(self._words.end(self._at), self._at + 1)
        return Raw(start, min(self._at, len(self.text)))


_COMPOUND: dict[str, Callable[[Parser, int], Node]] = {
    "if": Parser._if,
    "while": Parser._while,
    "until": Parser._while,
    "for": Parser._for,
    "select": Parser._for,
    "case": Parser._case,
    "function": Parser._keyword_function,
    "{": Parser._braces,
    "(": Parser._parentheses,
    "[[": Parser._test,
}
