"""Transfers to measure: collectives of the layout with their real sizes, and copies in memory."""

from collections.abc import Iterator, Sequence

from service.estimator.degrees import Transfer
from service.estimator.parallelism.data import step_transfers
from service.estimator.resolve import ResolvedQuestion
from service.estimator.run.stages import stages_of
from service.estimator.time.communication import micro_batch_transfers
from service.features.launch_checks.items import Expected, Item, moved_bytes_per_s
from service.features.launch_checks.targets import Target

MOST_BYTES = 1 << 28
"""Largest message. Source: a choice; larger ones run at the same rate."""

CPU_MOST_BYTES = 1 << 24
"""The same on a processor. Source: a choice; gloo copies through memory."""

LEAST_BYTES = 1 << 12
"""Smallest message. Source: a choice; below it only latency counts."""

DEFAULT_BYTES = (1 << 16, 1 << 20, 1 << 24)
"""Messages where the layout sends none. Source: a choice; latency, a protocol's change, bandwidth."""

SIZES = 3
"""Messages of one operation, at most. Source: a choice."""

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")


def collective_items(resolved: ResolvedQuestion, target: Target) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """Collectives of one step."""
    if target.ranks < 2:
        return (), (f"collectives: the worker has one {target.device}, and one rank sends nothing",)
    sent, most = _counted(resolved), MOST_BYTES if target.is_gpu else CPU_MOST_BYTES
    notes: list[str] = []
    items = []
    for operation in OPERATIONS:
        own = sorted((bytes_ * count, bytes_, count) for (name, bytes_), count in sent.items() if name == operation)
        for _, bytes_, count in own[::-1][:SIZES]:
            size = int(min(max(bytes_, LEAST_BYTES), most)) // LEAST_BYTES * LEAST_BYTES
            if size < 0.99 * bytes_:
                notes.append(f"{operation} of {bytes_:.3g} bytes: measured with {size}, which runs at the same rate")
            items.append(_item(operation, size, count if size >= 0.99 * bytes_ else None, target))
    if not sent:
        items = [_item(operation, size, None, target) for operation in OPERATIONS for size in DEFAULT_BYTES]
        notes.append("collectives: one GPU sends nothing, so sizes of common use are measured")
    return tuple({(item.name): item for item in items}.values()), tuple(notes)


def _counted(resolved: ResolvedQuestion) -> dict[tuple[str, float], float]:
    """Runs of each message of one rank in one step, over the stages."""
    counts: dict[tuple[str, float], float] = {}
    for transfer, times in _sent(resolved):
        ranks, size, count = (float(number) for number in (transfer.ranks, transfer.bytes, transfer.count))
        if ranks > 1 and size > 0 and count * times > 0:
            key = (transfer.collective, size)
            counts[key] = counts.get(key, 0.0) + count * times
    return counts


def _sent(resolved: ResolvedQuestion) -> Iterator[tuple[Transfer, float]]:
    job, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    micro_batches = float(degrees.accumulation)
    for loaded in {one.shape: one for one in stages_of(job, degrees, layout)}.values():
        for repeated in micro_batch_transfers(job, degrees, loaded.stage, loaded.load, layout).each():
            yield from ((transfer, float(repeated.layers) * micro_batches) for transfer in repeated.transfers)
        yield from ((transfer, 1.0) for transfer in step_transfers(job, degrees, loaded.load.held))


def _item(operation: str, size: int, count: float | None, target: Target) -> Item:
    shape = {"size_bytes": size, "ranks": target.ranks}
    return Item(
        entry={"operation": operation, "size_bytes": size},
        name=f"{operation} of {size} bytes",
        once_seconds=4 * target.ranks * size / moved_bytes_per_s(target),
        weight_flop=size * (count or 0.0),
        memory_bytes=4.0 * size,
        expected=(
            Expected(
                probe="collective", operation=operation, shape=shape, quantity="seconds",
                count=count,
            ),
        ),
    )  # fmt: skip


def merged(items: Sequence[Item]) -> dict[str, object]:
    """Task parameters of several items: operations and sizes."""
    return {
        "operations": list(dict.fromkeys(item.entry["operation"] for item in items)),
        "sizes_bytes": sorted({item.entry["size_bytes"] for item in items}),
    }


SIZES_BYTES = (1 << 26, 1 << 30)
"""Bytes that are copied on a GPU. Source: a choice; the larger fills no cache."""

CPU_SIZES_BYTES = (1 << 24, 1 << 26)
"""The same on a processor. Source: a choice."""

MOVED = {"copy": 2.0, "read": 1.0, "host_to_device": 1.0, "device_to_host": 1.0}
"""Bytes that an operation moves per byte of its size. Source: definition."""


CONTEXT = Expected(probe="context", operation="context", shape={}, quantity="bytes")
"""Memory of a bare context and its first kernel."""


def bandwidth_items(target: Target) -> tuple[Item, ...]:
    """Copies to measure."""
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
