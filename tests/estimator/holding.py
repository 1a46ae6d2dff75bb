"""What does every stage of a question hold, kind by kind and in every phase, beside what its peak tells?"""

from dataclasses import fields

from service.estimator import Question
from service.estimator.memory.memory import StageBytes, stage_bytes
from service.estimator.resolve import resolve
from service.estimator.run.stages import stages_of


def held_by(asked: Question) -> list[StageBytes]:
    """Bytes of one rank of every stage, first to last."""
    found = resolve(asked)
    workload, degrees, layout = found.workload, found.degrees, found.question.layout
    return [
        stage_bytes(workload, degrees, one.stage, one.load, layout)
        for one in stages_of(workload, degrees, found.question.layout)
    ]


def kinds_of(held: StageBytes) -> dict[str, float]:
    """Bytes of a stage by kind, those of all phases."""
    return {field.name: float(getattr(held, field.name)) for field in fields(StageBytes)}
