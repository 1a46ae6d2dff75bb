"""What can go wrong, as a tree of typed errors that the edges turn into problem documents or exit codes.

TraincostError
├── Refused            a question cannot be answered as asked: one Problem for each thing to mend
│   └── UnknownName    a model, GPU, cluster or price that the catalogue does not hold
├── NotFound           a resource of the path does not exist
└── StartupError       the process cannot start: one line, exit code 2

They are plain exceptions, not ValueErrors, so that a validator never swallows them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """Root of every error that traincost raises on purpose."""


class Refused(TraincostError):
    """The question breaks at least one rule; `problems` says which, in the order they were found."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(f"{p.field}: {p.message}" for p in problems))
        self.problems = problems


class UnknownName(Refused):
    """A name that the catalogue does not hold; the fix lists the nearest ones it does."""


class NotFound(TraincostError):
    """The path names a resource that does not exist."""


class StartupError(TraincostError):
    """The process cannot start: a wrong setting, a taken port, an unreachable or newer database."""
