"""Which settings of torchtitan say how layers are dealt to stages, and in which order stages work?

Source: torchtitan 0.2.2 and 0.3.0, distributed/pipeline_parallel.py.
"""

from typing import Any

from service.estimator.parallelism.pipeline import partition_layers
from service.estimator.question import Question
from service.exports.said import NOTHING, Rule, Said

SCHEDULES = {
    "1f1b": "1F1B",
    "interleaved-1f1b": "Interleaved1F1B",
    "gpipe": "GPipe",
    "zero-bubble": "ZBVZeroBubble",
    "dualpipe": "DualPipeV",
}
"""Names of pipeline schedules in torch.distributed.pipelining."""


def schedule(value: Any, question: Question) -> Said:
    """The rule of the schedule.

    Args:
        value: its name
        question: the question, every default filled

    Returns:
        what is said of it
    """
    if question.layout.pipeline == 1:
        return NOTHING
    told = f"torch's {SCHEDULES[value]} runs two chunks on each rank, the question one"
    name = ("parallelism.pipeline_parallel_schedule", SCHEDULES[value])
    return Said((name,), assumptions=(told,) if value in ("zero-bubble", "dualpipe") else ())


def chunks(value: Any, question: Question) -> Said:
    """The rule of chunks: looped schedules have two a rank unless layers are counted.

    Args:
        value: chunks of each stage
        question: the question, every default filled

    Returns:
        what is said of them
    """
    if value <= 2 or is_listed(question):
        return NOTHING
    layout = question.layout
    ends = layout.embedding_in_split + layout.loss_in_split
    layers = (question.model.num_hidden_layers + ends) // (layout.pipeline * value)
    return Said((("parallelism.pipeline_parallel_layers_per_stage", layers),))


def is_listed(question: Question) -> bool:
    """Whether layers are dealt as neither even stages nor ends that count as layers give them.

    Args:
        question: the question, every default filled

    Returns:
        True where every chunk has to be spelled
    """
    layout = question.layout
    return layout.stage_layers is not None and partition_layers(layout, question.model) != layout.stage_layers


def end(name: str) -> Rule:
    """The rule of an end of the model that counts as a layer.

    Args:
        name: first or last

    Returns:
        the rule
    """

    def rule(value: Any, question: Question) -> Said:
        if question.layout.pipeline == 1 or is_listed(question):
            return NOTHING
        return Said(((f"parallelism.pipeline_parallel_{name}_stage_less_layers", int(value)),))

    return rule


def listed_modules(head: str) -> Rule:
    """The rule of layers that are dealt by a list.

    Args:
        head: what the version calls the head

    Returns:
        the rule
    """

    def rule(value: Any, question: Question) -> Said:
        if not is_listed(question):
            return NOTHING
        names = iter(range(question.model.num_hidden_layers))
        chunks = [[f"layers.{next(names)}" for _ in range(layers)] for layers in value]
        chunks[0].insert(0, "tok_embeddings")
        chunks[-1] += ["norm", head]
        return Said((("parallelism.module_fqns_per_model_part", chunks),))

    return rule
