"""Memory of the device: what the allocator reserves, what is in use beside it, and the probability of running out."""

from dataclasses import dataclass
from math import erf, exp, hypot, log, sqrt
from typing import Literal

from service.estimator.answer import Basis, Interval, Verdict
from service.estimator.constants import STEP_CONSTANTS, MeasuredBytes, calibration_of
from service.estimator.degrees import OPTIMIZER_STATES, WEIGHTS, Degrees, divisors, evaluated_once
from service.estimator.memory.activations import RankLoad, rank_logits
from service.estimator.numeric import Amount, Condition, both, either, maximum, minimum, summed, where
from service.estimator.parallelism.stages import stream_bytes
from service.estimator.question import Gpu
from service.estimator.software.precision import known_peak_flop_per_s
from service.estimator.software.versions import at_least
from service.estimator.workload import Workload

Shares = tuple[float, float, float]
"""A low, a middle and a high value."""

RESERVED_SHARE = (1.01, 1.04, 1.09)
"""Reserved over allocated: low, middle, high.
Source: MooreThreads/SimuMax@4dcaae5, 344 rank measurements: median 1.038, p90 1.071, maximum 1.093."""

EXPANDABLE_SHARE = (1.0, 1.01, 1.05)
"""The same where segments grow instead of being opened anew, or pools and holes are known apart.
Source: PyTorch CUDA caching allocator, expandable_segments; replays of its rules for published torchtitan runs."""


def reserved_bytes(allocated_bytes: Amount, held_bytes: Amount, share: float, room_bytes: float) -> Amount:
    """Most bytes that the allocator holds on one GPU: live tensors, fragments, pools of other streams and holes.

    What it holds beside live tensors it gives back when the device has no more, and not before: it fills the device
    first, but for fragments, and only live tensors and their fragments can run it out of memory. Pools and holes are
    counted one by one, so that only live tensors have fragments.

    Formula: max(allocated x share, min(allocated x share + held, room / share))
    Args:
        allocated_bytes: live tensors [byte]
        held_bytes: what the stack makes the allocator hold beside them [byte]
        share: what fragments add [1]
        room_bytes: what the device leaves the allocator [byte]
    Returns: bytes of one GPU [byte]
    Source: PyTorch CUDA caching allocator (frees cached blocks before it fails); reserved_shares; device.cached_bytes

    >>> reserved_bytes(100.0, 0.0, 1.04, 208.0), reserved_bytes(100.0, 500.0, 1.04, 208.0)
    (104.0, 200.0)
    """
    whole = allocated_bytes * share + held_bytes
    return maximum(allocated_bytes * share, minimum(whole, room_bytes / share))


def settled_reserved_bytes(allocated_bytes: Amount, held_bytes: Amount, share: float, room_bytes: float) -> Amount:
    """Bytes that the allocator holds at the peak of a later step: what it had to give back once, it opens no more.

    Segments that large tensors opened after that are split among all others, so a fuller device may hold fewer bytes.

    Formula: reserved_bytes where (allocated + held) x share <= room, else allocated x share
    Args:
        allocated_bytes: live tensors [byte]
        held_bytes: what the stack makes the allocator hold beside them [byte]
        share: what fragments add [1]
        room_bytes: what the device leaves the allocator [byte]
    Returns: bytes of one GPU [byte]
    Source:
        PyTorch CUDA caching allocator (release of cached blocks, split of large ones); huggingface/nanotron@2411b02
        trainer.py (peaks are reset in the first five steps)

    >>> settled_reserved_bytes(100.0, 50.0, 1.04, 200.0), settled_reserved_bytes(100.0, 500.0, 1.04, 200.0)
    (154.0, 104.0)
    """
    fits = fits_beside(allocated_bytes, held_bytes, share, room_bytes)
    return reserved_bytes(allocated_bytes, where(fits, held_bytes, 0.0), share, room_bytes)


def fits_beside(allocated_bytes: Amount, held_bytes: Amount, share: float, room_bytes: float) -> Condition:
    """Whether the allocator keeps what it caches beside live tensors, and need not free it to open a segment.

    Segments for which there is no room have as many fragments as any.
    """
    return (allocated_bytes + held_bytes) * share <= room_bytes


def reserved_shares(workload: Workload) -> Shares:
    """What fragments add to what the allocator would hold without them: low, middle, high.

    Formula: by the stack: RESERVED_SHARE, or nearly nothing where segments grow
    Returns: the shares [1]
    Source: RESERVED_SHARE; EXPANDABLE_SHARE

    >>> from service.estimator.samples import sample_workload
    >>> reserved_shares(sample_workload())
    (1.01, 1.04, 1.09)
    """
    return EXPANDABLE_SHARE if workload.software.expandable_segments else RESERVED_SHARE


