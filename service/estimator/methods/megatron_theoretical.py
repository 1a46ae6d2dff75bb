"""What does Megatron-LM's report of theoretical memory say: states of its fullest shard, activations of its first?"""

from service.estimator.degrees import padded_vocabulary
from service.estimator.methods import limits, model_limits
from service.estimator.methods.answer import MethodLine
from service.estimator.methods.megatron_parameters import SOURCE, ShardCounts, most_loaded_shard
from service.estimator.methods.tool import ACTIVATIONS, STATES, Said, Term, Tool
from service.estimator.model import Model
from service.estimator.resolve import Resolved

OVERHEAD = 1.05
"""Factor on activations where the report does not use the sequence-parallel form.
Source: NVIDIA/Megatron-LM@d98e8a64 megatron/training/theoretical_memory_usage.py."""


def weight_and_optimizer_bytes(held: ShardCounts, data: int, expert_data: int, *, is_distributed: bool) -> float:
    """Weights, gradients, master weights and moments of the most loaded rank.

    Formula:
        18 N, or with a distributed optimizer N (6 + 12 / d) + N_expert (6 + 12 / d_expert)

    Args:
        held: parameters of the rank
        data: data-parallel replicas, d [1]
        expert_data: ranks that hold the same experts, d_expert [1]
        is_distributed: whether the replicas share the optimizer's states

    Returns:
        bytes [byte]

    Source:
        NVIDIA/Megatron-LM@d98e8a64 megatron/training/theoretical_memory_usage.py

    >>> weight_and_optimizer_bytes(ShardCounts(tensor=90, whole=10, expert=0), 4, 1, is_distributed=True)
    900.0
    """
    each, each_expert = (6 + 12 / data, 6 + 12 / expert_data) if is_distributed else (18.0, 18.0)
    return (held.tensor + held.whole) * each + held.expert * each_expert


def _width(model: Model) -> int:
    """Width of the dense MLP; Megatron-LM's own default where a model of experts names none."""
    default = 8 * model.hidden_size // 3 // 64 * 64 if model.gated_mlp else 4 * model.hidden_size
    return model.intermediate_size or default


def _is_sequence_parallel_form(resolved: Resolved) -> bool:
    return bool(resolved.question.layout.sequence_parallel) and resolved.job.recompute.granularity == "selective"


def _flight_factor(resolved: Resolved) -> float:
    """Activations in flight over those of as many micro-batches as there are stages."""
    layout, accumulation = resolved.question.layout, float(resolved.degrees.accumulation)
    stages, chunks = layout.pipeline, layout.virtual_pipeline
    if chunks > 1:
        return 1 + (stages - 1) / (stages * chunks)
    return min(1.0, accumulation / stages)


def kept_activation_bytes(resolved: Resolved) -> float:
    """Activations of the first stage of a rank.

    Formula:
        sequence parallelism and selective recompute: (F (s b h (18 + 4 f / h) L + s b p (8 + h)) + [p = 1] 4 s b
        (h + V)) / t
        else: 1.05 (F (s b h (10 + 24 / t) L + s b p (8 + h)) + [p = 1] 2 s b (h + V / t)),
        F = min(1, m / p), or 1 + (p - 1) / (p v) where v > 1

    Args:
        resolved: the question

    Returns:
        bytes [byte]

    Source:
        NVIDIA/Megatron-LM@d98e8a64 megatron/training/theoretical_memory_usage.py

    >>> from service.estimator.samples import sample_resolved
    >>> round(kept_activation_bytes(sample_resolved()) / 2**20)
    38762
    """
    model, layout = resolved.question.model, resolved.question.layout
    tokens, hidden = resolved.question.recipe.sequence_length * resolved.question.recipe.micro_batch, model.hidden_size
    rows = float(padded_vocabulary(model, resolved.job.vocabulary_multiple, layout.tensor))
    is_first_form, is_last = _is_sequence_parallel_form(resolved), layout.pipeline == 1
    each = 18 + 4 * _width(model) / hidden if is_first_form else 10 + 24 / layout.tensor
    layers = tokens * hidden * each * model.num_hidden_layers
    kept = _flight_factor(resolved) * (layers + tokens * layout.pipeline * (8 + hidden))
    if is_first_form:
        return (kept + (4 * tokens * (hidden + rows) if is_last else 0)) / layout.tensor
    return OVERHEAD * (kept + (2 * tokens * (hidden + rows / layout.tensor) if is_last else 0))


def _said(resolved: Resolved) -> Said:
    layout, gpus = resolved.question.layout, resolved.question.cluster.gpus
    expert_data = gpus // (layout.expert * (layout.expert_tensor or 1) * layout.pipeline)
    states = weight_and_optimizer_bytes(
        most_loaded_shard(resolved), layout.data or 1, expert_data, is_distributed=layout.zero_stage != 0
    )
    kept = kept_activation_bytes(resolved)
    return Said(
        terms=(Term("weight and optimizer", states, STATES), Term("activation", kept, ACTIVATIONS)),
        totals=(MethodLine(name="total", bytes=states + kept),),
    )


MEGATRON = Tool(
    tool="Megatron-LM theoretical memory",
    meaning="weights and optimizer of the most loaded shard, activations of the first stage",
    source=SOURCE,
    says=_said,
    limits=(
        limits.TRAINING,
        limits.precisions("bf16-mixed"),
        limits.FP32_GRADIENTS,
        limits.optimizers("adamw"),
        limits.recomputes("none", "selective"),
        limits.FLASH,
        limits.CONTEXT,
        limits.shards(0, 1),
        limits.ALL_REPLICAS,
        limits.schedules("1f1b", "interleaved-1f1b"),
        limits.EVEN_LAYERS,
        limits.ONE_LENGTH,
        limits.offloads("none"),
        *model_limits.plain(model_limits.NORMS),
    ),
    known_defects=(
        "Activations are those of an ungated MLP with dropout masks, as wide as the hidden size in attention: gated "
        "MLPs keep more, fewer key-value heads and no dropout less.",
        "Only with sequence_parallel and selective recompute together is the sequence-parallel form taken; with either "
        "alone activations are s b h (10 + 24 / t), of an MLP four times the hidden size, and 5 % are added.",
        "Every layer keeps the activations of a dense one: routed experts, their permuted tokens and latent attention "
        "are not in them.",
        "Activations are those of the first stage: with pipeline above 1 logits are left out.",
        "The two forms count logits differently, with 4 bytes each or with 2.",
        "Stages are assumed even, and all prediction depths and one table to stand on the most loaded one.",
        "Biases but those of routers, norms on heads, norms beyond two a layer and position tables are not counted.",
        "The optimizer's states are shared by the data-parallel replicas alone, not by context ranks as they are in "
        "the distributed optimizer.",
        "Buffers of the kernel library and of communication are not counted.",
    ),
)  # fmt: skip
