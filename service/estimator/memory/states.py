"""Weights, gradients and optimizer states of one rank, sharded over the data group; size of a checkpoint."""

from dataclasses import dataclass

from service.estimator.degrees import GRADIENTS, OPTIMIZER_STATES, WEIGHTS, Degrees, evaluated_once
from service.estimator.memory.activations import RankLoad
from service.estimator.numeric import Amount, both, is_nothing, maximum, minimum, where
from service.estimator.parallelism.buckets import gather_bucket_numbers, reduce_bucket_numbers, reduces_beside
from service.estimator.parallelism.data import expert_shards, reduced_group, shards, waits_for_last
from service.estimator.parallelism.stages import RankParameters
from service.estimator.software.precision import moment_bytes, quantized_bytes, state_numbers
from service.estimator.software.versions import at_least
from service.estimator.workload import Workload

WHOLE_MOMENTS = 2
"""Moments of each number of a vocabulary matrix, which Muon leaves to AdamW. Source: the optimizer's row."""

AVERAGE_BYTES = 4.0
"""Bytes of one number of a moving average of the weights. Source: torch.optim.swa_utils; Megatron-LM keeps fp32."""

MOST_ROOT_BYTES = 4.0
"""Bytes of the root of one number of the second moment at most, in fp32. Source: torch.optim._multi_tensor_adamw."""


def sharded_bytes(dense: Amount, expert: Amount, degrees: Degrees, bytes_each: float, kind: int) -> Amount:
    """Bytes of one rank for some numbers, spread over the data group where ZeRO reaches their kind.

    Formula: (N_dense / z + N_expert / z_expert) b
    Args:
        dense: numbers outside the routed experts before sharding, N_dense [1]
        expert: numbers of the routed experts before sharding, N_expert [1]
        bytes_each: bytes of one number, b [byte]
        kind: OPTIMIZER_STATES, GRADIENTS or WEIGHTS [1]
    Returns: bytes of one rank [byte]
    Source: Rajbhandari et al. 2020, arXiv:1910.02054, figure 1

    >>> from service.estimator.samples import sample_degrees
    >>> sharded_bytes(1000, 0, sample_degrees(data=4, zero_stage=1), 12, OPTIMIZER_STATES)
    3000.0
    """
    if not bytes_each:
        return 0.0
    spread = 0.0 if is_nothing(dense) else dense * bytes_each / shards(degrees, kind)
    return spread if is_nothing(expert) else spread + expert * bytes_each / expert_shards(degrees, kind)


def dealt_bytes(spread_bytes: Amount, undivided_share: Amount, parameter_bytes: float) -> Amount:
    """Bytes of numbers of the optimizer on the rank that has most, where whole matrices are dealt out to ranks.

    Formula: (N_dense / z + N_expert / z_expert) b + u b,  u = undivided_share
    Args:
        spread_bytes: bytes of an even share [byte]
        undivided_share: parameters that the fullest rank has beyond it, u [1]
        parameter_bytes: bytes of all such numbers of one parameter, b [byte]
    Returns: bytes of one rank [byte]
    Source: states.sharded_bytes; states.undivided_share

    >>> dealt_bytes(100.0, 10.0, 4.0)
    140.0
    """
    return spread_bytes + undivided_share * parameter_bytes


@dataclass(slots=True)
class Sharded:
    """Inputs of one line that the data group may shard."""

    dense: Amount
    """Numbers outside the routed experts, before sharding."""
    expert: Amount
    """Numbers of the routed experts, before sharding."""
    each_bytes: float
    kind: int
    """OPTIMIZER_STATES, GRADIENTS or WEIGHTS."""


