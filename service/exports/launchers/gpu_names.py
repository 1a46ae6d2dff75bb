"""What do launchers in clouds call a GPU?

Source: catalogues of SkyPilot 0.14.1 and of dstack 0.22.5, whose names are a family and sometimes its memory.
"""

import re

_MEMORY = re.compile(r"-(\d+)gb")


_SMALLER = {"A100": 40, "V100": 16}
"""GB of the smaller one, in families of two sizes: the name of the larger one says its memory."""


def family_of(slug: str) -> str:
    """The family of a GPU.

    Args:
        slug: its name in the catalogue

    Returns:
        what clouds call it

    >>> family_of("h100-sxm5-80gb"), family_of("rtx-4090"), family_of("mi300x-192gb")
    ('H100', 'RTX4090', 'MI300X')
    """
    first, _, others = slug.partition("-")
    return (first + others.partition("-")[0] if first == "rtx" else first).upper()


def memory_of(slug: str) -> int | None:
    """The memory that a GPU's name says.

    Args:
        slug: its name in the catalogue

    Returns:
        GB; None where it does not say

    >>> memory_of("h100-sxm5-80gb"), memory_of("l40s")
    (80, None)
    """
    found = _MEMORY.search(slug)
    return int(found[1]) if found else None


def sized_name_of(slug: str) -> str:
    """The family, with its memory where that tells two apart.

    Args:
        slug: its name in the catalogue

    Returns:
        the name

    >>> sized_name_of("a100-sxm4-80gb"), sized_name_of("a100-sxm4-40gb"), sized_name_of("h100-sxm5-80gb")
    ('A100-80GB', 'A100', 'H100')
    """
    family, memory = family_of(slug), memory_of(slug)
    is_larger = family in _SMALLER and memory is not None and memory > _SMALLER[family]
    return f"{family}-{memory}GB" if is_larger else family
