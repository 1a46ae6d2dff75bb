"""How are layers dealt out to the stages of a pipeline, where a framework is told so in words or does it by cost?"""

import re
from collections.abc import Sequence
from math import isqrt

from service.calibration.measured_rows import NotExpressible

LONGEST_LAYOUT = 4096
"""Characters of a pipeline layout, written out."""

MOST_PARTS = 1 << 12
"""Chunks of all stages together."""

_GROUP = re.compile(r"\(([^()]*)\)(?:\*(\d{1,4}))?")
_SYMBOL = re.compile(r"([A-Za-z|])\*(\d{1,4})")
_WRITTEN_OUT = re.compile(r"[EtmL|]*")


def layers_of_layout(written: str) -> tuple[int, ...]:
    """Layers of each stage and chunk of a pipeline-model-parallel-layout, in the order of the model.

    Args:
        written: E embedding, t layer, m multi-token-prediction depth, L loss, | next stage, (..)*n and x*n repeated

    Returns:
        the number of layers of each

    Raises:
        NotExpressible: it is no such text

    >>> layers_of_layout("Et*3|(tt|)*6tmL")
    (3, 2, 2, 2, 2, 2, 2, 1)
    >>> layers_of_layout("Et*2|(tt|)*2t|tmL")
    (2, 2, 2, 1, 1)
    """
    text = written.replace(",", "").replace(" ", "")
    for pattern in (_GROUP, _SYMBOL):
        while found := pattern.search(text):
            text = f"{text[: found.start()]}{found[1] * int(found[2] or 1)}{text[found.end() :]}"
            if len(text) > LONGEST_LAYOUT:
                raise NotExpressible("flag pipeline-model-parallel-layout: too long")
    if not _WRITTEN_OUT.fullmatch(text):
        raise NotExpressible("flag pipeline-model-parallel-layout: not understood")
    return tuple(stage.count("t") for stage in text.split("|"))


def layers_with_ends(layers: int, parts: int, first: int | None, last: int | None) -> tuple[int, ...]:
    """Layers of each part of a pipeline whose first or last part has a number of its own.

    Args:
        layers: layers of the model
        parts: stages, or stages x chunks
        first: layers of the first part; as all others where None
        last: layers of the last part

    Returns:
        the number of layers of each

    Raises:
        NotExpressible: the rest does not spread evenly

    >>> layers_with_ends(12, 4, 2, None)
    Traceback (most recent call last):
    ...
    service.calibration.measured_rows.NotExpressible: layers: no even split over the pipeline
    >>> layers_with_ends(12, 4, 2, 2)
    (2, 4, 4, 2)
    """
    given = [count for count in (first, last) if count is not None]
    inner, left = parts - len(given), layers - sum(given)
    if not 1 <= inner <= MOST_PARTS or left < 0 or left % inner:
        raise NotExpressible("layers: no even split over the pipeline")
    middle = (left // inner,) * inner
    return (*(() if first is None else (first,)), *middle, *(() if last is None else (last,)))


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


def even_chunks(stage_layers: Sequence[int], stages: int) -> int:
    """Chunks of each stage in a list of the layers of all chunks.

    Args:
        stage_layers: layers of each stage and chunk
        stages: stages of the pipeline

    Returns:
        chunks of each stage

    Raises:
        NotExpressible: the list is not as long as a whole number of stages

    >>> even_chunks((3, 2, 2, 2), 2)
    2
    """
    if len(stage_layers) % stages:
        raise NotExpressible("flag pipeline-model-parallel-layout: not a whole number of chunks for each stage")
    return len(stage_layers) // stages