def sharded_lines(workload: Workload, load: RankLoad) -> dict[str, Sharded]:
    """The lines of `StageBytes` that the data group may shard, with their inputs."""
    parameters, updated, state = load.parameters, load.updated, workload.state
    moment = moment_bytes(workload.optimizer, workload.precision, workload.recipe.moment_dtype)
    trained = (parameters.dense_trained, parameters.expert_trained)
    renewed = (updated.dense_trained, updated.expert_trained)
    products = (parameters.dense_products, parameters.expert_products)
    quantized = workload.method.name == "qlora"
    whole = _less(trained, products) if workload.recipe.fp8_weights else trained
    frozen = _less((parameters.dense + parameters.dense_copied, parameters.expert), trained)
    narrow = narrow_fraction(workload, parameters)
    states = (updated.dense_states, updated.expert_states)
    moments = (updated.dense_states * (1 - narrow), updated.expert_states) if follows_weights(workload) else states
    trained, whole = ((numbers[0] * (1 - narrow), numbers[1]) for numbers in (trained, whole))
    made, stepped = trained, renewed
    if workload.software.step_in_backward:
        made = stepped = (minimum(trained[0] + trained[1], one_group_parameters(load)), 0.0)
    if workload.precision.outside_bytes:
        whole = (whole[0] + wide_numbers(workload, parameters), whole[1])
    return {
        "weights": Sharded(*whole, state.weight_bytes, WEIGHTS),
        "frozen_weights": Sharded(*(_less(frozen, products) if quantized else frozen), state.frozen_bytes, WEIGHTS),
        "quantized_weights": Sharded(*products, quantized_bytes(workload.method), WEIGHTS),
        "weight_copies": Sharded(*products, state.copy_bytes, WEIGHTS),
        "gradients": Sharded(*made, state.gradient_bytes, GRADIENTS),
        "half_gradients": Sharded(*made, state.half_gradient_bytes, GRADIENTS),
        "master_weights": Sharded(*renewed, state.master_bytes, OPTIMIZER_STATES),
        "optimizer_states": Sharded(*moments, moment, OPTIMIZER_STATES),
        "optimizer_scales": Sharded(*states, workload.optimizer.scale_bytes, OPTIMIZER_STATES),
        "moving_average": Sharded(*renewed, AVERAGE_BYTES if workload.recipe.ema else 0.0, OPTIMIZER_STATES),
        "step_gradients": Sharded(*stepped, state.step_bytes, OPTIMIZER_STATES),
        "update_buffers": Sharded(
            stepped[0] * buffered_fraction(workload, parameters), stepped[1], update_bytes(workload), OPTIMIZER_STATES
        ),
    }


def one_group_parameters(load: RankLoad) -> Amount:
    """Most trained parameters of a layer or of a table, whose gradients are there at once where each updates its own.

    Formula: max(trained parameters of the largest layer, those of the largest table)
    Returns: parameters of one rank [1]
    Source:
        pytorch/torchtune@v0.6.1 training/memory.py register_optim_in_bwd_hooks (a hook of each parameter steps and
        frees it); a layer's are an upper bound

    >>> from service.estimator.samples import sample_rank_load
    >>> one_group_parameters(sample_rank_load()) == 128_256 * 4096
    True
    """
    return maximum(load.largest_trained_layer, load.largest_table)


def follows_weights(workload: Workload) -> bool:
    """Whether moments have the format of the weight that they update, because nothing names another.

    >>> from service.estimator.samples import sample_workload

    >>> follows_weights(sample_workload())
    True
    """
    return workload.optimizer.moment_bytes is None and workload.recipe.moment_dtype is None


def update_bytes(workload: Workload) -> float:
    """Bytes of temporaries for each updated parameter inside the optimizer step.

    Formula:
        none in one kernel; else the root of the second moment, and before torch 2.1 its sum with epsilon too, in fp32
        or the moment's narrower format; SGD updates in place
    Returns: bytes of one parameter [byte]
    Source: torch.optim._multi_tensor_adamw (denominators are made in place since torch 2.1), _multi_tensor_sgd

    >>> from service.estimator.samples import sample_workload
    >>> update_bytes(sample_workload())
    0.0
    """
    if workload.software.fused_update or workload.recipe.optimizer in ("sgd", "sgd-momentum"):
        return 0.0
    each = min(MOST_ROOT_BYTES, moment_bytes(workload.optimizer, workload.precision, workload.recipe.moment_dtype))
    return each if at_least(workload.versions.torch, "2.1") else 2 * each


