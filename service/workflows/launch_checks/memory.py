"""What is measured of a device's memory? What a bare context takes, and how fast bytes are copied."""

from service.workflows.launch_checks.items import Expected, Item, moved_bytes_per_s
from service.workflows.launch_checks.target import Target

SIZES_BYTES = (1 << 26, 1 << 30)
"""Bytes that are copied on a GPU. Source: a choice; the larger fills no cache."""

CPU_SIZES_BYTES = (1 << 24, 1 << 26)
"""The same on a processor. Source: a choice."""

MOVED = {"copy": 2.0, "read": 1.0, "host_to_device": 1.0, "device_to_host": 1.0}
"""Bytes that an operation moves for each byte that it is about. Source: definition."""


CONTEXT = Expected(probe="context", operation="context", shape={}, quantity="bytes")
"""What a bare context and its first kernel take."""


def bandwidth_items(target: Target) -> tuple[Item, ...]:
    """The copies that are measured.

    Args:
        target: the machine

    Returns:
        an item a size
    """
    sizes = SIZES_BYTES if target.is_gpu else CPU_SIZES_BYTES
    return tuple(
        Item(
            entry=size,
            name=f"copies of {size} bytes",
            once_seconds=sum(MOVED.values()) * size / moved_bytes_per_s(target),
            weight_flop=float(-size),
            memory_bytes=3.0 * size,
            expected=tuple(
                Expected(probe="bandwidth", operation=operation, shape={"size_bytes": size}, quantity="bytes_per_s")
                for operation in MOVED
            ),
        )
        for size in sizes
    )
