"""Exceptions of the service; the API maps them to problem documents, the command line to a line and exit code 2.

They are plain exceptions, not ValueErrors, so that a validator never swallows them.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from typing import Any

MOST_PROBLEMS = 20
"""Problems that one refusal names: a caller fixes a few at a time, and each takes time to write."""
LONGEST_COMPARED = 64
"""Characters of an unknown name that are compared with the known ones."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a question: where, what (with its numbers and why it matters), and what to do."""

    field: str
    """Dotted path of the field, e.g. `layout.tensor`."""
    code: str
    """Stable name of the broken rule, e.g. `tensor_divides_heads`."""
    message: str
    """What is wrong, with the numbers, and why it matters."""
    fix: str
    """What to do about it."""


class TraincostError(Exception):
    """Root of every error that traincost raises on purpose; each pickles with all of its attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        """State for pickle: constructors take other arguments than `args` holds."""
        return _restored_error, (type(self), self.args, vars(self))


def _restored_error(kind: type[TraincostError], arguments: tuple[Any, ...], state: dict[str, Any]) -> TraincostError:
    error = kind.__new__(kind)
    error.args = arguments
    vars(error).update(state)
    return error


class Refused(TraincostError):
    """The question breaks at least one rule; `problems` lists them in the order in which they were found."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(f"{p.field}: {p.message}" for p in problems))
        self.problems = problems


def refuse(problems: Sequence[Problem]) -> None:
    """Refuse a question with problems; do nothing without any."""
    if problems:
        raise Refused(*problems)


class UnknownName(Refused):
    """A name that the catalogue does not hold; the fix lists the nearest ones it does."""


class Conflict(Refused):
    """The change contradicts what the catalogue holds: a taken name, a row that others refer to, a shipped row."""


class NoWorker(Refused):
    """No live worker has the requested hardware."""


class LeaseLost(Refused):
    """The lease of the request is not valid for a job: it expired, or the id is unknown."""


class AlreadyFinished(Refused):
    """Another outcome of this attempt is stored."""


class ForAdmins(Refused):
    """Only an admin may do this, because it changes the answers of every caller."""


class NotJson(TraincostError):
    """A body is no JSON text, or no JSON object."""


class NotFound(TraincostError):
    """The path names a resource that does not exist."""


class UnknownMetric(NotFound):
    """The path names a number that no answer holds; the message lists the nearest ones."""


class UnknownRevision(NotFound):
    """No catalogue of this revision is stored; the message names the list of stored ones."""


class Stale(TraincostError):
    """The row was changed since the caller read it, so the change would undo another one."""


class Unreachable(TraincostError):
    """The database does not answer; requests that need no database are still answered."""


class Busy(Unreachable):
    """Other writes took longer than a change waits; the caller may repeat the request."""


class Leaving(Unreachable):
    """The process is about to end; a repeated request reaches another process."""


class BackupRefused(TraincostError):
    """A backup cannot be made, or is damaged, newer than this version, or would undo what a database holds."""


class StartupError(TraincostError):
    """The process cannot start: a wrong setting, a taken port, an unreachable or newer database."""


LONGEST_ECHO = 64
"""Characters of a request's text that an error repeats."""

SECRET = re.compile(
    r"\b(?:tck_|sk-|hf_|gh[opsu]_|github_pat_|glpat-|xox[abps]-|AKIA|eyJ)[\w%.~+/=-]{8,}"
    r"|(?<![\w-])(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*[0-9])[\w-]{43}(?![\w-])"
)
"""Keys of this service and of common others by their prefix, and 32 random bytes in the alphabet of URLs."""

ACTIVE = frozenset("<>&;")
"""Printable characters that begin markup, or end a cell for a program that separates cells by them."""