def narrow_fraction(workload: Workload, parameters: RankParameters) -> Amount:
    """Share of trained bytes saved where parts are trained whole beside adapters, in the compute format.

    Formula: copied / trained x (1 - compute-format bytes / bytes of trained weights)
    Returns: share of the bytes [1]
    Source: huggingface/peft modules_to_save (a copy of the module, in the base model's format)

    >>> from service.estimator.samples import sample_workload, sample_rank_load
    >>> narrow_fraction(sample_workload(), sample_rank_load().parameters)
    0.0
    """
    return parameters.dense_copied / maximum(parameters.dense_trained, 1) * (1 - workload.state.copied_fraction)


def wide_numbers(workload: Workload, parameters: RankParameters) -> Amount:
    """Numbers of the weights' format that as many bytes make as weights outside layers' matrices take beyond it.

    Formula: (w_outside / w - 1) (trained - matrices of layers), at least 0; 0 where they have the same format
    Returns: numbers of one rank [1]
    Source: DeepSeek-V3, arXiv:2412.19437, section 3.3.1 (embedding, head and norms keep their precision)

    >>> from service.estimator.samples import sample_workload, sample_rank_load
    >>> wide_numbers(sample_workload(), sample_rank_load().parameters)
    0.0
    """
    own = workload.state.weight_bytes
    beyond = (workload.precision.outside_bytes or own) / own - 1
    return beyond * maximum(parameters.dense_trained - parameters.dense_products, 0)


def buffered_fraction(workload: Workload, parameters: RankParameters) -> Amount:
    """Share of the temporaries of all dense numbers that are live at once in the optimizer step.

    The multi-tensor update takes one format after the other, and drops each list of the last one as it makes its own.

    Formula: with one list (b + w), with two (b + w + max(b, w)) / 2; b and w the shares of the bytes of parts trained
        whole in the compute format, beside adapters, and of all else
    Returns: share of the bytes [1]
    Source: torch 2.0 optim/adamw.py _multi_tensor_adamw (_group_tensors_by_device_and_dtype; two lists before 2.1)

    >>> from service.estimator.samples import sample_workload, sample_rank_load
    >>> buffered_fraction(sample_workload(), sample_rank_load().parameters)
    1.0
    """
    copied = parameters.dense_copied / maximum(parameters.dense_trained, 1)
    narrow, wide = copied * workload.state.copied_fraction, 1 - copied
    if at_least(workload.versions.torch, "2.1"):
        return narrow + wide
    return (narrow + wide + maximum(narrow, wide)) / 2


def _less(numbers: tuple[Amount, Amount], others: tuple[Amount, Amount]) -> tuple[Amount, Amount]:
    """Numbers of the dense part and of the experts, less others."""
    return numbers[0] - others[0], numbers[1] - others[1]


def undivided_share(workload: Workload, degrees: Degrees, load: RankLoad) -> Amount:
    """Numbers that the fullest rank updates beyond its even share, where each rank updates whole matrices.

    Formula: V (1 - 1 / z), V the stage's largest matrix, that of the vocabulary; 0 where each matrix is cut evenly
    Returns: numbers of one rank [1]
    Source: NVIDIA/Megatron-LM@d98e8a64 core/optimizer/layer_wise_optimizer.py (whole matrices, the largest ones last)

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> undivided_share(sample_workload(), sample_degrees(data=8, zero_stage=1), sample_rank_load())
    0.0
    """
    if not (workload.stack.keeps_matrices_whole and workload.optimizer.needs_whole_matrices):
        return 0.0
    return load.largest_table * (1 - 1 / shards(degrees, OPTIMIZER_STATES))


