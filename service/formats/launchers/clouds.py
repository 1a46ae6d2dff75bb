"""Tasks of SkyPilot and dstack.

Source: SkyPilot 0.14.1 sky/utils/schemas.py, dstack 0.22.5 _internal/core/models/configurations.py, and their
documentation of distributed tasks.
"""

import re

from service.formats.program import NAME, Nodes, Program, launcher, script_of
from service.formats.rules import ExportRequest
from service.formats.text import yaml_text

_MEMORY = re.compile(r"-(\d+)gb")

_SMALLER = {"A100": 40, "V100": 16}
"""GB of the smaller GPU, in families of two sizes: the name of the larger one states its memory."""


def family_of(slug: str) -> str:
    """The family of a GPU.

    >>> family_of("h100-sxm5-80gb"), family_of("rtx-4090"), family_of("mi300x-192gb")
    ('H100', 'RTX4090', 'MI300X')
    """
    first, _, others = slug.partition("-")
    return (first + others.partition("-")[0] if first == "rtx" else first).upper()


def memory_of(slug: str) -> int | None:
    """GB of memory in a GPU's name.

    >>> memory_of("h100-sxm5-80gb"), memory_of("l40s")
    (80, None)
    """
    found = _MEMORY.search(slug)
    return int(found[1]) if found else None


def sized_name_of(slug: str) -> str:
    """The family, with its memory if that distinguishes two.

    Source: catalogues of SkyPilot 0.14.1 and of dstack 0.22.5.

    >>> sized_name_of("a100-sxm4-80gb"), sized_name_of("a100-sxm4-40gb"), sized_name_of("h100-sxm5-80gb")
    ('A100-80GB', 'A100', 'H100')
    """
    family, memory = family_of(slug), memory_of(slug)
    is_larger = family in _SMALLER and memory is not None and memory > _SMALLER[family]
    return f"{family}-{memory}GB" if is_larger else family


_FIRST = 'export MASTER_ADDR="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"\n'


def _sky_task(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    gpus = f"{sized_name_of(request.question.gpu.slug)}:{nodes.gpus_each}"
    return yaml_text(
        {
            "name": NAME,
            "num_nodes": nodes.count,
            "resources": {"accelerators": gpus},
            "run": script_of(program, nodes, before=_FIRST),
        }
    )


SKYPILOT = launcher("skypilot", _sky_task)


def _dstack_task(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    slug = request.question.gpu.slug
    memory = memory_of(slug)
    gpu_parts = (family_of(slug), *(() if memory is None else (f"{memory}GB",)), str(nodes.gpus_each))
    return yaml_text(
        {
            "type": "task",
            "name": NAME,
            "nodes": nodes.count,
            "commands": [script_of(program, nodes)],
            "resources": {"gpu": ":".join(gpu_parts), "shm_size": "64GB"},
        }
    )


DSTACK = launcher("dstack", _dstack_task)
