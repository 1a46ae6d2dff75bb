"""Time of the host to launch kernels: for each micro-batch of a stage, and for each step."""

from service.estimator.degrees import Degrees
from service.estimator.numeric import Amount, summed
from service.estimator.parallelism.stages import Stage
from service.estimator.question import DispatcherName
from service.estimator.workload import Workload

LAYER_LAUNCHES = 60
"""Launches of what a layer has without experts, both passes. Source: StepConstants.layer_host_seconds; 84 were counted
without fused kernels."""

ROUTER_LAUNCHES = 42
"""Launches of a router with softmax and one balancing loss, both passes.
Source: counted as NVIDIA/Megatron-LM@d98e8a64 core/transformer/moe/router.py ran on CPU, views left out."""

CORRECTED_ROUTER_LAUNCHES = 80
"""The same of one with sigmoids, a bias that corrects its choice, groups and a loss of each sequence, which models with
shared experts have. Source: likewise."""

DISPATCH_LAUNCHES: dict[DispatcherName, int] = {"alltoall": 38, "allgather": 33, "flex": 32}
"""Launches of one dispatch and one combine, both passes: exchanges, permutations by token and by expert, and counts.
Source: counted, likewise, of two ranks, core/transformer/moe/token_dispatcher.py; flex: in its source, fused_a2a.py."""

LATENT_LAUNCHES = 33
"""Further launches of attention whose keys and values are latent: projections, norms, splits and rotations.
Source: counted, likewise, 117 of a layer beside 84, core/transformer/multi_latent_attention.py."""

SHARED_LAUNCHES = 14
"""Launches of shared experts. Source: counted, likewise, core/transformer/moe/shared_experts.py."""

BIAS_LAUNCHES = 9
"""Further launches of one local expert with biases. Source: NVIDIA/Megatron-LM@d98e8a64 core/transformer/moe/experts.py
_apply_bias: product, sum and cast, and their gradients."""

NATIVE_SECONDS = 5e-6
"""Time of the host to launch one kernel in a loop of C++.
Source: Zhang et al. 2019, doi:10.1109/IPDPSW.2019.00063: 4 to 5 microseconds of latency of a CUDA launch."""

EXPERT_LAUNCHES = 6
"""Launches of the products of one local expert, both passes, which C++ loops over.
Source: NVIDIA/TransformerEngine@v2.11 pytorch/module/grouped_linear.py: two
matrices, each one product forward and two backward."""

NARROW_LAUNCHES = 18
"""Further launches of one local expert whose operands become narrow: of three tensors of each of two matrices one
conversion, and two that order their scales.
Source: Megatron-LM@1d9edcf8c docs/discussions/deepseek-v3-gb200-optimization, 2.1.2 and 2.1.3."""

UPDATED_MATRICES = 2
"""Tensors of weights of one local expert."""

UPDATE_LAUNCHES = 8
"""Launches of one tensor of weights in each step: its gradient copied and cast, its norm, the update, the weight copied
back, and what is reset. Source: an estimate; NVIDIA/Megatron-LM@d98e8a64 core/optimizer/distrib_optimizer.py."""


def sparse_layers(workload: Workload, stage: Stage) -> Amount:
    """Layers of experts of a stage.

    Formula: sum of the layers of each kind that has experts
    Returns: layers [1]
    Source: definition

    >>> from service.estimator.samples import sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> sparse_layers(sample_workload(), stage)
    0
    """
    shapes = zip(stage.kind_counts, workload.ledger.shapes, strict=True)
    return summed(count for count, shape in shapes if shape.is_sparse)


def sparse_launches(workload: Workload) -> int:
    """Launches from Python of one layer of experts for one micro-batch, beside those of a dense layer.

    Formula: router + shared experts + latent attention + dispatch; graphs of parts of a layer leave the last
    Returns: launches, forward and backward [1]
    Source: the launches of this file

    >>> from service.estimator.samples import sample_workload
    >>> sparse_launches(sample_workload())
    80
    """
    model, software = workload.model, workload.software
    launched = DISPATCH_LAUNCHES[software.dispatcher or "alltoall"]
    if software.partial_graphs:
        return launched
    if model.shared_expert_intermediate_size:
        launched += CORRECTED_ROUTER_LAUNCHES + SHARED_LAUNCHES
    else:
        launched += ROUTER_LAUNCHES
    return launched + LATENT_LAUNCHES * (model.kv_lora_rank is not None)