REDUCTION_BYTES = 4.0
"""Bytes of one gradient while ZeRO-3 reduces it. Source: torch FSDP MixedPrecision, reduce_dtype float32."""


def reduction_bytes(workload: Workload) -> float:
    """Bytes of one gradient while ZeRO-3 reduces it.

    Formula: REDUCTION_BYTES, or those of the compute format where the stack reduces gradients as they are
    Returns: bytes of one parameter [byte]
    Source: REDUCTION_BYTES; deepspeedai/DeepSpeed@v0.12.3 runtime/zero/stage3.py __avg_scatter_grads

    >>> from service.estimator.samples import sample_workload
    >>> reduction_bytes(sample_workload())
    4.0
    """
    return workload.state.gathered_bytes if workload.implementation.overlap.reduces_half else REDUCTION_BYTES


@dataclass(slots=True)
class AllGatheredWeights:
    """Bytes that one rank holds whole for a part of a step."""

    weight_bytes: Amount
    """Weights, from the loss to the end of the backward pass."""
    kept_bytes: Amount
    """Further weights, which a backward pass has gathered and keeps to its end."""
    cast_bytes: Amount
    """Weights that autocast has cast, until it ends."""
    late_cast_bytes: Amount
    """Those of them that the backward pass needs at its start, and what one recomputed group casts again."""
    gradient_bytes: Amount
    """Gradients of gathered weights, while the data group reduces them."""
    waiting_bytes: Amount
    """Whole gradients that wait from micro-batch to micro-batch until the last one; 0 where each is reduced."""


@evaluated_once
def all_gathered_weights(
    workload: Workload, degrees: Degrees, load: RankLoad, chunks: Amount = 1
) -> AllGatheredWeights:
    """Bytes of whole weights, and of their gradients, that one rank holds at once.

    Formula:
        ZeRO-3, freed after use: weights of the embedding's and the head's group and of one layer, or of the bucket that
        is gathered ahead if that has more; the gradients of the largest of either, once in the compute format and once
        as they are reduced
        the same where gradients wait for the last micro-batch: those weights, and every one of v - 1 of v chunks, while
        a chunk runs forward; every weight at the end of its backward pass; every fp32 gradient
        ZeRO-3, kept: every weight; with a pipeline every fp32 gradient, else one layer's in both formats
        below ZeRO-3: every trained weight of products, where fp32 weights are cast on the fly; else nothing. In the
        backward pass those of layers that run again are cast again, group by group
        (gradients of trained parameters only)
    Args:
        chunks: model chunks of the rank, v [1]
    Returns: bytes of one rank [byte]
    Source:
        Zhao et al. 2023, arXiv:2304.11277, section 3.3; torch 2.13 distributed/fsdp/_fully_shard: the root's group and
        the last layer stay gathered between forward and backward; torchtitan with a pipeline: weights and gradients
        stay whole between micro-batches; torch.amp: autocast keeps each weight's cast until it ends; waits_for_last

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> zero = sample_degrees(data=8, zero_stage=3, reshard_after_forward=1)
    >>> ends, layer = 2 * 128_256 * 4096 + 4096, 218_112_000
    >>> all_gathered_weights(sample_workload(), zero, sample_rank_load()).weight_bytes == 2 * (ends + layer)
    True
    """
    own = load.parameters
    every, trained = own.dense + own.expert, own.dense_trained + own.expert_trained
    weight = workload.state.gathered_bytes
    reducing = weight + reduction_bytes(workload)
    freed = (maximum(load.largest_layer, gather_bucket_numbers(workload)) + load.gathered_ends) * weight
    one_layer_bytes = maximum(load.largest_trained_layer, load.largest_trained_end) * reducing
    frees, waits = degrees.reshard_after_forward == 1, waits_for_last(workload, degrees)
    others = where(waits, (1 - 1 / chunks) * every * weight, 0.0)
    gathers, sharded = degrees.shard_group > 1, degrees.zero_stage >= WEIGHTS
    freed = minimum(freed + others, every * weight)
    whole = where(both(sharded, gathers), where(frees, freed, every * weight), 0.0)
    waiting = where(both(waits, gathers), trained * reduction_bytes(workload), 0.0)
    reduced = where(frees, one_layer_bytes, load.largest_trained_layer * reducing)
    return AllGatheredWeights(
        weight_bytes=whole,
        kept_bytes=where(both(waits, gathers), every * weight - whole, 0.0),
        cast_bytes=where(both(sharded, gathers), 0.0, load.cast_numbers * weight),
        late_cast_bytes=where(both(sharded, gathers), 0.0, load.late_cast_numbers * weight),
        gradient_bytes=where(both(sharded, gathers), where(waits, waiting, reduced), 0.0),
        waiting_bytes=waiting,
    )


