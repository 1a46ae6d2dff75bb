"""Bytes of one rank of a stage, kind by kind, at the peak of a step and of the first step."""

from dataclasses import dataclass
from functools import reduce
from typing import Literal

from service.estimator.answer import Phase
from service.estimator.complete import CompleteLayout
from service.estimator.degrees import OPTIMIZER_STATES, Degrees, evaluated_once
from service.estimator.memory.activations import RankLoad
from service.estimator.memory.device import FlatCopies, cached_bytes, flat_copies
from service.estimator.memory.states import (
    WHOLE_MOMENTS,
    AllGatheredWeights,
    all_gathered_weights,
    bucket_bytes,
    dealt_bytes,
    grouped_gradient_bytes,
    sharded_bytes,
    sharded_lines,
    step_gradient_lines,
    table_gradient_bytes,
    undivided_share,
)
from service.estimator.model.ledger import WIDE_BYTES
from service.estimator.numeric import (
    Amount,
    Condition,
    both,
    either,
    is_nothing,
    maximum,
    minimum,
    summed,
    summed_by_shape,
    where,
    where_needed,
)
from service.estimator.parallelism.context import exchanged_bytes
from service.estimator.parallelism.pipeline import in_flight, interleaved_bytes, loss_bytes, warm_passes
from service.estimator.parallelism.stages import Stage, sequence_stream_bytes, stream_bytes
from service.estimator.question import OffloadName, ScheduleName
from service.estimator.software.precision import moment_bytes
from service.estimator.software.versions import (
    GROUPED_STREAMS,
    torch_workspace_bytes,
    transformer_engine_workspace_bytes,
)
from service.estimator.workload import Workload


def persistent_buffer_bytes(workload: Workload, degrees: Degrees, *, has_head: Condition) -> Amount:
    """Bytes of workspaces and kept buffers of one rank of a stage.

    Formula:
        workspaces of torch's matrix products, where any runs, and of Transformer Engine's, where any or a router runs;
        four more of those with grouped experts
        + the gathered input of the head, b s h / c elements, where sequence parallelism is on
        + tokens of all ranks that share experts, where they are gathered
        + the scores of one layer, b s^2 a / t elements, where eager attention keeps a buffer of them
    Args:
        has_head: whether the rank computes logits
    Returns: bytes of one rank [byte]
    Source:
        NVIDIA/Megatron-LM@d98e8a64 core/tensor_parallel/layers.py (global memory buffer of gathered
        inputs), core/transformer/dot_product_attention.py (of scores)

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> persistent_buffer_bytes(sample_workload(), sample_degrees(), has_head=True) / 2**20
    96.0
    """
    return summed(workspace_parts(workload, degrees, has_head=has_head).values())


def workspace_parts(workload: Workload, degrees: Degrees, *, has_head: Condition) -> dict[str, Amount]:
    """Bytes of workspaces and kept buffers of one rank of a stage, part by part."""
    software = workload.software
    torch_bytes = torch_workspace_bytes(workload.gpu, workload.versions.torch, deterministic=software.deterministic)
    splits = both(degrees.sequence_parallel == 1, degrees.tensor > 1)
    gathered = where(both(has_head, splits), stream_bytes(workload, degrees), 0.0)
    if workload.stack.keeps_gather_buffers:
        gathered = where(degrees.tensor > 1, workload.stack.keeps_gather_buffers * stream_bytes(workload, degrees), 0.0)
    engine = transformer_engine_workspace_bytes(workload.gpu)
    if not workload.implementation.uses_transformer_engine:
        routes = workload.stack.routes_by_transformer_engine and workload.model.num_experts
        return {
            "dispatched_bytes": _dispatch_bytes(workload, degrees),
            "transformer_engine_bytes": engine if routes else 0.0,
            "torch_bytes": torch_bytes,
            "gathered_input_bytes": gathered,
            "score_bytes": _score_buffer_bytes(workload, degrees),
        }
    grouped = software.grouped_experts and workload.model.num_experts
    runs_torch = either(has_head, workload.model.num_experts > 0)
    engine *= 1 + GROUPED_STREAMS if grouped else 1
    return {
        "dispatched_bytes": _dispatch_bytes(workload, degrees),
        "transformer_engine_bytes": engine,
        "torch_bytes": where(runs_torch, torch_bytes, 0.0),
        "gathered_input_bytes": gathered,
    }