def reserved_interval(allocated: Interval, reserved_bytes: float, shares: Shares) -> Interval:
    """Bytes that the allocator holds, with the spread of live tensors and, apart from it, of fragments.

    Formula: reserved x exp(-/+ sqrt(a^2 + f^2)), a and f the logarithms of both spreads
    Args:
        allocated: live tensors
        reserved_bytes: what the allocator holds [byte]
        shares: what fragments add: low, middle, high [1]
    Returns: the interval [byte]
    Source: independent errors add in quadrature; reserved_shares

    >>> reserved_interval(Interval(90.0, 100.0, 110.0, "analytic"), 100.0, (1.0, 1.0, 1.0)).high
    110.0
    """
    low, middle, high = shares
    below = hypot(log(allocated.value / allocated.low), log(middle / low))
    above = hypot(log(allocated.high / allocated.value), log(high / middle))
    return Interval(reserved_bytes * exp(-below), reserved_bytes, round(reserved_bytes * exp(above), 6), "analytic")


SEGMENT_HOLE_BYTES = 2.0
"""Bytes for each logit that no other tensor fits into where segments do not grow.
Source: replays of the caching allocator's rules for torchtitan's losses."""


@evaluated_once
def cached_bytes(workload: Workload, degrees: Degrees, load: RankLoad, gradient_bytes: Amount) -> Amount:
    """Bytes that the allocator holds for streams of their own, and in holes that nothing fits, at the peak of one rank.

    FSDP gathers weights on one stream and reduces gradients on another, and the allocator never lends memory of one
    stream to another: both pools stay at their own largest size while the default stream is at its peak.

    Formula:
        ZeRO-3 with streams of its own, freed after use: the largest group and one layer, with the rank's own part of
        the group, in the compute format; all sharded gradients, where none are live at the loss;
        the hole of the cross entropy's row for each logit; and that of a gathered stream where tensor ranks split it
        nanotron: two results of row-split matrices a layer, of as many layers as the host has launched ahead: up to
        LAUNCHES_AHEAD, and l (1 - h / g) at the end of a forward pass that the host starts beside the GPU, as after a
        step, or after a stage's metadata, h its time for a layer and g the GPU's; and what a first
        step holds before its update and its flat copies beyond the peak: one of all weights, and the rank's part with
        the whole again, where no freed activation is as large as the part, or less the activations that a micro-batch
        without such a large one would not keep or compute again
    Args:
        gradient_bytes: gradients of the rank [byte]
    Returns: bytes of one rank [byte]
    Source:
        torch 2.13 distributed/fsdp/_fully_shard/_fsdp_param_group.py (streams); PyTorch CUDA caching allocator (blocks
        belong to the stream they were allocated on); huggingface/nanotron@67c5ebb6 optim/zero.py (all_gather_coalesced)

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> cached_bytes(sample_workload(), sample_degrees(), sample_rank_load(), 0.0)
    0.0
    """
    return summed(cached_parts(workload, degrees, load, gradient_bytes).values())


def cached_parts(
    workload: Workload, degrees: Degrees, load: RankLoad, gradient_bytes: Amount
) -> dict[Literal["forward", "loss", "backward"], Amount]:
    """The parts of cached_bytes by the moment of the first step that opens them."""
    if not workload.stack.gathers_on_streams:
        return {"forward": _results_ahead_bytes(workload, degrees, load)}
    each = max(workload.cross_entropy.hole_bytes, 0.0 if workload.software.expandable_segments else SEGMENT_HOLE_BYTES)
    hole = where(load.logits_bytes > 0, rank_logits(workload, degrees) * each, 0.0)
    splits = both(degrees.sequence_parallel == 1, degrees.tensor > 1)
    hole = hole + where(splits, stream_bytes(workload, degrees), 0.0)
    weight = workload.state.gathered_bytes
    ends = load.gathered_ends
    pool = (ends + load.largest_layer + maximum(ends, load.largest_layer) / degrees.shard_group) * weight
    later = where(degrees.accumulation > 1, 0.0, gradient_bytes)
    sharded = both(degrees.zero_stage >= WEIGHTS, degrees.shard_group > 1)
    gathered = where(both(sharded, degrees.reshard_after_forward == 1), pool, 0.0)
    return {"forward": gathered, "loss": hole, "backward": where(sharded, later, 0.0)}