@evaluated_once
def grouped_gradient_bytes(workload: Workload, degrees: Degrees, load: RankLoad) -> Amount:
    """Bytes of whole gradients of the chunk that runs backward, until those of its group of micro-batches are reduced.

    Formula:
        N_trained / v x 4; in flat parameters, N outside frozen ends x bytes of a gathered weight; 0 where gradients are
        reduced after each micro-batch
    Returns: bytes of one rank [byte]
    Source: data.reduced_group; REDUCTION_BYTES; torch 2.1 distributed/fsdp/_flat_param.py

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> grouped_gradient_bytes(sample_workload(), sample_degrees(data=8, zero_stage=2), sample_rank_load())
    0.0
    """
    is_grouped = reduced_group(workload, degrees) > 1
    if workload.implementation.accumulates_whole:
        flat = flat_parameters(load) * workload.state.gathered_bytes
        return where(both(is_grouped, degrees.shard_group > 1), flat, 0.0)
    trained = load.parameters.dense_trained + load.parameters.expert_trained
    grouped = trained / degrees.virtual_pipeline * REDUCTION_BYTES
    return where(is_grouped, grouped, 0.0) if workload.software.grouped_reductions else 0.0


def flat_parameters(load: RankLoad) -> Amount:
    """Numbers of the flat parameters that have anything trained: all layers, and the ends where they do.

    Formula: N - N_ends where nothing of the ends is trained
    Returns: parameters of one rank [1]
    Source: torch 2.1 distributed/fsdp/_flat_param.py (one requires_grad for a flat parameter)

    >>> from service.estimator.samples import sample_rank_load
    >>> flat_parameters(sample_rank_load()) == 8_030_261_248
    True
    """
    every = load.parameters.dense + load.parameters.expert
    return every - where(load.largest_trained_end > 0, 0.0, load.gathered_ends)


STEP_GROUP_NUMBERS = 1_000_000_000
"""Parameters that DeepSpeed's ZeRO-3 updates at once. Source: DeepSpeed configuration, sub_group_size."""

EXPERT_GROUP_NUMBERS = 178_956_971
"""Parameters of experts at most, before sharding, that one group of DeepSpeed's optimizer has.
Source: deepspeedai/DeepSpeed@v0.12.3 moe/utils.py split_params_into_different_moe_groups_for_optimizer."""

TIED_SUMMANDS, CAST_SUMMANDS = 2, 1
"""Gradients of a tied embedding beside their sum. The head's is a view, so torch adds it and the embedding's into a
third tensor; under autocast the head's is a cast, to which torch adds the embedding's in place.
Source: pytorch torch/csrc/autograd/input_buffer.cpp; live bytes counted by torch 2.13's profiler."""


