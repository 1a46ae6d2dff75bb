"""Seconds of the optimizer: what its update streams, and Muon's orthogonal matrices."""

from dataclasses import dataclass

from service.estimator.constants import streaming_bytes_per_s
from service.estimator.degrees import OPTIMIZER_STATES, Degrees, divisors, evaluated_once
from service.estimator.memory.states import sharded_bytes
from service.estimator.model.ledger import Op, Split, Weight
from service.estimator.numeric import Amount, both, maximum, minimum, summed, where
from service.estimator.parallelism.data import expert_shards, shards
from service.estimator.parallelism.stages import RankParameters, Stage, stage_ops
from service.estimator.software.precision import is_orthogonalized, moment_bytes
from service.estimator.time.kernels import HOST_LINK_FRACTION, products_of
from service.estimator.time.rates import ProductRates, matrix_product_seconds
from service.estimator.workload import Workload

HOST_MEMORY_BYTES_PER_S = 77e9
"""Host memory bandwidth for one GPU: 16 channels of DDR5-4800, shared by 8 GPUs.
Source: NVIDIA DGX H100 data sheet, two Xeon 8480C."""


def updated_bytes(workload: Workload, degrees: Degrees, updated: RankParameters) -> tuple[Amount, Amount]:
    """Bytes that an optimizer step reads and writes back, and those that it reads or writes once.

    Formula: moments + master copy, the weights where there is none; gradients + weights; each over its shards
    Args:
        updated: parameters that the rank updates, before sharding
    Returns: both, of one rank [byte]
    Source: definition

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> rewritten, once = updated_bytes(sample_workload(), sample_degrees(), sample_rank_load().updated)
    >>> rewritten / 8_030_261_248, once / 8_030_261_248
    (12.0, 6.0)
    """
    state = workload.state
    each = moment_bytes(workload.optimizer, workload.precision, workload.recipe.moment_dtype)
    states = sharded_bytes(updated.dense_states, updated.expert_states, degrees, each, OPTIMIZER_STATES)
    master = state.master_bytes or state.weight_bytes
    trained = (updated.dense_trained, updated.expert_trained)
    both_ways = states + sharded_bytes(*trained, degrees, master, OPTIMIZER_STATES)
    once = state.gradient_bytes + state.weight_bytes
    return both_ways, sharded_bytes(*trained, degrees, once, OPTIMIZER_STATES)


@evaluated_once
def optimizer_seconds(workload: Workload, degrees: Degrees, updated: RankParameters) -> Amount:
    """Seconds of the optimizer's update on one rank: it streams its shard through the GPU's memory.

    Formula: (2 (master + moments) + gradients + weights) bytes / W
    Args:
        updated: parameters that the rank updates, before sharding
    Returns: seconds of one step [s]
    Source: definition; StepConstants.memory_fraction

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> round(optimizer_seconds(sample_workload(), sample_degrees(), sample_rank_load().updated), 2)
    0.09
    """
    both_ways, once = updated_bytes(workload, degrees, updated)
    return (2 * both_ways + once) / streaming_bytes_per_s(workload.gpu, workload.constants.memory_fraction)


@evaluated_once
def offloaded_seconds(workload: Workload, degrees: Degrees, updated: RankParameters) -> Amount:
    """Seconds of an optimizer's update in host memory: gradients go down, weights come up, the host updates.

    Formula: (gradients + weights) bytes / W_link + 2 (master + moments) bytes / W_host
    Args:
        updated: parameters that the rank updates, before sharding
    Returns: seconds of one step [s]
    Source: Ren et al. 2021, arXiv:2101.06840, section 4; HOST_LINK_FRACTION, HOST_MEMORY_BYTES_PER_S

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> round(offloaded_seconds(sample_workload(), sample_degrees(), sample_rank_load().updated), 3)
    3.372
    """
    both_ways, once = updated_bytes(workload, degrees, updated)
    return once / (workload.gpu.host_bytes_per_s * HOST_LINK_FRACTION) + 2 * both_ways / HOST_MEMORY_BYTES_PER_S


PIECE_SECONDS = 1e-5
"""Time of the host to cut out, flatten and copy one piece of a tensor. Source: 5 to 6 microseconds in Python on a CPU
(torch 2.13, the calls of nanotron's all_gather_coalesced), and constants.LAUNCH_SECONDS."""


def piece_copying_seconds(workload: Workload, degrees: Degrees, stage: Stage) -> Amount:
    """Seconds of one step in which the host copies gathered weights, piece by piece, while the device waits.

    Formula: n d t, t = PIECE_SECONDS; 0 where the stack copies none, and without ZeRO-1
    Args:
        stage: the stage, with n tensors over d ranks
    Returns: seconds of one step [s]
    Source: Overlap.copies_pieces

    >>> from service.estimator.parallelism.stages import stage_at
    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = stage_at(sample_workload(), sample_degrees(), 0, None, 1)
    >>> piece_copying_seconds(sample_workload(), sample_degrees(data=8, zero_stage=1), stage)
    0.0
    """
    if not workload.implementation.overlap.copies_pieces:
        return 0.0
    pieces = stage_tensors(workload, stage) * degrees.shard_group
    return where(both(degrees.zero_stage == OPTIMIZER_STATES, degrees.shard_group > 1), pieces, 0) * PIECE_SECONDS