def _dispatch_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """A buffer of the tokens of all ranks that share experts, where they are gathered instead of sent."""
    if workload.software.dispatcher != "allgather" or not workload.model.num_experts:
        return 0.0
    ranks = degrees.expert * degrees.expert_tensor
    return where(ranks > 1, sequence_stream_bytes(workload, degrees) * ranks, 0.0)


def _score_buffer_bytes(workload: Workload, degrees: Degrees) -> Amount:
    if not workload.implementation.keeps_score_buffer or workload.recipe.attention != "eager":
        return 0.0
    pairs = workload.recipe.sequence_length**2 * degrees.micro_batch / degrees.context
    return pairs * workload.model.num_attention_heads / degrees.tensor * workload.precision.element_bytes


def mask_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes of the mask of all pairs of tokens of one micro-batch, where the data loader or eager attention has one.

    Formula: b s^2 / c, and as much for each byte of the stream's format in eager attention of transformers
    Returns: bytes of one rank [byte]
    Source: NVIDIA/Megatron-LM@d98e8a64 pretrain_gpt.py (create-attention-mask-in-dataloader, one byte a pair)

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> mask_bytes(sample_workload(), sample_degrees())
    0.0
    """
    is_added = workload.implementation.runs_transformers and workload.kernel == "eager"
    is_wide = workload.implementation.casts_each_input and workload.precision.is_mixed
    added = (WIDE_BYTES if is_wide else workload.precision.element_bytes) if is_added else 0.0
    each = added + (1.0 if workload.software.attention_mask else 0.0)
    return each * workload.recipe.sequence_length**2 * degrees.micro_batch / degrees.context if each else 0.0


def received_bytes(workload: Workload, degrees: Degrees, stage: Stage) -> Amount:
    """Bytes that a stage has received from its neighbours beside kept activations, while it computes.

    Formula: the gradient of the micro-batch before, b s h / (c t) elements, after the first stage; two more with chunks
    Returns: bytes of one rank [byte]
    Source:
        NVIDIA/Megatron-LM@23e00ed0 core/pipeline_parallel/schedules.py (input_tensor_grad stays bound; with chunks the
        next input and gradient are received ahead)

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=1, chunk_counts=((8,),), depths=0, is_first=False, is_last=False)
    >>> received_bytes(sample_workload(), sample_degrees(pipeline=4), stage)
    67108864.0
    """
    streams = where(stage.is_first, 0, 1) + where(degrees.virtual_pipeline > 1, 2, 0)
    return sequence_stream_bytes(workload, degrees) * streams


def left_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes from its neighbours that a stage still holds between two steps.

    Formula: the last input and the last gradient of each chunk, 2 v b s h / (c t) elements, with a pipeline
    Returns: bytes of one rank [byte]
    Source:
        NVIDIA/Megatron-LM@d98e8a64 core/pipeline_parallel/schedules.py; its functional tests log them after each step

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> left_bytes(sample_workload(), sample_degrees(pipeline=4))
    134217728.0
    """
    return where(degrees.pipeline > 1, 2 * degrees.virtual_pipeline * sequence_stream_bytes(workload, degrees), 0.0)


