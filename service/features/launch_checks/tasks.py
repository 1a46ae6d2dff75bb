"""Tasks for the worker: kernels and transfers of the requested probes, largest items first, within the time limit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, floor
from typing import Any

from service.calibration.observations import Observed, live_step_bytes, predicted_value
from service.calibration.records import BACKWARD_WORK, Environment, Measurement, ProbeName, ProbeTask
from service.estimator.answer import Basis, Interval
from service.estimator.constants import LAUNCH_SECONDS, MEMORY_FRACTION, calibration_of, streaming_bytes_per_s
from service.estimator.degrees import Transfer, divisors
from service.estimator.estimate import estimate
from service.estimator.memory.activations import rank_logits
from service.estimator.model.build import MIXERS
from service.estimator.model.ledger import LayerShape, Op, Split
from service.estimator.parallelism.data import step_transfers
from service.estimator.question import Gpu
from service.estimator.resolve import ResolvedQuestion
from service.estimator.run.run import stages_of
from service.estimator.run.totals import scaled
from service.estimator.time.communication import micro_batch_transfers
from service.estimator.time.kernels import RankProduct, product_shape, rank_products
from service.estimator.time.rates import OPERAND_BYTES
from service.estimator.workload import Workload
from service.features.launch_checks.targets import (
    CPU_DTYPE,
    DTYPES,
    Expected,
    Item,
    SizedQuestion,
    Target,
    expected_seconds,
    moved_bytes_per_s,
    reached_flop_per_s,
)
from service.validation.reading import to_wire

Measurable = tuple[tuple[Item, ...], tuple[str, ...]]


def product_items(resolved: ResolvedQuestion, target: Target) -> Measurable:
    """Matrix products of one step, equal ones merged."""
    groups: dict[tuple[str, int, int, int, str, int], list[RankProduct]] = {}
    left_out: set[str] = set()
    for product in rank_products(resolved.workload, resolved.degrees):
        dtype = DTYPES.get(product.format) if target.is_gpu else CPU_DTYPE
        if dtype is None:
            left_out.add(f"products in {product.format}: no probe has kernels for them")
            continue
        shape = product.shape
        sizes = (max(1, round(float(size))) for size in (shape.rows, shape.columns, shape.inner, shape.copies))
        rows, columns, inner, copies = sizes
        groups.setdefault((product.product, rows, columns, inner, dtype, copies), []).append(product)
    items = []
    for (operation, rows, columns, inner, dtype, copies), products in groups.items():
        name, count = products[0].name, sum(float(product.count) for product in products)
        flop = 2.0 * rows * columns * inner * copies
        shape_fields = {
            "name": name, "rows": rows, "columns": columns, "inner": inner, "dtype": dtype, "copies": copies,
        }  # fmt: skip
        width = OPERAND_BYTES[next(name for name, probe_name in DTYPES.items() if probe_name == dtype)]
        reference_width = 4.0  # a reference in higher precision
        operands = (width + reference_width) * inner * (rows + columns) * copies
        items.append(
            Item(
                entry={"operation": operation, **shape_fields},
                name=f"{name} {operation} {rows} x {columns} x {inner}",
                once_seconds=flop / reached_flop_per_s(target, dtype),
                weight_flop=flop * count,
                memory_bytes=operands + 2 * reference_width * rows * columns * copies,
                expected=(expected_seconds("gemm", operation, shape_fields, count),),
            )
        )
    return tuple(items), tuple(sorted(left_out))


def attention_items(resolved: ResolvedQuestion, target: Target) -> Measurable:
    """Attention kernels of one step, equal ones merged."""
    ledger = resolved.workload.ledger
    refusals = [_unmeasured(resolved.workload, shape) for shape in ledger.shapes]
    layers = sum(
        count
        for count, shape, refusal in zip(ledger.kind_counts(), ledger.shapes, refusals, strict=True)
        if refusal is None and MIXERS[shape.mixer].attends
    )
    count = layers * float(resolved.degrees.accumulation)
    entries = _entries(resolved, target) if layers else []
    items = tuple(_attention_item(entry, count if place == 0 else None, target) for place, entry in enumerate(entries))
    return items, tuple(sorted({refusal for refusal in refusals if refusal is not None}))


def _unmeasured(workload: Workload, shape: LayerShape) -> str | None:
    """Why the attention of a layer cannot be measured; None where it can, or where the layer has none."""
    if not MIXERS[shape.mixer].attends:
        return f"layers of {shape.mixer}: no probe runs their scan" if MIXERS[shape.mixer].carries_state else None
    if workload.model.kv_lora_rank is not None:
        return "latent attention: no probe runs heads whose queries and values differ in width"
    tokens = workload.recipe.sequence_length
    if shape.mixer == "sliding_attention" and (workload.model.sliding_window or tokens) < tokens:
        return f"attention with a window of {workload.model.sliding_window} tokens: no probe runs it"
    if shape.mixer == "chunked_attention" and (workload.model.attention_chunk_size or tokens) < tokens:
        return f"attention in chunks of {workload.model.attention_chunk_size} tokens: no probe runs it"
    return None


def _entries(resolved: ResolvedQuestion, target: Target) -> list[dict[str, Any]]:
    workload, layout = resolved.workload, resolved.question.layout
    ranks = layout.tensor * (layout.context if layout.context_method == "ulysses" else 1)
    heads, key_heads = (
        max(1, heads // ranks) for heads in (workload.model.num_attention_heads, workload.model.key_value_heads)
    )
    own = (
        "eager" if workload.kernel == "eager" else "cudnn" if workload.kernel == "cudnn" and target.is_gpu else "flash"
    )
    others = ("flash",) if own != "flash" else ("eager",) if not target.is_gpu else ("cudnn",)
    dtype = DTYPES.get(workload.precision.attention_format, "bf16") if target.is_gpu else CPU_DTYPE
    return [
        {
            "kernel": kernel, "batch": workload.recipe.micro_batch, "heads": heads, "kv_heads": key_heads,
            "length": workload.recipe.sequence_length, "width": workload.model.head_width, "dtype": dtype,
            "causal": True,
        }
        for kernel in (own, *others)
    ]  # fmt: skip


def _attention_item(entry: Mapping[str, Any], count: float | None, target: Target) -> Item:
    forward = forward_flop(entry)
    scores = 4.0 * entry["batch"] * entry["heads"] * entry["length"] ** 2
    return Item(
        entry=entry,
        name=f"{entry['kernel']} attention over {entry['length']} tokens",
        once_seconds=(1 + BACKWARD_WORK) * 2 * forward / reached_flop_per_s(target, entry["dtype"]),
        weight_flop=(1 + BACKWARD_WORK) * forward * (count or 0.0),
        memory_bytes=4 * scores if entry["kernel"] == "eager" else 8 * scores / entry["length"] * entry["width"],
        expected=tuple(expected_seconds("attention", one, entry, count) for one in ("forward", "backward")),
    )


def forward_flop(entry: Mapping[str, Any]) -> float:
    """FLOP of a kernel's forward pass over visible keys.

    >>> forward_flop({"batch": 1, "heads": 2, "length": 8, "width": 4})
    1024.0
    """
    pairs_twice = float(entry["length"] ** 2)
    return 2 * pairs_twice * float(entry["batch"] * entry["heads"] * entry["width"])


NORMS: Mapping[str, str] = {
    "rmsnorm": "rms_norm", "rmsnorm_1p": "rms_norm", "layernorm": "layer_norm", "layernorm_no_bias": "layer_norm",
    "nonparametric": "layer_norm",
}  # fmt: skip

PASSES: Mapping[str, tuple[float, float]] = {
    "rms_norm": (2, 4), "layer_norm": (2, 4), "silu_mul": (3, 5), "gelu": (2, 3), "cross_entropy": (2, 2),
}  # fmt: skip
"""Tensors of rows x width that a kernel reads and writes, forward and backward.
Source: definition: inputs and outputs; a norm's weight gradient is also summed over rows."""