def stage_tensors(workload: Workload, stage: Stage) -> Amount:
    """Tensors of weights of one stage.

    Formula: sum of the weights of its operations, each as often as it occurs
    Returns: tensors [1]
    Source: definition: the ledger of operations, model/ledger.py

    >>> from service.estimator.parallelism.stages import stage_at
    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage_tensors(sample_workload(), stage_at(sample_workload(), sample_degrees(), 0, None, 1))
    227.0
    """
    return summed(times * sum(len(op.weights) for op in ops) for times, ops in stage_ops(workload, stage))


ITERATIONS = 5
"""Iterations of Newton and Schulz in one update of Muon.
Source: torch 2.13 optim/_muon.py DEFAULT_NS_STEPS; NVIDIA/Megatron-LM core/optimizer/optimizer_config.py
muon_num_ns_steps; pytorch/torchtitan@0.3.0 distributed/flex_shard/dist_muon.py."""


def orthogonal_seconds(short: Amount, long: Amount, rates: ProductRates) -> Amount:
    """Seconds that make one matrix orthogonal on one GPU: its Gram matrix, the square of that, their product with it.

    Formula:
        5 (t(m, m, n) + t(m, m, m) + t(m, n, m)), t = rates.matrix_product_seconds: 5 (4 m^2 n + 2 m^3) FLOP
    Args:
        short: the shorter side, m [1]
        long: the longer side, n [1]
        rates: what the GPU's products in bf16 reach
    Returns: seconds of one update [s]
    Source: torch 2.13 optim/_muon.py _zeropower_via_newtonschulz (bf16); muon_fp32_matmul_prec medium of Megatron-LM

    >>> rates = ProductRates(flop_per_s=1e15, bytes_per_s=3e12, operand_bytes=2, result_bytes=2, wave_tiles=256)
    >>> flop = 5 * (4 * 4096**2 * 8192 + 2 * 4096**3)
    >>> 1 < orthogonal_seconds(4096, 8192, rates) / (flop / 1e15) < 1.1
    True
    """
    gram = matrix_product_seconds(short, short, long, rates)
    square = matrix_product_seconds(short, short, short, rates)
    return ITERATIONS * (gram + square + matrix_product_seconds(short, long, short, rates))


@dataclass(slots=True)
class Orthogonalization:
    """Seconds that make the updates of the matrices of one rank orthogonal, were it alone."""

    dense_seconds: Amount = 0.0
    """Matrices outside the routed experts."""
    expert_seconds: Amount = 0.0
    """Matrices of the routed experts."""
    longest_seconds: Amount = 0.0
    """The one that takes longest."""


def orthogonalization_of(workload: Workload, degrees: Degrees, stage: Stage) -> Orthogonalization:
    """Seconds of all matrices of a stage that Muon updates. Tensor ranks make each its own block orthogonal."""
    # Source: NVIDIA/Megatron-LM core/optimizer/muon.py (muon_tp_mode blockwise); torch.optim.Muon (bf16)
    result = Orthogonalization()
    if not workload.optimizer.needs_whole_matrices:
        return result
    has_bf16 = workload.gpu.bf16_flop_per_s is not None
    rates = products_of(workload, "bf16" if has_bf16 else workload.precision.attention_format).plain
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    for times, ops in stage_ops(workload, stage):
        for op, weight in ((each_op, each) for each_op in ops for each in each_op.weights):
            if not is_orthogonalized(workload.optimizer, weight):
                continue
            count, short, long = _matrices_of(op, weight, degrees, split)
            each = orthogonal_seconds(short, long, rates)
            result.longest_seconds = maximum(result.longest_seconds, where(times > 0, each, 0.0))
            if weight.split is Split.EXPERT:
                result.expert_seconds = result.expert_seconds + times * count * each
            else:
                result.dense_seconds = result.dense_seconds + times * count * each
    return result


def _matrices_of(op: Op, weight: Weight, degrees: Degrees, split: tuple[Amount, ...]) -> tuple[Amount, Amount, Amount]:
    """Matrices of a weight on one rank, and the shorter and the longer side of each."""
    names = max(1, len(weight.matrices))
    rows: Amount = weight.rows
    columns: Amount = weight.columns // names
    is_expert = weight.split is Split.EXPERT
    divisor = degrees.expert_tensor if is_expert else split[weight.split]
    if op.is_row_parallel:
        rows = rows / divisor
    else:
        columns = columns / divisor
    count = names * weight.copies / (degrees.expert if is_expert else 1)
    return count, minimum(rows, columns), maximum(rows, columns)


def orthogonalization_seconds(each: Orthogonalization, degrees: Degrees) -> Amount:
    """Seconds that Muon takes on one rank to make the updates of its matrices orthogonal.

    Ranks that share the optimizer's states deal whole matrices out; without ZeRO each repeats all of them.

    Formula: max(t_dense / z + t_experts / z_experts, t_longest); 0 with other optimizers
    Args:
        each: the three, of all matrices of the rank's stage
    Returns: seconds of one step [s]
    Source:
        NVIDIA/Megatron-LM core/optimizer/layer_wise_optimizer.py (whole matrices, dealt out evenly);
        pytorch/torchtitan@0.3.0 distributed/flex_shard/dist_muon.py (owners, balanced by their work)

    >>> from service.estimator.samples import sample_degrees
    >>> each = Orthogonalization(dense_seconds=8.0, longest_seconds=3.0)
    >>> [orthogonalization_seconds(each, sample_degrees(data=d, zero_stage=1)) for d in (1, 2, 4)]
    [8.0, 4.0, 3.0]
    """
    shared = each.dense_seconds / shards(degrees, OPTIMIZER_STATES) + each.expert_seconds / expert_shards(
        degrees, OPTIMIZER_STATES
    )
    return maximum(shared, each.longest_seconds)
