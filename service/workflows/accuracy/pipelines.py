"""How are layers dealt out to the stages of a pipeline, where a framework is told so in words or does it by cost?"""

from math import isqrt


def layers_spread(layers: int, parts: int, *, rest_last: bool) -> tuple[int, ...]:
    """Layers of each part of a pipeline that they do not fill evenly.

    Args:
        layers: layers of the model
        parts: stages, or stages x chunks
        rest_last: every part is full but the last; else the first parts have one layer more

    Returns:
        the number of layers of each

    >>> layers_spread(61, 16, rest_last=True)
    (4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1)
    >>> layers_spread(10, 4, rest_last=False), layers_spread(9, 8, rest_last=True)
    ((3, 3, 2, 2), (2, 1, 1, 1, 1, 1, 1, 1))
    """
    full = -(-layers // parts)
    if rest_last and full * (parts - 1) < layers:
        return (*(full,) * (parts - 1), layers - full * (parts - 1))
    return tuple(layers // parts + (part < layers % parts) for part in range(parts))


def layers_by_cost(layers: int, stages: int, layer_cost: float, head_cost: float) -> tuple[int, ...]:
    """Layers of each stage where blocks go on to the next stage once their cost reaches its share (nanotron).

    Args:
        layers: layers of the model
        stages: stages of the pipeline
        layer_cost: cost of one layer
        head_cost: cost of the head; the embedding costs nothing

    Returns:
        the number of layers of each

    >>> layers_by_cost(16, 2, 1.0, 5.0)
    (11, 5)
    """
    share = (layers * layer_cost + head_cost) / stages
    counts, stage, reached = [0] * stages, 0, 0.0
    for _ in range(layers):
        counts[stage] += 1
        reached += layer_cost
        if reached > share * (stage + 1) and stage < stages - 1:
            stage += 1
    return tuple(counts)


def virtual_group(micro_batches: int, stages: int) -> int | None:
    """Micro-batches that a stage runs through one chunk before the next, where they do not fill whole rounds.

    Args:
        micro_batches: micro-batches of one step
        stages: stages of the pipeline

    Returns:
        the smallest divisor that is at least the number of stages; None where rounds are whole, or there is none

    >>> virtual_group(5, 4), virtual_group(8, 4), virtual_group(2, 4)
    (5, None, None)
    """
    if micro_batches % stages == 0:
        return None
    lower = [size for size in range(1, isqrt(micro_batches) + 1) if micro_batches % size == 0]
    sizes = [*lower, *(micro_batches // size for size in lower)]
    return min((size for size in sizes if size >= stages), default=None)