@evaluated_once
def bucket_bytes(workload: Workload, degrees: Degrees, load: RankLoad, gradient_bytes: Amount) -> Amount:
    """Bytes of buckets in which the data group adds gradients up, beside the gradients themselves.

    Formula:
        replicas that shard nothing: as much as the gradients; ZeRO: a bucket as the recipe or the stack has it, or the
        largest matrix if that is larger, or all gradients if they are fewer; for gradients in the compute format below
        ZeRO-3 a whole bucket, as larger matrices are reduced where they lie; twice below ZeRO-3 beside compute
    Args:
        gradient_bytes: gradients of the rank [byte]
    Returns: bytes of one rank [byte]
    Source:
        torch DistributedDataParallel (gradient_as_bucket_view is off); deepspeedai/DeepSpeed@v0.12.3
        runtime/zero/stage_1_and_2.py backward (contiguous_gradients is on: ipg_buffer, a second one with overlap_comm),
        reduce_ipg_grads (extra_large_param_to_reduce); stage3.py __ipg_bucket_flat_buffer (one)

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> bucket_bytes(sample_workload(), sample_degrees(data=8), sample_rank_load(), 4.0)
    0.0
    """
    copied = where(both(degrees.zero_stage == 0, degrees.data > 1), gradient_bytes, 0.0)
    trained = load.parameters.dense_trained + load.parameters.expert_trained
    reduced: Amount = 0.0
    if workload.stack.copies_buckets:
        own = reduce_bucket_numbers(workload, degrees, is_first=True)
        numbers = maximum(own, load.largest_table)
        if is_one_buffer(workload):
            numbers = where(trained > 0, where(degrees.zero_stage >= WEIGHTS, numbers, own), 0.0)
        bucket = (numbers if is_one_buffer(workload) else minimum(numbers, trained)) * workload.state.gradient_bytes
        reduced = where(degrees.zero_stage >= OPTIMIZER_STATES, bucket_copies(workload, degrees) * bucket, 0.0)
    return (copied if workload.stack.buckets_gradients else 0.0) + reduced


def is_one_buffer(workload: Workload) -> bool:
    """Whether gradients are copied into one buffer of a whole bucket, as those in the compute format are."""
    return workload.state.gradient_bytes == workload.precision.element_bytes


def bucket_copies(workload: Workload, degrees: Degrees) -> Amount:
    """Buffers of buckets that a rank has at once.

    Formula: one that fills beside one that is reduced, in ZeRO-1 and 2 beside compute; else one
    Returns: buffers [1]
    Source: deepspeedai/DeepSpeed@edaa722 runtime/zero/stage_1_and_2.py setup_buckets

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> bucket_copies(sample_workload(), sample_degrees(data=8, zero_stage=2))
    2
    """
    return where(both(reduces_beside(workload, degrees), degrees.zero_stage < WEIGHTS), 2, 1)


@evaluated_once
def table_gradient_bytes(workload: Workload, degrees: Degrees, load: RankLoad) -> Amount:
    """Bytes of the dense gradient of the embedding, beside what is accumulated, before it is added to that.

    Where the head is the embedding too, torch adds their two gradients up, into a third tensor unless autocast ran.

    Formula:
        V h / t elements; without buffers for gradients, in the weights' format and unsharded: none in a step of one
        micro-batch, two more where the embedding is the head, one under autocast
    Returns: bytes of one rank [byte]
    Source:
        torch.nn.functional.embedding (dense gradient); torch autograd input buffers, live bytes counted by torch
        2.13's profiler

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> table_gradient_bytes(sample_workload(), sample_degrees(), sample_rank_load()) == 2 * 128_256 * 4096
    True
    """
    buffered = load.embedding_table * workload.precision.element_bytes
    if workload.stack.keeps_gradients:
        return buffered
    summands = CAST_SUMMANDS if workload.state.casts_weights else TIED_SUMMANDS
    tied = summands if workload.model.tie_word_embeddings else 0
    tables = where(degrees.accumulation > 1, tied + 1, tied)
    return where(degrees.zero_stage == 0, load.embedding_table * workload.state.gradient_bytes * tables, buffered)


