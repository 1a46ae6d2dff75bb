"""What would make a job fit: which single change saves how much memory, and what does it cost in time?"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from service.errors import Refused
from service.estimator.filled import filled
from service.estimator.fullest import fullest_of
from service.estimator.memory_parts import Change, Memory, Verdict
from service.estimator.question import Question
from service.estimator.resolve import Resolved, resolve
from service.estimator.run import loads_of
from service.estimator.stage_answers import LoadedStage, slowest_step, stages_of, total_seconds
from service.estimator.trials import Ladder, Trial, last_resorts, single_changes
from service.estimator.verdict import verdict_of
from service.units import BYTES, said

MOST_TRIES = 16
"""Changed questions that an answer tries. Source: a choice; more would cost an answer its speed."""

MOST_LAST_TRIES = 4
"""The same for last resorts. Source: a choice."""

MOST_CHANGES = 8
"""Changes that an answer names. Source: a choice; more are not read."""

VERDICTS: tuple[Verdict, ...] = ("fits", "at_risk", "out_of_memory")
"""In the order in which changes are told."""

LEAST_SAVING = 0.01
"""Share of the device peak that a change must save to be worth a line. Source: a choice; less is within the spread."""


@dataclass(slots=True)
class Tried:
    """One question, its fullest GPU and what is needed to tell its step."""

    resolved: Resolved
    stages: list[LoadedStage]
    memory: Memory
    """What they hold."""

    @property
    def device_bytes(self) -> float:
        """Device peak of the fullest GPU [byte]."""
        return self.memory.device_peak_bytes.value

    @property
    def verdict(self) -> Verdict:
        """Whether it fits."""
        return verdict_of(self.memory.oom_probability_fraction)

    @property
    def token_seconds(self) -> float:
        """Seconds of one step over its tokens: a batch that is left to its default follows the layout."""
        job, degrees, layout = self.resolved.job, self.resolved.degrees, self.resolved.question.layout
        tokens = filled(job.recipe.global_batch) * job.recipe.sequence_length
        return total_seconds(slowest_step(job, degrees, layout, self.stages)) / tokens


@dataclass(slots=True)
class Climb:
    """A ladder on the way up."""

    left: Iterator[Trial]
    """Values that are not tried yet."""
    tried: list[tuple[Trial, Tried]] = field(default_factory=list)
    """Those that broke no rule."""
    is_enough: bool = False
    """Whether the last one made the job fit."""
    goes_on: bool = True
    """Whether a next value may be better."""

    def step(self) -> None:
        """Try the next value that breaks no rule."""
        for trial in self.left:
            try:
                tried = _tried(trial.question)
            except Refused:
                continue
            is_better = all(tried.device_bytes < other.device_bytes for _, other in self.tried)
            self.tried.append((trial, tried))
            self.is_enough = tried.verdict == "fits"
            self.goes_on = is_better and not self.is_enough
            return
        self.goes_on = False


def _always() -> bool:
    return True


def advised(memory: Memory, asked: Question, goes_on: Callable[[], bool] = _always) -> Memory:
    """The memory part of an answer with what to change where it does not surely fit.

    Args:
        memory: the memory part
        asked: the question as it was asked, which every change changes
        goes_on: whether there is time to try another one

    Returns:
        the same with changes and suggestions; as it was where it fits
    """
    if verdict_of(memory.oom_probability_fraction) == "fits":
        return memory
    changes = ranked_changes(asked, memory.biggest_line, goes_on)
    return replace(memory, changes=changes, suggestions=tuple(map(in_words, changes)))


def ranked_changes(asked: Question, biggest: str, goes_on: Callable[[], bool] = _always) -> tuple[Change, ...]:
    """Single changes that save memory, those first that make the job fit, and among them the cheapest in time.

    Of each field the first value that is enough is told, or else the one that saves most. More GPUs and methods that
    train less are tried where nothing else is enough.

    Args:
        asked: the question as it was asked, which does not surely fit
        biggest: kind of the largest line of the fullest stage
        goes_on: whether there is time to try another one

    Returns:
        the changes with what each saves and costs
    """
    before = _tried(asked)
    factor, seconds = before.device_bytes / before.memory.usable_bytes, before.token_seconds
    climbs = _climbed(single_changes(asked, before.resolved, biggest, factor), MOST_TRIES, goes_on)
    if not any(climb.is_enough for climb in climbs):
        climbs += _climbed(last_resorts(asked, factor), MOST_LAST_TRIES, goes_on)
    found = [change for climb in climbs for change in _told(climb, before.device_bytes, seconds)]
    return tuple(sorted(found, key=lambda change: (VERDICTS.index(change.verdict), _cost(change)))[:MOST_CHANGES])


def _climbed(ladders: Iterable[Ladder], most: int, goes_on: Callable[[], bool]) -> list[Climb]:
    """The values of each ladder that break no rule, up to the first that is enough, a value of each ladder in turn."""
    climbs = [Climb(iter(ladder)) for ladder in ladders]
    going = climbs
    while going and most > 0:
        for climb in going[:most]:
            if not goes_on():
                return climbs
            climb.step()
        most -= len(going)
        going = [climb for climb in going if climb.goes_on]
    return climbs


def _told(climb: Climb, before_bytes: float, before_seconds: float) -> Iterator[Change]:
    """The change that a ladder comes to: the first value that is enough, or else the one that saves most."""
    worthwhile = [
        (trial, tried)
        for trial, tried in climb.tried
        if before_bytes - tried.device_bytes > LEAST_SAVING * before_bytes
    ]
    if not worthwhile:
        return
    trial, tried = min(worthwhile, key=lambda one: one[1].device_bytes)
    yield Change(
        field=trial.field,
        value=trial.value,
        also=trial.also,
        saves_bytes=before_bytes - tried.device_bytes,
        device_peak_bytes=tried.device_bytes,
        verdict=tried.verdict,
        slower_fraction=tried.token_seconds / before_seconds - 1,
    )


def _cost(change: Change) -> float:
    """What ranks a change: time lost where it fits, memory still missing where it does not."""
    return change.slower_fraction if change.verdict == "fits" else change.device_peak_bytes


def _tried(question: Question) -> Tried:
    found = resolve(question)
    stages = stages_of(found.job, found.degrees, found.question.layout)
    return Tried(found, stages, fullest_of(found, stages, loads_of(found, stages)).memory)


def in_words(change: Change) -> str:
    """A change as a person reads it.

    Args:
        change: the change

    Returns:
        what to set, what it saves, what it costs, and whether it is enough

    >>> wider = Change(
    ...     field="layout.tensor", value="4", also=("layout.data=2",), saves_bytes=2.0**30, device_peak_bytes=1.0,
    ...     verdict="fits", slower_fraction=0.3,
    ... )
    >>> in_words(wider)
    'tensor 4 with data 2: saves 1 GiB, 30 % slower, fits'
    """
    percent = round(100 * change.slower_fraction)
    pace = "as fast" if percent == 0 else f"{abs(percent)} % {'slower' if percent > 0 else 'faster'}"
    enough = {"fits": "fits", "at_risk": "then at risk", "out_of_memory": "not enough alone"}[change.verdict]
    beside = "".join(f" with {one.partition('.')[2].replace('=', ' ')}" for one in change.also)
    setting = f"{change.field.partition('.')[2]} {change.value}{beside}"
    return f"{setting}: saves {said(change.saves_bytes, BYTES)}, {pace}, {enough}"