LAUNCHES_AHEAD = 1024
"""Kernels that the host launches before the GPU has run the first of them. Source: CUDA launch queue."""

KERNELS_OF_A_LAYER = 24
"""Kernels of the forward pass of one layer. Source: huggingface/nanotron@67c5ebb6 models/llama.py, counted."""


FORWARD_HOST_SECONDS = STEP_CONSTANTS.layer_host_seconds / 3
"""Time of the host to launch the forward pass of one layer.
Source: StepConstants.layer_host_seconds, an assumption; the backward pass in it launches two products for one."""


def _results_ahead_bytes(workload: Workload, degrees: Degrees, load: RankLoad) -> Amount:
    """Results of row-split matrices, two a layer, that wait for the GPU before their memory is free."""
    if not workload.stack.keeps_results_ahead:
        return 0.0
    ahead = load.layers * maximum(1 - FORWARD_HOST_SECONDS / layer_forward_seconds(workload, degrees), 0.0)
    starts_beside = either(degrees.accumulation == 1, degrees.pipeline > 1)
    layers = minimum(where(starts_beside, ahead, load.layers), LAUNCHES_AHEAD / KERNELS_OF_A_LAYER)
    return where(degrees.tensor > 1, 2 * stream_bytes(workload, degrees) * layers, 0.0)


def layer_forward_seconds(workload: Workload, degrees: Degrees) -> Amount:
    """Least time of one rank for the forward pass of a layer, the mean over the model's.

    Formula: F / R + M / W
    Returns: seconds of one micro-batch [s]
    Source: the ledger's FLOP, F, and moved bytes, M; the GPU's dense peak, R, and memory bandwidth, W

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> round(layer_forward_seconds(sample_workload(), sample_degrees()), 5)
    0.00497
    """
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    peak = known_peak_flop_per_s(workload.gpu, workload.precision.matrix_format)
    layers, seconds = workload.ledger.layer_groups(), []
    for count, ops in layers:
        for op in ops:
            moved = op.moved_bytes / split[op.split] + op.whole_bytes
            seconds.append(count * (op.flop / split[op.split] / peak + moved / workload.gpu.memory_bytes_per_s))
    return summed(seconds) * degrees.micro_batch / degrees.context / sum(count for count, _ in layers)


@dataclass(slots=True)
class FlatCopies:
    """Flat copies of updated weights that one rank gathers once a step, and that the allocator keeps."""

    weight_bytes: Amount
    """All updated weights in one tensor, which is larger than any freed one."""
    every_bytes: Amount
    """All flat copies."""
    again_bytes: Amount
    """The rank's part of them, and the whole again, where no freed activation is as large as the part."""
    has_again: Condition
    """No freed activation is as large as the part."""
    spared_bytes: Amount
    """What a micro-batch would keep less if its largest activations were as large as the part; 0 where they are not
    larger."""
    spared_again_bytes: Amount
    """What the layers computed again would hold less for the same reason."""


def flat_copies(workload: Workload, degrees: Degrees, load: RankLoad) -> FlatCopies | None:
    """Flat copies of updated weights; None where the stack makes none.

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> flat_copies(sample_workload(), sample_degrees(), sample_rank_load()) is None
    True
    """
    if not workload.stack.flattens_update:
        return None
    weights = (load.updated.dense_trained + load.updated.expert_trained) * workload.state.weight_bytes
    gathers = both(degrees.zero_stage >= OPTIMIZER_STATES, degrees.shard_group > 1)
    weights = where(gathers, weights, 0.0)
    part, largest = weights / degrees.shard_group, load.largest_activation_bytes
    each = maximum(largest - part, 0.0)
    return FlatCopies(
        weight_bytes=weights,
        every_bytes=flat_copy_bytes(weights, degrees.shard_group),
        again_bytes=weights + part,
        has_again=part > largest,
        spared_bytes=each * load.activation_layers,
        spared_again_bytes=each * load.again_layers,
    )


def flat_copy_bytes(weight_bytes: Amount, replicas: Amount) -> Amount:
    """Bytes of the flat copies of updated weights through which replicas gather them, inside the optimizer step.

    Formula: W / z + W + W: the rank's part, the parts of all ranks, and what the collective receives them in
    Args:
        weight_bytes: updated weights of the rank, W [byte]
        replicas: ranks that share the update, z [1]
    Returns: bytes of one rank [byte]
    Source:
        huggingface/nanotron@67c5ebb6 distributed.py all_gather_coalesced; pytorch/pytorch ProcessGroupNCCL::allgather
        (newLikeFlat)

    >>> flat_copy_bytes(8.0, 4)
    18.0
    """
    return weight_bytes * (2 + 1 / replicas)


