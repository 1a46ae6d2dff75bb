"""What does a sparse MLP do: router, routed experts, shared experts (MoE)?"""

from dataclasses import replace

from service.estimator.feed_forward import feed_forward_ops, up_matrices
from service.estimator.ledger import LAST_NORM, Op, Ops, Saved, Split, Weight
from service.estimator.model import Model
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
        keeps_precision=True,
        kind="gemm",
        split=Split.SEQUENCE,
        weights=(Weight(model.hidden_size, model.num_experts), *bias),
        flop=2 * setting.tokens * model.hidden_size * model.num_experts,
        saved=(Saved(8 * setting.tokens * model.num_experts, Split.SEQUENCE, ("moe",)),),
        moved_bytes=setting.tokens * (setting.element_bytes * model.hidden_size + 8 * model.num_experts),
        modules=("moe",),
        reads=(LAST_NORM,),
    )


def _routed(model: Model, setting: Setting) -> Ops:
    kept = setting.element_bytes * setting.tokens * model.num_experts_per_tok
    inner = (2 if model.gated_mlp else 1) * model.expert_width
    activation = Op(
        name="moe.activation",
        kind="elementwise",
        split=Split.TENSOR,
        saved=(Saved(kept * inner, Split.TENSOR, ("moe",)),),
        moved_bytes=kept * (inner + model.expert_width),
        modules=("moe", "moe_act"),
    )
    activated = (Saved(kept * model.expert_width, Split.TENSOR, ("moe", "moe_act"), "own_weights"),)
    up, down = (model.hidden_size, inner), (model.expert_width, model.hidden_size)
    received = Saved(kept * model.hidden_size, Split.EXPERT_TOKENS, ("moe",), "next_weights")
    return (
        _exchange("moe.dispatch", received, (LAST_NORM,)),
        _product("moe.up", model, setting, up, ()),
        activation,
        _product("moe.down", model, setting, down, activated),
        _exchange("moe.combine", replace(received, serves="backward"), ("moe.down", "moe.router")),
    )


def _exchange(name: str, result: Saved, reads: tuple[str, ...]) -> Op:
    """Permutation of tokens to or from their experts: what it reads and writes; its result is kept."""
    return Op(
        name=name,
        kind="elementwise",
        split=Split.EXPERT_TOKENS,
        saved=(result,),
        moved_bytes=2 * result.bytes,
        modules=("moe",),
        reads=reads,
    )


def _product(name: str, model: Model, setting: Setting, shape: tuple[int, int], saved: tuple[Saved, ...]) -> Op:
    """One matrix product of every routed expert over the tokens that visit it."""
    rows, columns = shape
    visits = setting.tokens * model.num_experts_per_tok
    bias = (Weight(1, columns, Split.EXPERT, model.num_experts, "vector"),) if model.mlp_bias else ()
    matrices = ("down_proj",) if saved else up_matrices(model)
    return Op(
        name=name,
        kind="gemm",
        split=Split.TENSOR,
        weights=(Weight(rows, columns, Split.EXPERT, model.num_experts, matrices=matrices), *bias),
        flop=2 * visits * rows * columns,
        saved=saved,
        moved_bytes=setting.element_bytes * visits * (rows + columns),
        modules=("moe",),
    )


def _shared(model: Model, setting: Setting) -> Ops:
    width = model.shared_expert_intermediate_size
    if not width:
        return ()
    ops = feed_forward_ops(model, setting, width=width, name="shared", modules=("moe", "shared_experts"))
    if not model.shared_expert_gate:
        return ops
    gate = Op(
        name="shared.gate",
        keeps_precision=True,
        kind="gemm",
        split=Split.SEQUENCE,
        weights=(Weight(model.hidden_size, 1),),
        flop=2 * setting.tokens * model.hidden_size,
        moved_bytes=setting.element_bytes * setting.tokens * model.hidden_size,
        modules=("moe", "shared_experts"),
        reads=(LAST_NORM,),
    )
    return (*ops, gate)