def step_gradient_lines(workload: Workload, degrees: Degrees, load: RankLoad, whole: Amount) -> dict[str, Amount]:
    """fp32 gradients of the step: kept for the whole run, made all at once, or group by group.

    Formula:
        (N_dense / z + N_expert / z_expert) b; DeepSpeed with ZeRO-2, and with ZeRO-3 at most for one group: those and
        the flat copy that they are made of, x (1 + flat_copy_fraction); with ZeRO-2 of the dense part or of one group
        of experts, max(N_dense / z, min(N_expert, G) / z_expert) b, where ranks share experts
    Args:
        whole: bytes of all at once [byte]
    Returns: bytes of one rank by kind [byte]
    Source:
        DeepSpeed configuration, sub_group_size; torch.optim; deepspeedai/DeepSpeed@v0.12.3 runtime/zero/stage3.py
        _prepare_fp32_grad_for_sub_group, stage_1_and_2.py step (group by group: flatten, then fp32);
        EXPERT_GROUP_NUMBERS
    """
    if not workload.stack.keeps_step_gradients:
        return {"persistent_gradients": 0.0, "step_gradients": whole}
    group = minimum(whole, STEP_GROUP_NUMBERS * workload.stack.step_gradient_bytes)
    line = sharded_lines(workload, load)["step_gradients"]
    dense, experts = (
        sharded_bytes(line.dense, 0.0, degrees, line.each_bytes, line.kind),
        sharded_bytes(0.0, minimum(line.expert, EXPERT_GROUP_NUMBERS), degrees, line.each_bytes, line.kind),
    )
    in_turn = where(degrees.expert > 1, maximum(dense, experts), whole)
    persistent = where(degrees.zero_stage <= OPTIMIZER_STATES, whole, 0.0)
    transient = where(degrees.zero_stage >= WEIGHTS, group, where(degrees.zero_stage == GRADIENTS, in_turn, 0.0))
    return {"persistent_gradients": persistent, "step_gradients": transient * (1 + flat_copy_fraction(workload))}


def flat_copy_fraction(workload: Workload) -> float:
    """Bytes of the flat copy that fp32 gradients of the step are made of, over the bytes of those.

    Formula: compute-format bytes / fp32 bytes
    Returns: share of the bytes [1]
    Source: deepspeedai/DeepSpeed@v0.12.3 runtime/zero/stage_1_and_2.py step (flatten, then fp32)

    >>> from service.estimator.samples import sample_workload
    >>> flat_copy_fraction(sample_workload())
    0.5
    """
    return workload.precision.element_bytes / workload.stack.step_gradient_bytes


def checkpoint_bytes(workload: Workload) -> float:
    """Bytes on disk of one checkpoint from which training can go on, of the whole job.

    Formula:
        sum over trained weights of weight + master copy + optimizer numbers x bytes, tied weights once
        (frozen weights are not written: they are those of the base model; a moving average is)
    Returns: bytes of the whole job [byte]
    Source:
        Megatron-LM dist_checkpointing and torch.distributed.checkpoint (each tensor once, in the format it is held in);
        huggingface/peft save_pretrained (adapters alone)

    >>> from service.estimator.samples import sample_workload
    >>> checkpoint_bytes(sample_workload()) == 14 * 8_030_261_248
    True
    """
    state = workload.state
    moment = moment_bytes(workload.optimizer, workload.precision, workload.recipe.moment_dtype)
    beside = state.master_bytes + (AVERAGE_BYTES if workload.recipe.ema else 0.0)
    total = 0.0
    for times, ops in workload.ledger.groups():
        for weight in (weight for op in ops for weight in op.weights if weight.trained and not weight.tied):
            is_copied = workload.method.name != "full" and weight.role != "adapter"
            narrowed = state.copied_fraction if is_copied else 1.0
            each = moment * (narrowed if follows_weights(workload) else 1.0) + workload.optimizer.scale_bytes
            numbers = state_numbers(workload.optimizer, weight)
            total += times * (weight.parameters * (state.weight_bytes * narrowed + beside) + numbers * each)
    return total