UPDATE_BYTES = 28.0
"""Bytes that AdamW reads and writes for each parameter in fp32: it reads weight, gradient and two moments, and
writes all but the gradient. Source: definition."""
MOST_PARAMETERS = 1 << 26
"""Parameters of the update that is measured, at most. Source: a choice; a larger update runs at the same rate."""
CPU_PARAMETERS = 1 << 22
"""The same on a processor. Source: a choice; too many for a cache."""
LOGIT_BYTES = 4
"""Bytes of a logit in the loss. Source: torch.nn.functional.cross_entropy of fp32 logits, as all stacks compute it."""

WIDTHS: Mapping[str, float] = {"fp32": 4, "fp16": 2, "bf16": 2}


def elementwise_items(resolved: ResolvedQuestion, target: Target) -> Measurable:
    """Elementwise kernels of one step, equal ones merged."""
    counts: dict[tuple[str, int, int, str], float] = {}
    for operation, rows, width, dtype, times in (
        *_norms_and_activations(resolved, target),
        *_loss_and_optimizer(resolved, target),
    ):
        key = (operation, rows, width, dtype)
        counts[key] = counts.get(key, 0.0) + times
    items = []
    for (operation, rows, width, dtype), times in counts.items():
        for direction in ("forward",) if operation == "adamw" else ("forward", "backward"):
            shape = {"rows": rows, "width": width, "dtype": dtype, "direction": direction}
            entry = {"operation": operation, **shape}
            moved = moved_bytes(entry)
            items.append(
                Item(
                    entry=entry,
                    name=f"{operation} {direction} {rows} x {width}",
                    once_seconds=moved / moved_bytes_per_s(target),
                    weight_flop=moved * times,
                    memory_bytes=4 * moved,
                    expected=(expected_seconds("elementwise", operation, shape, times or None),),
                )
            )
    return tuple(items), ()