@dataclass(slots=True, kw_only=True)
class StageBytes:
    """Bytes of one rank of one stage by kind; `LIVE` lists those that are live in each phase."""

    weights: Amount
    frozen_weights: Amount
    """Weights that are not trained, in the compute format."""
    quantized_weights: Amount
    """Frozen matrices of 4 bits."""
    weight_copies: Amount
    gradients: Amount
    """All gradients at the optimizer step."""
    early_gradients: Amount
    """Gradients that exist before the last micro-batch runs backward."""
    buffered_gradients: Amount
    """Gradients that have buffers for the whole run."""
    half_gradients: Amount
    """Gradients in the compute format beside accumulated ones, at the end of a backward pass."""
    gradient_buckets: Amount
    """Buffers in which replicas add up gradients, beside the gradients themselves."""
    master_weights: Amount
    optimizer_states: Amount
    optimizer_scales: Amount
    moving_average: Amount
    step_gradients: Amount
    """fp32 gradients made inside the optimizer step; live only there."""
    persistent_gradients: Amount
    """fp32 gradients of the optimizer step that have buffers for the whole run."""
    left_step_gradients: Amount
    """fp32 gradients of the optimizer step that stay until the next step begins."""
    update_buffers: Amount
    """Temporaries of the optimizer's arithmetic."""
    gathered_weights: Amount
    """Weights that are gathered from the data group."""
    kept_weights: Amount
    """Further ones that a backward pass keeps to its end, where gradients wait for the last micro-batch."""
    cast_weights: Amount
    """Weights that autocast has cast on the fly, until it ends."""
    late_cast_weights: Amount
    """Those of them that the backward pass needs, and what it casts again; gone with their last use."""
    reduced_gradients: Amount
    """Gradients of whole layers before the data group reduces them."""
    context_buffers: Amount
    """Keys and values of other context ranks."""
    attention_mask: Amount
    """A mask of all pairs of tokens that the data loader makes."""
    pipeline_buffers: Amount
    """Tensors received from neighbour stages, beside kept activations."""
    left_streams: Amount
    """Tensors of neighbour stages that stay between two steps."""
    activations: Amount
    """Activations of all micro-batches in flight; gone by the optimizer step."""
    loss_activations: Amount
    """Activations of all micro-batches in flight when one of them has its loss."""
    other_activations: Amount
    """Activations of all micro-batches in flight but one."""
    recomputed_activations: Amount
    """Activations of layers being computed again."""
    layer_buffers: Amount
    """Gradients inside the layer that runs backward."""
    logits: Amount
    gradient_placeholders: Amount
    """Empty gradients that the libraries keep."""
    workspace: Amount
    in_flight: Amount
    """Micro-batches in flight."""
    host: Amount
    pools: Amount
    """Bytes that the allocator reserves beside live tensors for other streams, in holes and for results ahead."""
    flat_copies: Amount = 0.0
    """Copies of updated weights through which the data group gathers them."""
    copied_peak: Amount = 0.0
    """Live bytes at the peak of a first step before its update, with the flat copies that find no room in what is freed
    by then; 0 without flat copies."""
    settled_copied_peak: Amount = 0.0
    """The same of the micro-batch alone that runs, and not of any shorter one."""

    @property
    def cached(self) -> Amount:
        """Bytes that the allocator reserves at most beside live tensors [byte]."""
        return self.pools if is_nothing(self.copied_peak) else self.cached_beside(self.peak)

    @property
    def settled_cached(self) -> Amount:
        """Those that it reserves in a later step [byte]."""
        return self.pools + maximum(self.settled_copied_peak - self.peak, 0.0)

    def cached_beside(self, live_bytes: Amount) -> Amount:
        """Bytes that the allocator has reserved beside so many live ones after the first update [byte].

        What that makes for good takes the room of freed activations; those of the next step take that of flat copies.
        """
        return self.pools + maximum(self.copied_peak - live_bytes, 0.0)

    def at(self, phase: Phase) -> Amount:
        """Live bytes in one phase of a later step [byte]."""
        return self._sum(LIVE[phase])

    @property
    def phases(self) -> dict[Phase, Amount]:
        """Live bytes in each phase of a later step [byte]."""
        persistent = self._sum(PERSISTENT)
        return {phase: self._sum(kinds[len(PERSISTENT) :], persistent) for phase, kinds in LIVE.items()}

    @property
    def peak(self) -> Amount:
        """Bytes at the peak [byte]."""
        return reduce(maximum, self.phases.values())

    def _sum(self, kinds: tuple[str, ...], before: Amount = 0.0) -> Amount:
        amounts = (getattr(self, kind) for kind in kinds)
        return summed_by_shape((before, *(one for one in amounts if not is_nothing(one))))


