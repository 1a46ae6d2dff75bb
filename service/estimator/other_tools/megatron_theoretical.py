"""Megatron-LM's report of theoretical memory: states of the most loaded shard, activations of the first stage."""

from dataclasses import dataclass, fields

from service.estimator.degrees import padded_vocabulary
from service.estimator.model.build import mlp_type
from service.estimator.other_tools.tool import ACTIVATIONS, STATES, MethodLine, Term, ToolAnswer
from service.estimator.question import Model
from service.estimator.resolve import ResolvedQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCounts:
    """Parameters by what divides them."""

    tensor: float
    """By the tensor group: attention, dense MLPs, shared experts, tables."""
    whole: float
    """By nothing: norms, routers, gates, projections around latent experts."""
    expert: float
    """By the expert and expert-tensor groups: routed experts."""

    def times(self, factor: float) -> "ShardCounts":
        """Counts multiplied by a factor."""
        return ShardCounts(**{field.name: getattr(self, field.name) * factor for field in fields(self)})

    def plus(self, other: "ShardCounts") -> "ShardCounts":
        """Sum of two counts."""
        return ShardCounts(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        )


def _norm_parameters(model: Model) -> int:
    """Parameters of one norm for each number that it normalises."""
    return 1 if model.normalization.startswith("rmsnorm") else 2


def attention_parameters(model: Model) -> int:
    """Parameters of the attention of one layer, latent or not, without biases and norms on heads.

    Formula:
        heads: 2 h d (a + g)        latent: q + r_kv (h + a (d_nope + d_v) + n) + h d_rope + a d_v h,
        q = h a (d_nope + d_rope), or r_q (h + a (d_nope + d_rope) + n)
    Returns: parameters [1]
    Source: NVIDIA/Megatron-LM@d98e8a64 megatron/training/theoretical_memory_usage.py

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> attention_parameters(LLAMA_3_8B)
    41943040
    """
    hidden, heads, numbers = model.hidden_size, model.num_attention_heads, _norm_parameters(model)
    if model.kv_lora_rank is None:
        return 2 * hidden * model.head_width * (heads + model.key_value_heads)
    queries = heads * model.query_width
    projected = model.q_lora_rank * (hidden + queries + numbers) if model.q_lora_rank else hidden * queries
    keys_and_values = heads * ((model.qk_nope_head_dim or 0) + model.value_width)
    latent = model.kv_lora_rank * (hidden + keys_and_values + numbers)
    return projected + latent + hidden * (model.qk_rope_head_dim or 0) + heads * model.value_width * hidden


def _mlp_parameters(model: Model, hidden: int, width: int) -> int:
    return (3 if model.gated_mlp else 2) * hidden * width


def _layer_counts(model: Model, *, is_sparse: bool) -> ShardCounts:
    hidden, attention, norms = (
        model.hidden_size,
        attention_parameters(model),
        2 * model.hidden_size * _norm_parameters(model),
    )
    if not is_sparse:
        return ShardCounts(
            tensor=attention + _mlp_parameters(model, hidden, model.intermediate_size or 0), whole=norms, expert=0
        )
    shared, latent = model.shared_expert_intermediate_size, model.moe_latent_size
    router = model.num_experts * (hidden + (1 if model.mlp_bias else 0))
    beside = router + 2 * hidden * (latent or 0) + (hidden if shared and model.shared_expert_gate else 0)
    return ShardCounts(
        tensor=attention + _mlp_parameters(model, hidden, shared),
        whole=norms + beside,
        expert=_mlp_parameters(model, latent or hidden, model.expert_width) * model.num_experts,
    )


def most_loaded_shard(resolved: ResolvedQuestion) -> ShardCounts:
    """Parameters of the rank that has most: its share of the layers, every prediction depth, one table or two.

    Source:
        NVIDIA/Megatron-LM@d98e8a64 megatron/training/theoretical_memory_usage.py

    >>> from service.estimator.samples import sample_resolved

    >>> most_loaded_shard(sample_resolved())
    ShardCounts(tensor=8029995008.0, whole=266240.0, expert=0.0)
    """
    model, layout = resolved.question.model, resolved.question.layout
    kinds = [mlp_type(model, layer) == "sparse" for layer in range(model.num_hidden_layers)]
    dense, sparse = _layer_counts(model, is_sparse=False), _layer_counts(model, is_sparse=True)
    norm = ShardCounts(tensor=0, whole=model.hidden_size * _norm_parameters(model), expert=0)
    block = dense.times(kinds.count(False)).plus(sparse.times(kinds.count(True))).plus(norm)
    depths = (sparse if kinds[-1] else dense).times(model.num_nextn_predict_layers)
    rows = float(padded_vocabulary(model, resolved.workload.vocabulary_multiple, layout.tensor))
    tables = 1 if model.tie_word_embeddings or layout.pipeline > 1 else 2
    table = ShardCounts(tensor=tables * rows * model.hidden_size, whole=0, expert=0)
    parameters = block.times(1 / layout.pipeline).plus(depths).plus(table)
    return ShardCounts(
        tensor=parameters.tensor / layout.tensor,
        whole=parameters.whole,
        expert=parameters.expert / (layout.expert * layout.expert_tensor),
    )