Kernel = tuple[str, int, int, str, float]
"""Operation, rows, width, number format, and runs in one step."""


def _norms_and_activations(resolved: ResolvedQuestion, target: Target) -> Iterator[Kernel]:
    workload, degrees = resolved.workload, resolved.degrees
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    dtype = DTYPES.get(workload.precision.attention_format, "bf16") if target.is_gpu else CPU_DTYPE
    tokens = workload.recipe.sequence_length * float(degrees.micro_batch) / float(degrees.context)
    for times, ops in workload.ledger.groups():
        count = times * float(degrees.accumulation)
        by_name: dict[str, Op] = {op.name: op for op in ops}
        for op in ops if times else ():
            if op.name.endswith("norm") and op.split is Split.SEQUENCE and op.weights:
                rows = tokens / float(split[Split.SEQUENCE])
                yield NORMS[workload.model.normalization], max(1, round(rows)), workload.model.hidden_size, dtype, count
            down = by_name.get(op.name.removesuffix("activation") + "down") if op.name.endswith(".activation") else None
            if down is not None:
                shape = product_shape(down, workload.model, degrees, split)
                rows, width = float(shape.rows) * float(shape.copies), max(1, round(float(shape.inner)))
                yield "silu_mul" if workload.model.gated_mlp else "gelu", max(1, round(rows)), width, dtype, count


