"""The layers of each stage of a pipeline, as Megatron-LM writes them.

Source: NVIDIA/Megatron-LM@d98e8a64 megatron/core/transformer/pipeline_parallel_layer_layout.py.
"""

import re
from collections.abc import Sequence

from service.calibration.tables import NotExpressible

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
        while len(text) <= LONGEST_LAYOUT and pattern.search(text):
            text = _repeated(pattern, text)
    if len(text) > LONGEST_LAYOUT:
        raise NotExpressible("flag pipeline-model-parallel-layout: too long")
    if not _WRITTEN_OUT.fullmatch(text):
        raise NotExpressible("flag pipeline-model-parallel-layout: not understood")
    return tuple(stage.count("t") for stage in text.split("|"))


def _repeated(pattern: re.Pattern[str], text: str) -> str:
    """A layout with its innermost repetitions written out, cut soon after the longest that is read."""
    parts: list[str] = []
    length = end = 0
    for found in pattern.finditer(text):
        times = min(int(found[2] or 1), LONGEST_LAYOUT)
        parts += (text[end : found.start()], found[1] * times)
        length += len(parts[-2]) + len(parts[-1])
        end = found.end()
        if length > LONGEST_LAYOUT:
            return "".join(parts)
    return "".join((*parts, text[end:]))


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
    service.calibration.tables.NotExpressible: layers: no even split over the pipeline
    >>> layers_with_ends(12, 4, 2, 2)
    (2, 4, 4, 2)
    """
    given = [count for count in (first, last) if count is not None]
    inner, left = parts - len(given), layers - sum(given)
    if not 1 <= inner <= MOST_PARTS or left < 0 or left % inner:
        raise NotExpressible("layers: no even split over the pipeline")
    middle = (left // inner,) * inner
    return (*(() if first is None else (first,)), *middle, *(() if last is None else (last,)))


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