RESIDUALS = {
    ("megatron-core", "dense"): 0.030,
    ("megatron-core", "sparse"): 0.03,
    ("other", "dense"): 0.090,
    ("other", "sparse"): 0.305,
}
"""80 % of published peaks lie within exp(-r) and exp(r) of the prediction, by stack and kind of model.
Source: the measurements that ship with service.calibration, those with the full configuration; each publisher counts
as much as any other, and r is never below LEAST_RESIDUAL."""

LEAST_RESIDUAL = 0.030
"""Runs of one configuration differ by so much between releases of one stack.
Source: NVIDIA/Megatron-LM functional tests, the same cases on three generations of GPUs."""


def class_of(stack: str, *, is_sparse: bool) -> tuple[str, str]:
    """The class of some stack and kind of model.

    >>> class_of("fsdp1", is_sparse=False)
    ('other', 'dense')
    """
    return "megatron-core" if stack == "megatron-core" else "other", "sparse" if is_sparse else "dense"


def allocated_interval(workload: Workload, peak_bytes: float) -> Interval:
    """Live tensors at the peak, with the spread that published peaks of the class show.

    Formula: sum of the lines of the fullest stage, x exp(-r) and exp(r) at the ends
    Args:
        peak_bytes: sum of the lines of the fullest stage [byte]
    Returns: the interval [byte]
    Source: RESIDUALS

    >>> from service.estimator.samples import sample_workload
    >>> allocated_interval(sample_workload(), 100.0).low < 97.1
    True
    """
    spread = RESIDUALS[class_of(workload.software.name, is_sparse=bool(workload.model.num_experts))]
    return Interval(peak_bytes * exp(-spread), peak_bytes, peak_bytes * exp(spread), "analytic")


NORMAL_80 = 1.2816
"""Standard deviations from the middle to either end of a central 80 % interval of a normal distribution.
Source: definition."""

_NORMAL_95_ONE_SIDED = 1.644853627
"""Standard deviations from the middle that 5 % of a normal distribution exceed. Source: definition."""


def oom_probability_fraction(device: Interval, usable_bytes: float) -> float:
    """Probability that the device peak exceeds what a job can use, from a log-normal spread.

    Formula: 1 - Phi(ln(usable / value) / sigma),  sigma = ln(high / value) / 1.2816
    Args:
        usable_bytes: memory a job can use [byte]
    Returns: probability [1]
    Source: definition; the interval is the central 80 %

    >>> oom_probability_fraction(Interval(9.0, 10.0, 11.0, "analytic"), 10.0)
    0.5
    """
    deviations = NORMAL_80 * log(usable_bytes / device.value) / log(device.high / device.value)
    return (1 - erf(deviations / sqrt(2))) / 2


def largest_fitting_bytes(device: Interval, usable_bytes: float) -> float:
    """Largest device peak that still has the verdict `fits`, with a spread as wide as that of another one.

    Formula: usable exp(-1.6449 sigma),  sigma = ln(high / value) / 1.2816
    Args:
        device: the device peak whose spread is taken
        usable_bytes: memory a job can use [byte]
    Returns: bytes [byte]
    Source: definition; the same log-normal spread as that of the probability, exceeded in 5 % of all cases

    >>> round(largest_fitting_bytes(Interval(9.0, 10.0, 11.0, "analytic"), 10.0), 3)
    8.849
    """
    deviations = log(device.high / device.value) / NORMAL_80
    return usable_bytes * exp(-_NORMAL_95_ONE_SIDED * deviations)


def verdict_of(probability_fraction: float) -> Verdict:
    """The word for a probability of running out of memory.

    >>> verdict_of(0.2)
    'at_risk'
    """
    if probability_fraction < 0.05:
        return "fits"
    return "at_risk" if probability_fraction <= 0.5 else "out_of_memory"


CONTEXT_BYTES: tuple[tuple[str, Shares], ...] = (
    ("2.2", (0.47 * 2**30, 0.6 * 2**30, 0.92 * 2**30)),
    ("2.0", (0.47 * 2**30, 0.92 * 2**30, 1.1 * 2**30)),
    ("1.13", (0.47 * 2**30, 0.90 * 2**30, 1.1 * 2**30)),
    ("0", (0.90 * 2**30, 1.78 * 2**30, 2.0 * 2**30)),
)
"""CUDA context and loaded kernels by the oldest torch that they hold for: low, middle, high. Kernels load lazily in the
newest, all at once before. Source: stas00/ml-engineering@744d01e training/performance (an A100 of 80 GB: torch 1.10.2,
1.13.1, 2.1.1 and later; 0.5 to 2 GiB in all)."""