OVERHEAD = 1.05
"""Factor on activations where the report does not use the sequence-parallel form.
Source: NVIDIA/Megatron-LM@d98e8a64 megatron/training/theoretical_memory_usage.py."""


def weight_and_optimizer_bytes(parameters: ShardCounts, data: int, expert_data: int, *, is_distributed: bool) -> float:
    """Weights, gradients, master weights and moments of the most loaded rank.

    Formula: 18 N, or with a distributed optimizer N (6 + 12 / d) + N_expert (6 + 12 / d_expert)
    Args:
        data: data-parallel replicas, d [1]
        expert_data: ranks that hold the same experts, d_expert [1]
        is_distributed: whether the replicas share the optimizer's states
    Returns: bytes [byte]
    Source: NVIDIA/Megatron-LM@d98e8a64 megatron/training/theoretical_memory_usage.py

    >>> weight_and_optimizer_bytes(ShardCounts(tensor=90, whole=10, expert=0), 4, 1, is_distributed=True)
    900.0
    """
    each, each_expert = (6 + 12 / data, 6 + 12 / expert_data) if is_distributed else (18.0, 18.0)
    return (parameters.tensor + parameters.whole) * each + parameters.expert * each_expert


def _mlp_width(model: Model) -> int:
    """Width of the dense MLP; Megatron-LM's default where a model with experts states none."""
    default = 8 * model.hidden_size // 3 // 64 * 64 if model.gated_mlp else 4 * model.hidden_size
    return model.intermediate_size or default


def _flight_factor(resolved: ResolvedQuestion) -> float:
    """Activations in flight over those of p micro-batches, p being the number of stages."""
    layout, accumulation = resolved.question.layout, float(resolved.degrees.accumulation)
    stages, chunks = layout.pipeline, layout.virtual_pipeline
    if chunks > 1:
        return 1 + (stages - 1) / (stages * chunks)
    return min(1.0, accumulation / stages)


def kept_activation_bytes(resolved: ResolvedQuestion) -> float:
    """Activations of the first stage of a rank.

    Formula:
        sequence parallelism and selective recompute: (F (s b h (18 + 4 f / h) L + s b p (8 + h)) + [p = 1] 4 s b
        (h + V)) / t
        else: 1.05 (F (s b h (10 + 24 / t) L + s b p (8 + h)) + [p = 1] 2 s b (h + V / t)),
        F = min(1, m / p), or 1 + (p - 1) / (p v) where v > 1
    Returns: bytes [byte]
    Source: NVIDIA/Megatron-LM@d98e8a64 megatron/training/theoretical_memory_usage.py

    >>> from service.estimator.samples import sample_resolved
    >>> round(kept_activation_bytes(sample_resolved()) / 2**20)
    38762
    """
    model, layout = resolved.question.model, resolved.question.layout
    tokens, hidden = resolved.question.recipe.sequence_length * resolved.question.recipe.micro_batch, model.hidden_size
    rows = float(padded_vocabulary(model, resolved.workload.vocabulary_multiple, layout.tensor))
    is_first_form = layout.sequence_parallel and resolved.workload.recompute.granularity == "selective"
    is_last = layout.pipeline == 1
    each = 18 + 4 * _mlp_width(model) / hidden if is_first_form else 10 + 24 / layout.tensor
    layers = tokens * hidden * each * model.num_hidden_layers
    saved_bytes = _flight_factor(resolved) * (layers + tokens * layout.pipeline * (8 + hidden))
    if is_first_form:
        return (saved_bytes + (4 * tokens * (hidden + rows) if is_last else 0)) / layout.tensor
    return OVERHEAD * (saved_bytes + (2 * tokens * (hidden + rows / layout.tensor) if is_last else 0))


def answer(resolved: ResolvedQuestion) -> ToolAnswer:
    """The tool's own terms and totals for a question."""
    layout, gpus = resolved.question.layout, resolved.question.cluster.gpus
    expert_data = gpus // (layout.expert * layout.expert_tensor * layout.pipeline)
    states = weight_and_optimizer_bytes(
        most_loaded_shard(resolved), layout.data, expert_data, is_distributed=layout.zero_stage != 0
    )
    saved_bytes = kept_activation_bytes(resolved)
    return ToolAnswer(
        terms=(Term("weight and optimizer", states, STATES), Term("activation", saved_bytes, ACTIVATIONS)),
        totals=(MethodLine(name="total", bytes=states + saved_bytes),),
    )
