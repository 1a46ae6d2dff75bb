"""How many parameters does Megatron-LM's report count: of a layer, of its most loaded shard?"""

from dataclasses import dataclass, fields

from service.estimator.build import mlp_type
from service.estimator.degrees import padded_vocabulary
from service.estimator.model import Model
from service.estimator.resolve import Resolved

SOURCE = "NVIDIA/Megatron-LM@d98e8a64 megatron/training/theoretical_memory_usage.py"


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
        """So many of these."""
        return ShardCounts(**{field.name: getattr(self, field.name) * factor for field in fields(self)})

    def plus(self, other: "ShardCounts") -> "ShardCounts":
        """These and others."""
        return ShardCounts(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        )


def _norm_numbers(model: Model) -> int:
    """Numbers that one norm has for each number that it acts on."""
    return 1 if model.normalization == "rmsnorm" else 2


def attention_parameters(model: Model) -> int:
    """Parameters of the attention of one layer, latent or not, without biases and norms on heads.

    Formula:
        heads: 2 h d (a + g)        latent: q + r_kv (h + a (d_nope + d_v) + n) + h d_rope + a d_v h,
        q = h a (d_nope + d_rope), or r_q (h + a (d_nope + d_rope) + n)

    Args:
        model: the model

    Returns:
        parameters [1]

    Source:
        NVIDIA/Megatron-LM@d98e8a64 megatron/training/theoretical_memory_usage.py

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> attention_parameters(LLAMA_3_8B)
    41943040
    """
    hidden, heads, numbers = model.hidden_size, model.num_attention_heads, _norm_numbers(model)
    if model.kv_lora_rank is None:
        return 2 * hidden * model.head_width * (heads + model.key_value_heads)
    queries = heads * model.query_width
    projected = model.q_lora_rank * (hidden + queries + numbers) if model.q_lora_rank else hidden * queries
    keys_and_values = heads * ((model.qk_nope_head_dim or 0) + model.value_width)
    latent = model.kv_lora_rank * (hidden + keys_and_values + numbers)
    return projected + latent + hidden * (model.qk_rope_head_dim or 0) + heads * model.value_width * hidden


def _mlp(model: Model, hidden: int, width: int) -> int:
    return (3 if model.gated_mlp else 2) * hidden * width


def _layer(model: Model, *, is_sparse: bool) -> ShardCounts:
    hidden, attention, norms = (
        model.hidden_size,
        attention_parameters(model),
        2 * model.hidden_size * _norm_numbers(model),
    )
    if not is_sparse:
        return ShardCounts(tensor=attention + _mlp(model, hidden, model.intermediate_size or 0), whole=norms, expert=0)
    shared, latent = model.shared_expert_intermediate_size, model.moe_latent_size
    router = model.num_experts * (hidden + (1 if model.mlp_bias else 0))
    beside = router + 2 * hidden * (latent or 0) + (hidden if shared and model.shared_expert_gate else 0)
    return ShardCounts(
        tensor=attention + _mlp(model, hidden, shared),
        whole=norms + beside,
        expert=_mlp(model, latent or hidden, model.expert_width) * model.num_experts,
    )


def most_loaded_shard(resolved: Resolved) -> ShardCounts:
    """Parameters of the rank that has most: its share of the layers, every prediction depth, one table or two.

    Args:
        resolved: the question

    Returns:
        the parameters of that rank by what divides them

    Source:
        NVIDIA/Megatron-LM@d98e8a64 megatron/training/theoretical_memory_usage.py

    >>> from service.estimator.samples import sample_resolved
    >>> most_loaded_shard(sample_resolved())
    ShardCounts(tensor=8029995008.0, whole=266240.0, expert=0.0)
    """
    model, layout = resolved.question.model, resolved.question.layout
    kinds = [mlp_type(model, layer) == "sparse" for layer in range(model.num_hidden_layers)]
    dense, sparse = _layer(model, is_sparse=False), _layer(model, is_sparse=True)
    norm = ShardCounts(tensor=0, whole=model.hidden_size * _norm_numbers(model), expert=0)
    block = dense.times(kinds.count(False)).plus(sparse.times(kinds.count(True))).plus(norm)
    depths = (sparse if kinds[-1] else dense).times(model.num_nextn_predict_layers)
    rows = float(padded_vocabulary(model, resolved.job.vocabulary_multiple, layout.tensor))
    tables = 1 if model.tie_word_embeddings or layout.pipeline > 1 else 2
    table = ShardCounts(tensor=tables * rows * model.hidden_size, whole=0, expert=0)
    held = block.times(1 / layout.pipeline).plus(depths).plus(table)
    return ShardCounts(
        tensor=held.tensor / layout.tensor,
        whole=held.whole,
        expert=held.expert / (layout.expert * (layout.expert_tensor or 1)),
    )