def expert_host_seconds(workload: Workload) -> float:
    """Seconds that the host takes to launch the kernels of one local expert for one micro-batch.

    Formula: n t_native + b t; n = EXPERT_LAUNCHES, and NARROW_LAUNCHES where operands become narrow; b = BIAS_LAUNCHES
        where experts have biases; 0 where one kernel does all experts
    Args:
        workload: the workload, with t in its constants
    Returns: seconds of one micro-batch [s]
    Source: NATIVE_SECONDS; StepConstants.host_launch_seconds

    >>> from service.estimator.samples import sample_workload
    >>> round(1e6 * expert_host_seconds(sample_workload()), 3)
    30.0
    """
    if workload.software.fused_experts:
        return 0.0
    is_narrow = workload.precision.matrix_format in ("fp8", "fp4")
    native = (EXPERT_LAUNCHES + NARROW_LAUNCHES * is_narrow) * NATIVE_SECONDS
    return native + BIAS_LAUNCHES * workload.model.mlp_bias * workload.constants.host_launch_seconds


def layer_seconds(workload: Workload) -> float:
    """Seconds that the host takes to launch what any layer has for one micro-batch.

    Formula: t_layer; with experts LAYER_LAUNCHES t, as those of the same process; 0 where graphs hold parts of a layer
    Args:
        workload: the workload, with t_layer and t in its constants
    Returns: seconds of one micro-batch [s]
    Source: StepConstants.layer_host_seconds, host_launch_seconds

    >>> from service.estimator.samples import sample_workload
    >>> layer_seconds(sample_workload())
    0.001
    """
    constants = workload.constants
    if workload.software.partial_graphs:
        return 0.0
    has_experts = bool(workload.model.num_experts)
    return LAYER_LAUNCHES * constants.host_launch_seconds if has_experts else constants.layer_host_seconds


def host_seconds(workload: Workload, degrees: Degrees, stage: Stage) -> Amount:
    """Seconds that the host takes to launch the kernels of one micro-batch on one rank of a stage.

    Formula: layers x t_layer + layers of experts x (n t + E / e x t_expert); 0 where they are launched as one graph
    Args:
        workload: the workload, with E experts, and t in its constants
        degrees: the degrees, with e expert ranks
    Returns: seconds of one micro-batch [s]
    Source: t_layer = layer_seconds; n = sparse_launches; t_expert = expert_host_seconds

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> host_seconds(sample_workload(), sample_degrees(), stage) == 32 * sample_workload().constants.layer_host_seconds
    True
    """
    software, model = workload.software, workload.model
    if software.cuda_graphs and not software.partial_graphs:
        return 0.0
    layers = stage.layers * layer_seconds(workload)
    if not model.num_experts:
        return layers
    local = model.num_experts / degrees.expert * expert_host_seconds(workload)
    each = sparse_launches(workload) * workload.constants.host_launch_seconds + local
    return layers + sparse_layers(workload, stage) * each


def update_host_seconds(workload: Workload, degrees: Degrees, stage: Stage) -> Amount:
    """Seconds that the host takes in each step to launch the update of its experts' weights, each a tensor of its own.

    Formula: layers of experts x E / e x m n t; 0 where a step is one graph
    Args:
        workload: the workload, with E experts, t in its constants
        degrees: the degrees, with e expert ranks
    Returns: seconds of one step [s]
    Source: m = UPDATED_MATRICES; n = UPDATE_LAUNCHES; StepConstants.host_launch_seconds

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> update_host_seconds(sample_workload(), sample_degrees(), stage)
    0.0
    """
    software, model = workload.software, workload.model
    if not model.num_experts or (software.cuda_graphs and not software.partial_graphs):
        return 0.0
    matrices = sparse_layers(workload, stage) * model.num_experts / degrees.expert * UPDATED_MATRICES
    return matrices * UPDATE_LAUNCHES * workload.constants.host_launch_seconds
