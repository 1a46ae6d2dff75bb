"""Which stages hold too many bytes, and would they still if the allocator gave back all that it caches?

Live tensors only grow with the batch, the sequence and the layers. What the allocator holds beside them grows, too, up
to where it runs into the device's end and gives it back: there the bytes of a stage fall, and a larger value may fit
where a smaller one did not. So of each stage two things are asked, each of which stays true once it is: whether its
live tensors are too many, and whether what it holds is, for as long as it holds it.
"""

from dataclasses import dataclass

from service.estimator.answer import Memory
from service.estimator.memory.device import reserved_bytes, reserved_shares
from service.estimator.question import Question
from service.estimator.resolve import resolve
from service.planner.solve_limits import SolveLimits
from service.planner.why_not import most_device_bytes


@dataclass(frozen=True, slots=True)
class Shortage:
    """What keeps a job from fitting."""

    is_final: bool
    """Whether no larger value can do: live tensors are too many."""
    stages: frozenset[int] = frozenset()
    """Stages that hold too many bytes, of which the allocator would give some back if it had to."""


NONE = Shortage(is_final=False)


def shortage_of(question: Question, memory: Memory, limits: SolveLimits) -> Shortage:
    """What keeps a job from fitting that does not.

    Args:
        question: the question
        memory: the memory of its answer
        limits: what has to stay free

    Returns:
        the stages that hold too much
    """
    device = memory.device_peak_bytes
    beside = device.value - memory.reserved_peak_bytes.value
    room = most_device_bytes(device, memory.usable_bytes, limits) - beside
    share = reserved_shares(resolve(question).job)[1]
    final = any(reserved_bytes(one.allocated_peak_bytes, 0.0, share, room) > room for one in memory.stages)
    stages = frozenset(one.stage for one in memory.stages if one.reserved_peak_bytes > room)
    return Shortage(is_final=final or not stages, stages=stages)