PERSISTENT = (
    "weights", "frozen_weights", "quantized_weights", "weight_copies", "gradient_buckets", "master_weights",
    "optimizer_states", "optimizer_scales", "moving_average", "persistent_gradients", "gradient_placeholders",
    "workspace",
)  # fmt: skip
"""Kinds that live through the whole of a later step."""

BETWEEN_STEPS = (*PERSISTENT, "buffered_gradients", "left_step_gradients", "left_streams")
"""Kinds that are live between two steps."""

_COMPUTING = (*PERSISTENT, "gathered_weights", "context_buffers", "attention_mask", "pipeline_buffers")

LIVE: dict[Phase, tuple[str, ...]] = {
    "loss": (*_COMPUTING, "cast_weights", "early_gradients", "loss_activations", "logits"),
    "backward": (
        *_COMPUTING,
        "late_cast_weights",
        "early_gradients",
        "activations",
        "recomputed_activations",
        "layer_buffers",
    ),
    "reduction": (*_COMPUTING, "kept_weights", "gradients", "half_gradients", "reduced_gradients", "other_activations"),
    "optimizer": (*PERSISTENT, "gradients", "step_gradients", "update_buffers", "flat_copies", "left_streams"),
    "idle": BETWEEN_STEPS,
}
"""Kinds that are live at the fullest moment of each phase: when the last micro-batch in flight has its loss, when its
last layer runs backward, when its first layer has, inside the optimizer step, and between two steps."""

ANSWER_KINDS = {
    "kept_weights": "gathered_weights",
    "cast_weights": "gathered_weights",
    "late_cast_weights": "gathered_weights",
    "early_gradients": "gradients",
    "buffered_gradients": "gradients",
    "half_gradients": "gradients",
    "persistent_gradients": "step_gradients",
    "left_step_gradients": "step_gradients",
    "loss_activations": "activations",
    "other_activations": "activations",
    "flat_copies": "update_buffers",
}
"""Kinds that answers report as part of another kind."""

_MOMENTS = ("optimizer_states", "optimizer_scales")
_UPDATED = ("master_weights", *_MOMENTS, "moving_average")
_IN_STEP = ("step_gradients", "persistent_gradients", "update_buffers")
_MODEL = ("weights", "frozen_weights", "quantized_weights", "gradients")

OFF_DEVICE: dict[OffloadName, tuple[str, ...]] = {
    "none": (),
    "moments": _MOMENTS,
    "optimizer": _UPDATED,
    "activations": (),
    "optimizer-and-activations": _UPDATED,
    "model": (*_MODEL, *_UPDATED),
}
"""Kinds that live in host memory, by what is offloaded."""

HOST_COPIES: dict[OffloadName, tuple[str, ...]] = {"moments": ("master_weights",)}
"""Kinds that host memory has copies of, by what is offloaded.
Source: NVIDIA/Megatron-LM@d98e8a64 core/optimizer/cpu_offloading/hybrid_optimizer.py (gpu_params_map_cpu_copy)."""

OFFLOADED_ACTIVATIONS: tuple[OffloadName, ...] = ("activations", "optimizer-and-activations")

HOST_GRADIENT_BYTES = 4.0
"""Bytes of one gradient in host memory, where the optimizer runs there.
Source: deepspeedai/DeepSpeed@edaa722 runtime/zero/stage_1_and_2.py (pinned fp32 gradients); Megatron-LM@d98e8a64
core/optimizer/cpu_offloading (fp32 copies)."""

LAYERS_ON_DEVICE = 3
"""Layers whose activations stay when activations are offloaded: one runs, one is on its way out, one on its way back.
Source: NVIDIA/Megatron-LM@d98e8a64 core/pipeline_parallel/fine_grained_activation_offload.py; the count was read off
its two functional tests."""


