"""What does every stage of a question hold, kind by kind and in every phase, beside what its peak tells?"""

from dataclasses import fields

from service.estimator import Question
from service.estimator.memory.memory import StageBytes
from service.estimator.resolve import resolve
from service.estimator.run.stages import rank_bytes_of, stages_of


def held_by(asked: Question) -> list[StageBytes]:
    """Bytes of one rank of every stage, first to last."""
    found = resolve(asked)
    return [rank_bytes_of(found, one) for one in stages_of(found)]


def kinds_of(held: StageBytes) -> dict[str, float]:
    """Bytes of a stage by kind, those of all phases."""
    return {field.name: float(getattr(held, field.name)) for field in fields(StageBytes)}