def _loss_and_optimizer(resolved: ResolvedQuestion, target: Target) -> Iterator[Kernel]:
    workload, degrees = resolved.workload, resolved.degrees
    tokens = max(1, workload.recipe.sequence_length * int(degrees.micro_batch) // int(degrees.context))
    vocabulary = max(1, round(float(rank_logits(workload, degrees)) / tokens))
    yield "cross_entropy", tokens, vocabulary, "fp32", (1 + workload.ledger.depths) * float(degrees.accumulation)
    width = workload.model.hidden_size
    yield "adamw", max(1, (MOST_PARAMETERS if target.is_gpu else CPU_PARAMETERS) // width), width, "fp32", 0.0


def moved_bytes(entry: Mapping[str, Any]) -> float:
    """Bytes that one kernel reads and writes.

    >>> moved_bytes({"operation": "rms_norm", "rows": 2, "width": 8, "dtype": "bf16", "direction": "forward"})
    64.0
    """
    numbers = float(entry["rows"] * entry["width"])
    if entry["operation"] == "adamw":
        return UPDATE_BYTES * numbers
    forward, backward = PASSES[entry["operation"]]
    width = LOGIT_BYTES if entry["operation"] == "cross_entropy" else WIDTHS[entry["dtype"]]
    passes = forward if entry["direction"] == "forward" else backward
    return passes * width * numbers


MOST_BYTES = 1 << 28
"""Largest message. Source: a choice; larger ones run at the same rate."""
CPU_MOST_BYTES = 1 << 24
"""The same on a processor. Source: a choice; gloo copies through memory."""
LEAST_BYTES = 1 << 12
"""Smallest message. Source: a choice; below it only latency counts."""

DEFAULT_BYTES = (1 << 16, 1 << 20, 1 << 24)
"""Sizes of messages where the layout sends none. Source: a choice; latency, a change of protocol, and bandwidth."""

SIZES = 3
"""Sizes of messages of one operation, at most. Source: a choice."""

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")


def collective_items(resolved: ResolvedQuestion, target: Target) -> Measurable:
    if target.ranks < 2:
        return (), (f"collectives: the worker has one {target.device}, and one rank sends nothing",)
    sent, most = _message_counts(resolved), MOST_BYTES if target.is_gpu else CPU_MOST_BYTES
    notes: list[str] = []
    items = []
    for operation in OPERATIONS:
        own = sorted((bytes_ * count, bytes_, count) for (name, bytes_), count in sent.items() if name == operation)
        for _, bytes_, count in own[::-1][:SIZES]:
            size = int(min(max(bytes_, LEAST_BYTES), most)) // LEAST_BYTES * LEAST_BYTES
            if size < 0.99 * bytes_:
                notes.append(f"{operation} of {bytes_:.3g} bytes: measured with {size}, which runs at the same rate")
            items.append(_collective_item(operation, size, count if size >= 0.99 * bytes_ else None, target))
    if not sent:
        items = [_collective_item(operation, size, None, target) for operation in OPERATIONS for size in DEFAULT_BYTES]
        notes.append("collectives: one GPU sends nothing, so sizes of common use are measured")
    return tuple({(item.name): item for item in items}.values()), tuple(notes)


def _message_counts(resolved: ResolvedQuestion) -> dict[tuple[str, float], float]:
    """Runs of each message of one rank in one step, over the stages."""
    counts: dict[tuple[str, float], float] = {}
    workload, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    transfers: list[tuple[Transfer, float]] = []
    for loaded in {one.shape: one for one in stages_of(resolved)}.values():
        for repeated in micro_batch_transfers(workload, degrees, loaded.stage, loaded.load, layout).each():
            times = float(repeated.layers) * float(degrees.accumulation)
            transfers += ((transfer, times) for transfer in repeated.transfers)
        transfers += ((transfer, 1.0) for transfer in step_transfers(workload, degrees, loaded.load.parameters))
    for transfer, times in transfers:
        ranks, size, count = float(transfer.ranks), float(transfer.bytes), float(transfer.count) * times
        if ranks > 1 and size > 0 and count > 0:
            key = (transfer.collective, size)
            counts[key] = counts.get(key, 0.0) + count
    return counts


def _collective_item(operation: str, size: int, count: float | None, target: Target) -> Item:
    return Item(
        entry={"operation": operation, "size_bytes": size},
        name=f"{operation} of {size} bytes",
        once_seconds=4 * target.ranks * size / moved_bytes_per_s(target),
        weight_flop=size * (count or 0.0),
        memory_bytes=4.0 * size,
        expected=(expected_seconds("collective", operation, {"size_bytes": size, "ranks": target.ranks}, count),),
    )


SIZES_BYTES = (1 << 26, 1 << 30)
"""Bytes that are copied on a GPU. Source: a choice; no cache holds the larger one."""

CPU_SIZES_BYTES = (1 << 24, 1 << 26)
"""The same on a processor. Source: a choice."""

MOVED = {"copy": 2.0, "read": 1.0, "host_to_device": 1.0, "device_to_host": 1.0}
"""Bytes that an operation moves per byte of its size. Source: definition."""

CONTEXT = Expected(probe="context", operation="context", shape={}, quantity="bytes")


def bandwidth_items(_: ResolvedQuestion, target: Target) -> Measurable:
    """Copies to measure."""
    sizes = SIZES_BYTES if target.is_gpu else CPU_SIZES_BYTES
    items = tuple(
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
    return items, ()


LAPLACE_SCALE = 1.6
"""Half width of a Laplace distribution's 80 % interval over its mean deviation. Source: definition, ln 5."""

SPREAD_FRACTIONS: Mapping[ProbeName, float] = {
    "gemm": 0.08 * LAPLACE_SCALE,
    "attention": 0.06 * LAPLACE_SCALE,
    "collective": 0.125 * LAPLACE_SCALE,
    "bandwidth": 0.06,
    "elementwise": 0.3,
}
"""80 % of measurements lie within exp(-s) and exp(s) of a prediction.
Source: mean errors of shapes, ranks and GPUs that were held out of fits, the second largest of tests/calibration/
test_kernels.py (products 8 %, attention 6 %) and test_links.py (12.5 %) FIGURES; bandwidth:
constants.MEMORY_FRACTION, 0.84 to 0.94; elementwise: a choice, kernels differ in what they read twice."""

CONTEXT_SPREAD_FRACTION = 0.4
"""The same for a context. Source: device.CONTEXT_BYTES, from low to high."""


def _predicted(expected: Expected, gpu: Gpu) -> Interval | None:
    """Prediction for a measurement; an elementwise kernel takes its bytes at the streaming rate, and a launch."""
    value: float | None
    if expected.probe == "elementwise":
        moved = moved_bytes({"operation": expected.operation, **expected.shape})
        value = moved / streaming_bytes_per_s(gpu, MEMORY_FRACTION) + LAUNCH_SECONDS
    else:
        measurement = Measurement(
            operation=expected.operation, shape=expected.shape, quantity=expected.quantity, value=0.0, low=0.0,
            high=0.0, repeats=0,
        )  # fmt: skip
        place = Environment(kind="cuda", device=gpu.slug, devices=1, memory_bytes=gpu.memory_bytes)
        observed = Observed(id="", run="", probe=expected.probe, measurement=measurement, environment=place)
        value = predicted_value(observed, gpu)
    if value is None:
        return None
    spread = SPREAD_FRACTIONS.get(expected.probe, CONTEXT_SPREAD_FRACTION)
    basis: Basis = "analytic" if calibration_of(gpu) is None else "calibrated"
    return Interval(value * exp(-spread), value, value * exp(spread), basis)


STEPS = 3
"""Steps run for memory: the first, one with optimizer states, one more."""

REPORTED_STEPS = (1, STEPS)
"""Steps whose memory the probe reports. Source: definition; those between are like the last."""

TIMED_STEPS = 5
"""Steps whose time the probe reports. Source: a choice."""
CPU_TIMED_STEPS = 3
"""The same on a processor. Source: a choice."""


def step_parameters(steps: Sequence[ResolvedQuestion], *, timed_steps: int) -> dict[str, Any]:
    return {
        **_model_and_recipe(steps[0]),
        "depths": [one.question.model.num_hidden_layers for one in steps],
        "steps": STEPS,
        "timed_steps": timed_steps,
    }


def _model_and_recipe(step: ResolvedQuestion) -> dict[str, Any]:
    return {"model": to_wire(step.question.model), "recipe": to_wire(step.question.recipe)}


def _step_expected(steps: Sequence[ResolvedQuestion], target: Target) -> tuple[Expected, ...]:
    return tuple(
        expected
        for one in steps
        for expected in (_expected_on_gpu(one, target) if target.is_gpu else _expected_live_bytes(one))
    )


def _expected_live_bytes(step: ResolvedQuestion) -> Iterator[Expected]:
    """Planned sizes of live tensors, which do not depend on the device."""
    depth = step.question.model.num_hidden_layers
    allocated, live = estimate(step.question).memory.allocated_peak_bytes, live_step_bytes(step)
    for number in REPORTED_STEPS:
        yield Expected(
            probe="step",
            operation="live_bytes_peak",
            shape={"depth": depth, "step": number},
            quantity="bytes",
            predicted=scaled(allocated, live.of_step(number) / allocated.value),
        )
    yield Expected(probe="step", operation="step", shape={"depth": depth}, quantity="seconds")


def _expected_on_gpu(step: ResolvedQuestion, target: Target) -> Iterator[Expected]:
    """Planned peaks of the driver and the allocator, and step time."""
    depth = step.question.model.num_hidden_layers
    answer = estimate(step.question)
    memory = answer.memory
    scale = memory.stages[0].first_step_peak_bytes / memory.allocated_peak_bytes.value
    known = target.gpu is not None
    for number in REPORTED_STEPS:
        first = scale if number == 1 else 1.0
        shape = {"depth": depth, "step": number}
        peaks = {
            "allocated_peak": scaled(memory.allocated_peak_bytes, first),
            "reserved_peak": memory.reserved_peak_bytes if number > 1 else None,
            "device_peak": memory.device_peak_bytes if number > 1 and known else None,
        }
        for operation, predicted in peaks.items():
            yield Expected(probe="step", operation=operation, shape=shape, quantity="bytes", predicted=predicted)
    seconds = answer.step.step_seconds if known else None
    yield Expected(probe="step", operation="step", shape={"depth": depth}, quantity="seconds", predicted=seconds)


SHARES: Mapping[ProbeName, float] = {
    "context": 0.03, "gemm": 0.22, "attention": 0.12, "bandwidth": 0.06, "elementwise": 0.1, "collective": 0.12,
    "step": 0.22, "profile": 0.13,
}  # fmt: skip
"""Share of the time for each probe when all run. Source: a choice; steps and products are the most informative."""

START_SECONDS = 4.0
"""Time for a probe process to start and import torch. Source: measured on small machines: 2 to 5 s."""
GRACE = 3.0
"""Timeout over the estimated time. Source: a choice."""
LEAST_TIMEOUT_SECONDS = 60.0
"""Shortest timeout. Source: a choice; a shared machine is slow to start."""
REPEATS = 20
"""Repeats, whose median is reported. Source: a choice; the noise of a median of 20 is a quarter of one repeat's."""
FEWEST_REPEATS = 5
"""Repeats of slow items. Source: a choice; the fewest with usable percentiles."""
BESIDE_REPEATS = 6
"""Runs beside the repeats: warm-up, and the reference in higher precision. Source: a choice."""
MEMORY_SHARE = 0.4
"""Share of device memory that one item may take. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """Tasks of a launch check and their planned measurements."""

    tasks: tuple[ProbeTask, ...] = ()
    expected: tuple[Expected, ...] = ()
    whole: tuple[Expected, ...] = ()
    """Predictions for a step of the whole model, which is not run."""
    assumptions: tuple[str, ...] = ()
    """Differences from the job, and what was left out."""


def plan_probes(sized: SizedQuestion, target: Target, probes: Sequence[ProbeName], budget_seconds: float) -> ProbePlan:
    """Plan the tasks of a launch check."""
    probe_seconds = max(budget_seconds - START_SECONDS * len(probes), 0.5 * budget_seconds)
    shares = sum(SHARES[probe] for probe in probes)
    plans = [_plan_probe(probe, sized, target, probe_seconds * SHARES[probe] / shares) for probe in probes]
    expected = [expected for one in plans for expected in one.expected]
    if target.gpu is not None:  # those of steps have their predictions already
        gpu = target.gpu
        expected = [one if one.probe == "step" else replace(one, predicted=_predicted(one, gpu)) for one in expected]
    whole = () if sized.whole is None else _step_expected((sized.whole,), target)
    return ProbePlan(
        tasks=tuple(task for one in plans for task in one.tasks),
        expected=tuple(expected),
        whole=tuple(one for one in whole if one.shape.get("step", STEPS) == STEPS),
        assumptions=(*sized.assumptions, *(note for one in plans for note in one.assumptions)),
    )


def _task(probe: ProbeName, parameters: Mapping[str, Any], seconds: float, target: Target, ranks: int = 1) -> ProbeTask:
    complete = {**parameters, "seconds": round(seconds, 3), "device": "cuda" if target.is_gpu else "cpu"}
    timeout = max(LEAST_TIMEOUT_SECONDS, GRACE * (START_SECONDS + seconds))
    return ProbeTask(probe=probe, parameters=complete, timeout_seconds=round(timeout, 3), ranks=ranks)


def _select(
    probe: ProbeName, items: Sequence[Item], target: Target, seconds: float
) -> tuple[list[Item], int, list[str]]:
    """Items that fit the time and memory, largest share of a step first, their repeats, and notes on the others."""
    most_bytes = MEMORY_SHARE * target.memory_bytes
    fitting = [item for item in items if item.memory_bytes <= most_bytes]
    notes = [f"{probe}: {item.name} takes too much memory to be measured" for item in items if item not in fitting]
    ordered = sorted(fitting, key=lambda item: -item.weight_flop)
    once = sum(item.once_seconds for item in ordered)
    repeats = min(REPEATS, floor(seconds / once) - BESIDE_REPEATS) if once else REPEATS
    if repeats >= FEWEST_REPEATS:
        return ordered, repeats, notes
    selected, spent = [], 0.0
    for item in ordered:
        needed = (FEWEST_REPEATS + BESIDE_REPEATS) * item.once_seconds
        if spent + needed <= seconds:
            selected.append(item)
            spent += needed
    if len(selected) < len(ordered):
        notes.append(f"{probe}: {len(ordered) - len(selected)} of {len(ordered)} entries left out for want of time")
    return selected, FEWEST_REPEATS, notes


ITEM_PROBES: Mapping[ProbeName, tuple[str, Callable[[ResolvedQuestion, Target], Measurable]]] = {
    "gemm": ("products", product_items),
    "attention": ("kernels", attention_items),
    "bandwidth": ("sizes_bytes", bandwidth_items),
    "elementwise": ("kernels", elementwise_items),
    "collective": ("", collective_items),
}
"""Probes that measure a list of items: name of the list in the task, and the items with notes on what is left out."""


def _plan_probe(probe: ProbeName, sized: SizedQuestion, target: Target, seconds: float) -> ProbePlan:
    if probe in ITEM_PROBES:
        return _plan_items(probe, sized.resolved, target, seconds)
    if probe == "context":
        ranks = target.ranks if target.is_gpu else 1
        return ProbePlan(tasks=(_task(probe, {}, seconds, target, ranks),), expected=(CONTEXT,))
    if not sized.steps:
        return ProbePlan()
    if probe == "profile":
        step = sized.steps[0]
        parameters = {**_model_and_recipe(step), "depth": step.question.model.num_hidden_layers}
        return ProbePlan(tasks=(_task(probe, parameters, seconds, target),))
    timed = TIMED_STEPS if target.is_gpu else CPU_TIMED_STEPS
    task = _task(probe, step_parameters(sized.steps, timed_steps=timed), seconds, target)
    return ProbePlan(tasks=(task,), expected=_step_expected(sized.steps, target))


def _plan_items(probe: ProbeName, resolved: ResolvedQuestion, target: Target, seconds: float) -> ProbePlan:
    list_name, source = ITEM_PROBES[probe]
    items, unmeasured = source(resolved, target)
    selected, repeats, left_out = _select(probe, items, target, seconds)
    notes = (*(f"{probe}: {one}" if list_name else one for one in unmeasured), *left_out)
    if not selected:
        return ProbePlan(assumptions=notes)
    entries, ranks = [item.entry for item in selected], 1 if list_name else target.ranks
    parameters: dict[str, Any] = {list_name: entries}
    if not list_name:
        operations = list(dict.fromkeys(entry["operation"] for entry in entries))
        parameters = {"operations": operations, "sizes_bytes": sorted({entry["size_bytes"] for entry in entries})}
    return ProbePlan(
        tasks=(_task(probe, {**parameters, "repeats": repeats}, seconds, target, ranks),),
        expected=tuple(expected for item in selected for expected in item.expected),
        assumptions=notes,
    )
