"""Exceptions of the service; the API maps them to problem documents, the command line to a line and exit code 2.

They are plain exceptions, not ValueErrors, so that a validator never swallows them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
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


def nearest(name: str, known: Iterable[str], *, most: int = 3, likeness: float = 0.6) -> list[str]:
    """The known names that an unknown one resembles most, regardless of case.

    >>> nearest("Tensr", ["tensor", "data", "zero_stage"])
    ['tensor']
    """
    spelled = {candidate.lower(): candidate for candidate in known}
    forms = get_close_matches(name[:LONGEST_COMPARED].lower(), spelled, n=most, cutoff=likeness)
    return [spelled[form] for form in forms]


def did_you_mean(near: Sequence[str]) -> str:
    """A suggestion of the nearest known names, in place of an unknown one.

    >>> did_you_mean(["tensor", "expert_tensor"])
    'did you mean tensor or expert_tensor?'
    """
    return f"did you mean {' or '.join(near)}?" if near else ""