def stage_bytes(
    workload: Workload, degrees: Degrees, stage: Stage, load: RankLoad, layout: CompleteLayout
) -> StageBytes:
    """Bytes of one rank of one stage, kind by kind.

    Formula: each kind's own
    Args:
        layout: the layout's choices: schedule, context method, offload
    Returns: the bytes by kind [byte]
    Source: definition: each kind has a formula of its own
    """
    schedule = layout.schedule
    micro_batches, activations, beside_loss = _live_activations(schedule, degrees, stage, load)
    losses = micro_batches if schedule == "gpipe" else 1
    spread, offloaded = spread_bytes(workload, degrees, load), OFF_DEVICE[layout.offload]
    host = summed(spread[name] for name in (*offloaded, *HOST_COPIES.get(layout.offload, ())))
    if offloaded:
        in_step = _IN_STEP if "master_weights" in offloaded else ("update_buffers",)
        spread = spread | dict.fromkeys((*offloaded, *in_step), 0.0)
        trained = load.updated.dense_trained, load.updated.expert_trained
        host = host + sharded_bytes(*trained, degrees, HOST_GRADIENT_BYTES, OPTIMIZER_STATES)
    recomputed, buffers = load.recomputed_bytes, load.layer_buffer_bytes
    if layout.offload in OFFLOADED_ACTIVATIONS:
        most = LAYERS_ON_DEVICE * load.largest_kept_bytes
        resident = minimum(activations, most)
        buffers = where(resident == most, load.resident_buffer_bytes, buffers)
        activations, host = resident, host + activations - resident
        beside_loss = minimum(beside_loss, most)
        recomputed = minimum(recomputed, maximum(LAYERS_ON_DEVICE * load.largest_whole_bytes - resident, 0.0))
    chunks = where(degrees.pipeline > 1, 2, 1) if schedule == "dualpipe" else degrees.virtual_pipeline
    gathered = all_gathered_weights(workload, degrees, load, chunks)
    grouped = grouped_gradient_bytes(workload, degrees, load)
    halves = spread["half_gradients"]
    result = StageBytes(
        **spread,
        gradient_buckets=bucket_bytes(
            workload, degrees, load, halves if workload.state.half_gradient_bytes else spread["gradients"]
        ),
        buffered_gradients=spread["gradients"] if workload.stack.keeps_gradients else 0.0,
        early_gradients=early_gradient_bytes(workload, degrees, spread, gathered) + grouped,
        left_step_gradients=0.0 if workload.stack.keeps_step_gradients else spread["step_gradients"],
        gathered_weights=gathered.weight_bytes,
        kept_weights=gathered.kept_bytes,
        cast_weights=gathered.cast_bytes,
        late_cast_weights=gathered.late_cast_bytes,
        reduced_gradients=gathered.gradient_bytes + grouped + table_gradient_bytes(workload, degrees, load),
        pools=cached_bytes(workload, degrees, load, spread["gradients"]),
        context_buffers=exchanged_bytes(workload, degrees, layout.context_method),
        attention_mask=mask_bytes(workload, degrees),
        pipeline_buffers=received_bytes(workload, degrees, stage),
        left_streams=left_bytes(workload, degrees),
        activations=activations,
        loss_activations=beside_loss,
        other_activations=activations * maximum(micro_batches - 1, 0) / micro_batches,
        recomputed_activations=recomputed,
        layer_buffers=buffers,
        logits=load.logits_bytes + (losses - 1) * load.kept_logits_bytes,
        gradient_placeholders=load.placeholder_bytes,
        workspace=persistent_buffer_bytes(workload, degrees, has_head=load.logits_bytes > 0),
        in_flight=micro_batches,
        host=host,
    )
    copies = flat_copies(workload, degrees, load)
    if copies is not None:
        put_flat_copies(result, copies)
    return result