COMMUNICATOR_BYTES: tuple[tuple[str, Shares], ...] = (
    ("2.2", (0.5 * 2**30, 1.0 * 2**30, 1.5 * 2**30)),
    ("0", (1.0 * 2**30, 1.45 * 2**30, 1.5 * 2**30)),
)
"""What torch.distributed adds at its first collective, in the same form.
Source: stas00/ml-engineering@744d01e training/performance (0.55 to 2.00 GiB)."""


def beside_allocator(workload: Workload) -> Shares:
    """Bytes on the device that no allocator sees: the context, and communicators where there is more than one GPU.

    Formula:
        CONTEXT_BYTES + communicators x COMMUNICATOR_BYTES, of the version of torch; what was measured on the GPU where
        something was
    Returns: low, middle, high [byte]
    Source: CONTEXT_BYTES; COMMUNICATOR_BYTES; Stack.communicators

    >>> from service.estimator.samples import sample_workload
    >>> beside_allocator(sample_workload())[1] / 2**30
    0.6
    """
    context, extra = context_and_communicators(workload.gpu, workload.versions.torch)
    joined = workload.stack.communicators if workload.cluster.gpus > 1 else 0
    low, middle, high = (own + joined * more for own, more in zip(context, extra, strict=True))
    return low, middle, high


def context_and_communicators(gpu: Gpu, torch: str | None) -> tuple[Shares, Shares]:
    """Bytes of the context, and of communicators beside it, on one GPU, measured or of its (else the newest) torch."""
    context, extra = (
        next(sizes for oldest, sizes in table if at_least(torch, oldest))
        for table in (CONTEXT_BYTES, COMMUNICATOR_BYTES)
    )
    measured = calibration_of(gpu)
    if measured is None:
        return context, extra
    return _measured_shares(measured.context_bytes) or context, _measured_shares(measured.communicator_bytes) or extra


def _measured_shares(measured: MeasuredBytes | None) -> Shares | None:
    return None if measured is None else (measured.low, measured.value, measured.high)


def memory_basis(gpu: Gpu) -> Basis:
    """What bytes beside the allocator rest on."""
    measured = calibration_of(gpu)
    return "calibrated" if measured is not None and measured.has_bytes else "analytic"


def device_interval(reserved: Interval, beside: Shares, basis: Basis = "analytic") -> Interval:
    """Bytes in use on the device: the allocator's, the context's and the communicators'.

    Formula: reserved + what is beside the allocator; distances of both ends from the middle in quadrature
    Args:
        reserved: bytes that the allocator holds
        beside: bytes of context and communicators: low, middle, high [byte]
        basis: what those rest on
    Returns: the interval [byte]
    Source: independent errors add in quadrature; beside_allocator

    >>> device_interval(Interval(7.0, 10.0, 13.0, "analytic"), (1.0, 5.0, 9.0))
    Interval(low=10.0, value=15.0, high=20.0, basis='analytic')
    """
    low, middle, high = beside
    value = reserved.value + middle
    below = hypot(reserved.value - reserved.low, middle - low)
    above = hypot(reserved.high - reserved.value, high - middle)
    return Interval(value - below, value, value + above, basis)


def usable_bytes(gpu: Gpu) -> float:
    """Memory that a job can use on one GPU.

    Formula: the GPU's row
    Returns: bytes of one GPU [byte]
    Source: the GPU's row in the catalogue

    >>> from service.estimator.samples import H100
    >>> usable_bytes(H100) / 2**30
    79.1
    """
    return gpu.usable_bytes


def allocator_room_bytes(workload: Workload) -> float:
    """Memory of one GPU that is left to the allocator.

    Formula: usable - context - communicators
    Returns: bytes of one GPU [byte]
    Source: usable_bytes; beside_allocator

    >>> from service.estimator.samples import sample_workload
    >>> allocator_room_bytes(sample_workload()) / 2**30
    78.5
    """
    return usable_bytes(workload.gpu) - beside_allocator(workload)[1]


def headroom_bytes(usable: float, device: Interval) -> float:
    """Memory that is left on the fullest GPU; negative where bytes are missing.

    Formula: usable - device peak
    Args:
        usable: memory a job can use [byte]
    Returns: bytes of one GPU [byte]
    Source: definition

    >>> headroom_bytes(10.0, Interval(9.0, 12.0, 13.0, "analytic"))
    -2.0
    """
    return usable - device.value