def quoted(value: object) -> str:
    r"""A value of a request as JSON text, shortened, secrets masked, and harmless in a page, terminal, sheet or log.

    >>> print(quoted("fp7"), quoted(True), quoted(1e9), quoted("<b>\x1b[2J"), quoted([1]), quoted("tck_12345678.x"))
    "fp7" true 1000000000.0 "\u003cb\u003e\u001b[2J" a list "***"
    """
    if isinstance(value, (list, tuple, dict)):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, (bool, int, float)):
        return _cut(json.dumps(value))
    text = json.dumps(_cut(SECRET.sub("***", str(value)[: 4 * LONGEST_ECHO])), ensure_ascii=False)
    return "".join(letter if letter.isprintable() and letter not in ACTIVE else _escaped(letter) for letter in text)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_ECHO else f"{text[:LONGEST_ECHO]}..."


def _escaped(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


WORD = re.compile(r"[0-9]+(?:\.[0-9]+)*(?:[bmtk](?![a-z]))?|[a-z]+")
"""A word of a name: letters, a version, or a size with its unit."""

LEAST_SHARED = 0.5
"""Share of two names' words, letters counting double, from which they resemble each other. Source: a choice."""
NEARLY_BEST = 0.8
"""Share of the best resemblance below which no other is named. Source: a choice."""


SLIP = 0.85
"""Likeness of two names from which one is the other misspelt, where both have the same digits. Source: a choice."""


def nearest(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """The known names that an unknown one resembles most, regardless of case: misspelt, by its words, by its letters.

    >>> nearest("Tensr", ["tensor", "data", "zero_stage"])
    ['tensor']
    >>> nearest("tensor_parallel", ["sequence_parallel", "expert_tensor", "tensor"])
    ['tensor']
    >>> nearest("llama3", ["llama-33b", "llama-3-8b", "llama-3.1-8b"])
    ['llama-3-8b', 'llama-3.1-8b']
    """
    wanted, names = name[:LONGEST_COMPARED].lower(), [*known]
    slips = [one for one in misspelt(wanted, names, most=most, likeness=SLIP) if _digits(one) == _digits(wanted)]
    if slips:
        return slips
    words = _words(wanted)
    shares = {one: _shared(words, _words(one.lower())) for one in names}
    best = max(shares.values(), default=0.0)
    if best < LEAST_SHARED:
        return misspelt(wanted, names, most=most)
    near = [one for one, share in shares.items() if share > NEARLY_BEST * best]
    likeness = {one: SequenceMatcher(None, one.lower(), wanted).ratio() for one in near}
    return sorted(near, key=lambda one: (-shares[one], -likeness[one]))[:most]


def misspelt(name: str, known: Iterable[str], *, most: int = 3, likeness: float = 0.6) -> list[str]:
    """The known names whose letters an unknown one has, nearly and regardless of case."""
    spelled = {candidate.lower(): candidate for candidate in known}
    forms = get_close_matches(name[:LONGEST_COMPARED].lower(), spelled, n=most, cutoff=likeness)
    return [spelled[form] for form in forms]


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


def _words(name: str) -> frozenset[str]:
    return frozenset(WORD.findall(name)) - {"of", "per"}


def _shared(one: frozenset[str], other: frozenset[str]) -> float:
    """Dice's coefficient of two sets of words; a version that begins another one, as 3 does 3.1, counts half."""
    if not any(len(word) > 1 for word in one & other):
        return 0.0
    begun = {word for word in one - other if word[:1].isdigit() and any(two.startswith(f"{word}.") for two in other)}
    both = sum(map(_weight, one & other)) + sum(map(_weight, begun)) / 2
    return 2 * both / (sum(map(_weight, one)) + sum(map(_weight, other)) or 1)


def _weight(word: str) -> int:
    return 2 if word.isalpha() else 1


def did_you_mean(near: Sequence[str]) -> str:
    """A suggestion of the nearest known names, in place of an unknown one.

    >>> did_you_mean(["tensor", "expert_tensor"])
    'did you mean tensor or expert_tensor?'
    """
    return f"did you mean {' or '.join(near)}?" if near else ""