def put_flat_copies(rank_bytes: StageBytes, copies: FlatCopies) -> None:
    """Set what flat copies hold, and what the allocator reserves for them.

    A micro-batch may be so short that no freed activation is as large as a part. The part finds room in the activations
    of a longer one, for which the allocator never holds less than it does for the shorter one.
    """
    early, shorter = [], []
    for phase, live in rank_bytes.phases.items():
        if MOMENTS[phase] in _UPDATED_BY:
            continue
        early.append(live - summed(getattr(rank_bytes, kind) for kind in LAZY))
        micro_batches = rank_bytes.in_flight - (1 if "other_activations" in LIVE[phase] else 0)
        keeps = any(ANSWER_KINDS.get(kind, kind) == "activations" for kind in LIVE[phase])
        spared = maximum(micro_batches, 0) * copies.spared_bytes if keeps else 0.0
        again = copies.spared_again_bytes if "recomputed_activations" in LIVE[phase] else 0.0
        shorter.append(early[-1] - spared - again)
    highest = reduce(maximum, early)
    beside = copies.weight_bytes + where(copies.has_again, copies.again_bytes, 0.0)
    rank_bytes.flat_copies = copies.every_bytes
    rank_bytes.settled_copied_peak = highest + beside
    rank_bytes.copied_peak = maximum(highest + beside, reduce(maximum, shorter) + copies.every_bytes)


@evaluated_once
def spread_bytes(workload: Workload, degrees: Degrees, load: RankLoad) -> dict[str, Amount]:
    """Bytes of the lines that the data group may shard, with what the fullest rank has of whole matrices."""
    spread = {
        name: sharded_bytes(line.dense, line.expert, degrees, line.each_bytes, line.kind)
        for name, line in sharded_lines(workload, load).items()
    }
    extra = undivided_share(workload, degrees, load)
    moment = moment_bytes(workload.optimizer, workload.precision, workload.recipe.moment_dtype)
    master, moments = workload.state.master_bytes, WHOLE_MOMENTS * moment
    spread["master_weights"] = dealt_bytes(spread["master_weights"], extra, master)
    spread["optimizer_states"] = dealt_bytes(spread["optimizer_states"], extra, moments)
    return spread | step_gradient_lines(workload, degrees, load, spread["step_gradients"])


@evaluated_once
def early_gradient_bytes(
    workload: Workload, degrees: Degrees, spread: dict[str, Amount], gathered: AllGatheredWeights
) -> Amount:
    """Bytes of gradients that are there before the last micro-batch runs backward: buffers, and those of earlier ones.

    Formula:
        (N_dense / z + N_expert / z_expert) b with buffers or after an earlier micro-batch; 4 bytes for each trained
        number where gradients wait whole for the last micro-batch; and those in the compute format, where they stay
    Args:
        spread: bytes of one rank by kind, as sharded
        gathered: what is whole on one rank for a while
    Returns: bytes of one rank [byte]
    Source: states.sharded_bytes; states.all_gathered_weights

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> spread = {"gradients": 8.0, "half_gradients": 4.0}
    >>> early_gradient_bytes(sample_workload(), sample_degrees(), spread, AllGatheredWeights(*(0.0,) * 6))
    8.0
    """
    several = degrees.accumulation > 1
    shared = where(either(workload.stack.keeps_gradients, several), spread["gradients"], 0.0)
    waiting = gathered.waiting_bytes
    early = where_needed(waiting > 0, lambda: where(several, waiting, shared), shared)
    return early + (spread["half_gradients"] if workload.stack.keeps_half_gradients == "always" else 0.0)


def _live_activations(
    schedule: ScheduleName, degrees: Degrees, stage: Stage, load: RankLoad
) -> tuple[Amount, Amount, Amount]:
    """Micro-batches in flight, each chunk counting its share of one; bytes they keep at most, and beside a loss."""
    is_interleaved, first = schedule == "interleaved-1f1b", load.kept_bytes[0]
    plain, *_ = in_flight("1f1b" if is_interleaved else schedule, degrees, stage.index)
    if not is_interleaved:
        return plain, plain * first, plain * first
    several, rounds = degrees.virtual_pipeline > 1, degrees.virtual_pipeline
    most = where(several, interleaved_bytes(degrees, stage.index, load.kept_bytes), plain * first)
    warm = where(both(several, load.logits_bytes > 0), loss_bytes(degrees, stage.index, load.kept_bytes), most)
    return where(several, warm_passes(degrees, stage.index) / rounds, plain), most, warm


