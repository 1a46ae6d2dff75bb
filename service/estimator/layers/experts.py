"""What does a sparse MLP do: router, routed experts, shared experts (MoE)?"""

from service.estimator.feed_forward import feed_forward_ops
from service.estimator.ledger import Op, Ops, Saved, Split, Weight
from service.estimator.question import Model
from service.estimator.setting import Setting


def expert_ops(model: Model, setting: Setting) -> Ops:
    """Router, dispatch, routed experts, combine and shared experts of one layer, load balanced.

    Args:
        model: the model; it has experts
        setting: how operations are carried out

    Returns:
        the operations

    Source:
        Shazeer et al. 2017, arXiv:1701.06538 (top-k routing); DeepSeekMoE, arXiv:2401.06066 (shared experts);
        Megatron-LM moe/token_dispatcher.py (kept: permuted input, both sides of the activation, output)
    """
    return (_router(model, setting), *_routed(model, setting), *_shared(model, setting))


def _router(model: Model, setting: Setting) -> Op:
    bias = (Weight(1, model.num_experts, role="vector"),) if model.router_bias else ()
    return Op(
        name="moe.router",
        kind="gemm",
        split=Split.SEQUENCE,
        weights=(Weight(model.hidden_size, model.num_experts), *bias),
        flop=2 * setting.tokens * model.hidden_size * model.num_experts,
        saved=(Saved(8 * setting.tokens * model.num_experts, Split.SEQUENCE, ("moe",)),),
        moved_bytes=setting.tokens * (setting.element_bytes * model.hidden_size + 8 * model.num_experts),
        modules=("moe",),
    )


def _routed(model: Model, setting: Setting) -> Ops:
    hidden, width, experts = model.hidden_size, model.expert_width, model.num_experts
    inner = (2 if model.gated_mlp else 1) * width
    visits = setting.tokens * model.num_experts_per_tok
    kept = setting.element_bytes * visits
    bias_in = (Weight(1, inner, Split.EXPERT, experts, "vector"),) if model.mlp_bias else ()
    bias_out = (Weight(1, hidden, Split.EXPERT, experts, "vector"),) if model.mlp_bias else ()
    dispatch = Op(
        name="moe.dispatch",
        kind="elementwise",
        split=Split.EXPERT_TOKENS,
        saved=(Saved(kept * hidden, Split.EXPERT_TOKENS, ("moe",)),),
        moved_bytes=2 * kept * hidden,
        modules=("moe",),
    )
    up = Op(
        name="moe.up",
        kind="gemm",
        split=Split.TENSOR,
        weights=(Weight(hidden, inner, Split.EXPERT, experts), *bias_in),
        flop=2 * visits * hidden * inner,
        moved_bytes=kept * (hidden + inner),
        modules=("moe",),
    )
    activation = Op(
        name="moe.activation",
        kind="elementwise",
        split=Split.TENSOR,
        saved=(Saved(kept * inner, Split.TENSOR, ("moe",)),),
        moved_bytes=kept * (inner + width),
        modules=("moe", "moe_act"),
    )
    down = Op(
        name="moe.down",
        kind="gemm",
        split=Split.TENSOR,
        weights=(Weight(width, hidden, Split.EXPERT, experts), *bias_out),
        flop=2 * visits * width * hidden,
        saved=(Saved(kept * width, Split.TENSOR, ("moe", "moe_act")),),
        moved_bytes=kept * (width + hidden),
        modules=("moe",),
    )
    combine = Op(
        name="moe.combine",
        kind="elementwise",
        split=Split.EXPERT_TOKENS,
        saved=(Saved(kept * hidden, Split.EXPERT_TOKENS, ("moe",)),),
        moved_bytes=2 * kept * hidden,
        modules=("moe",),
    )
    return (dispatch, up, activation, down, combine)


def _shared(model: Model, setting: Setting) -> Ops:
    width = model.shared_expert_intermediate_size
    if not width:
        return ()
    ops = feed_forward_ops(model, setting, width=width, name="shared", modules=("moe", "shared_experts"))
    if not model.shared_expert_gate:
        return ops
    gate = Op(
        name="shared.gate",
        kind="gemm",
        split=Split.SEQUENCE,
        weights=(Weight(model.hidden_size, 1),),
        flop=2 * setting.tokens * model.hidden_size,
        moved_bytes=setting.element_bytes * setting.tokens * model.hidden_size,
        modules=("moe", "shared_experts"),
    )
    return (*ops, gate)
