"""Time of the host to launch kernels: for each micro-batch of a stage, and for each step."""

from service.estimator.degrees import Degrees
from service.estimator.numeric import Amount, summed
from service.estimator.parallelism.stages import Stage
from service.estimator.question import DispatcherName
from service.estimator.workload import Workload

ROUTER_LAUNCHES = 200
"""Launches of a router and of the counts of tokens that lead up to its dispatch, both passes.
Source: NVIDIA/Megatron-LM@1d9edcf8c docs/discussions/deepseek-v3-gb200-optimization, 2.1.4: 72 kernels forward; the
rest, as many backward and the counts, is an estimate."""

DISPATCH_LAUNCHES: dict[DispatcherName, int] = {"alltoall": 200, "allgather": 200, "flex": 100}
"""Launches of one dispatch and one combine, both passes: exchanges, permutations by token and by expert, and waits for
counts; the flex dispatcher does half of it in its kernels.
Source: an estimate, not a count, with the seconds of a layer of published steps in view; what runs:
NVIDIA/Megatron-LM@d98e8a64 core/transformer/moe/token_dispatcher.py."""

LATENT_LAUNCHES = 90
"""Further launches of attention whose keys and values are latent: projections, norms, splits and rotations.
Source: an estimate, likewise; NVIDIA/Megatron-LM@d98e8a64 core/transformer/multi_latent_attention.py."""

SHARED_LAUNCHES = 40
"""Launches of shared experts. Source: as of a dense MLP, two thirds of a dense layer's 60."""

EXPERT_LAUNCHES = 4
"""Launches of the products of one local expert, both passes, which C++ loops over.
Source: an estimate, likewise: six products at two thirds of a launch;
NVIDIA/TransformerEngine@v2.11 pytorch/module/grouped_linear.py."""

NARROW_LAUNCHES = 6
"""Further launches of one local expert whose operands become narrow: three tensors of each of two products, with their
buffers. Source: an estimate, lowered from 26 because published steps of Qwen3-235B on B200 (mbridge) take less time;
what runs: Megatron-LM@1d9edcf8c, same document, 2.1.2."""

BIAS_LAUNCHES = 9
"""Further launches of one local expert with biases. Source: NVIDIA/Megatron-LM@d98e8a64 core/transformer/moe/experts.py
_apply_bias: product, sum and cast, and their gradients."""

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


def sparse_launches(workload: Workload, degrees: Degrees) -> Amount:
    """Launches of one layer of experts for one micro-batch, beside those of a dense layer.

    Formula: router + shared experts + latent attention + dispatch + E / e x each expert's; graphs of parts of a layer
        leave the last two
    Args:
        workload: the workload, with E experts
        degrees: the degrees, with e expert ranks
    Returns: launches, forward and backward [1]
    Source: the launches of this file

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> sparse_launches(sample_workload(), sample_degrees())
    400.0
    """
    model, software = workload.model, workload.software
    each = EXPERT_LAUNCHES + BIAS_LAUNCHES * model.mlp_bias
    each = each + NARROW_LAUNCHES * (workload.precision.matrix_format in ("fp8", "fp4"))
    launched = DISPATCH_LAUNCHES[software.dispatcher or "alltoall"] + each * model.num_experts / degrees.expert
    if software.partial_graphs:
        return launched
    shared = SHARED_LAUNCHES * bool(model.shared_expert_intermediate_size)
    return launched + ROUTER_LAUNCHES + shared + LATENT_LAUNCHES * (model.kv_lora_rank is not None)


def host_seconds(workload: Workload, degrees: Degrees, stage: Stage) -> Amount:
    """Seconds that the host takes to launch the kernels of one micro-batch on one rank of a stage.

    Formula: layers x t_layer + layers of experts x n t; 0 where they are launched as one graph, and without t_layer
        where graphs hold parts of each layer
    Args:
        workload: the workload, with t_layer and t in its constants
        degrees: the degrees, with n = sparse_launches
    Returns: seconds of one micro-batch [s]
    Source: StepConstants.layer_host_seconds; StepConstants.host_launch_seconds

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> host_seconds(sample_workload(), sample_degrees(), stage) == 32 * sample_workload().constants.layer_host_seconds
    True
    """
    software, constants = workload.software, workload.constants
    if software.cuda_graphs and not software.partial_graphs:
        return 0.0
    layers = 0.0 if software.partial_graphs else stage.layers * constants.layer_host_seconds
    if not workload.model.num_experts:
        return layers
    launches = sparse_layers(workload, stage) * sparse_launches(workload, degrees)
    return layers + launches * constants.host_launch_seconds


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