StepName = Literal["first", "later"]
Moment = Literal["start", "forward", "loss", "backward", "reduction", "optimizer", "end"]

MOMENTS: dict[Phase, Moment] = {
    "loss": "loss",
    "backward": "backward",
    "reduction": "reduction",
    "optimizer": "optimizer",
    "idle": "end",
}
"""The moment of a step at which each phase is fullest."""

LAZY = ("optimizer_states", "optimizer_scales")
"""Kinds that the optimizer makes in its first step. Source: torch.optim (lazy state)."""

_UPDATED_BY: tuple[Moment, ...] = ("optimizer", "end")
"""Moments by which the first update has made those."""

AFTER_BACKWARD = ("gradient_placeholders",)
"""Kinds that the first backward pass makes."""


def first_step_peak_bytes(rank_bytes: StageBytes, *, several: bool) -> float:
    """Live bytes of one rank at the peak of the first step.

    Formula: the highest of the moments, without what the optimizer makes in that step until it runs
    Args:
        several: whether the step has more than one micro-batch
    Returns: bytes of one rank [byte]
    Source: torch.optim (lazy state)

    >>> from service.estimator.memory.memory import stage_bytes
    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load, sample_resolved
    >>> from service.estimator.parallelism.stages import stage_at
    >>> workload, degrees, layout = sample_workload(), sample_degrees(), sample_resolved().question.layout
    >>> stage = stage_at(workload, degrees, 0, None, 1)
    >>> found = stage_bytes(workload, degrees, stage, sample_rank_load(), layout)
    >>> found.peak == found.at("loss"), first_step_peak_bytes(found, several=True) == found.at("optimizer")
    (True, True)
    """
    return max(_first_step_bytes(rank_bytes, phase, several=several) for phase in LIVE)


def first_step_lines(rank_bytes: StageBytes, *, several: bool) -> dict[str, float]:
    """Live bytes of one rank at the peak of the first step, by kind."""
    peak = max(LIVE, key=lambda phase: _first_step_bytes(rank_bytes, phase, several=several))
    return live_bytes(rank_bytes, LIVE[peak], missing_kinds("first", MOMENTS[peak], several=several))


def _first_step_bytes(rank_bytes: StageBytes, phase: Phase, *, several: bool) -> float:
    missing = missing_kinds("first", MOMENTS[phase], several=several)
    return float(rank_bytes.at(phase)) - sum(float(getattr(rank_bytes, kind)) for kind in missing)


def missing_kinds(step: StepName, moment: Moment, *, several: bool) -> tuple[str, ...]:
    """Kinds that do not exist yet at a moment of a step.

    >>> missing_kinds("first", "loss", several=True), missing_kinds("later", "loss", several=True)
    (('optimizer_states', 'optimizer_scales'), ())
    """
    if step == "later" or moment in _UPDATED_BY:
        return ()
    return LAZY if several or moment in ("backward", "reduction") else (*LAZY, *AFTER_BACKWARD)


def live_bytes(rank_bytes: StageBytes, kinds: tuple[str, ...], missing: tuple[str, ...]) -> dict[str, float]:
    """Bytes of one rank by the kinds of answers.

    Args:
        kinds: kinds that are live
        missing: those of them that do not exist yet
    Returns: bytes by kind, those of zero left out [byte]
    Source: memory.LIVE
    Formula: sum of the kinds that share a name
    """
    lines: dict[str, float] = {}
    for kind in kinds:
        amount = 0.0 if kind in missing else float(getattr(rank_bytes, kind))
        if amount:
            name = ANSWER_KINDS.get(kind, kind)
            lines[name] = lines.get(name, 0.0) + amount
    return lines
