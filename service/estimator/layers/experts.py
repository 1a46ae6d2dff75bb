"""What does a sparse MLP do: router, routed experts, shared experts (MoE)?"""

from service.estimator.feed_forward import feed_forward_ops
from service.estimator.ledger import Op, Ops, Saved, Split, Weight
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
        LongCat-Flash, arXiv:2509.01322, section 2.1 (experts that do nothing); Megatron-LM moe-latent-size;
        Megatron-LM moe/token_dispatcher.py (kept: permuted input, both sides of the activation, output)
    """
    return (_router(model, setting), *_latent(model, setting), *_routed(model, setting), *_shared(model, setting))


def _visits(model: Model, setting: Setting) -> int:
    """Tokens that routed experts work on, one counted for each expert that it visits [1]."""
    over, under = model.visits
    return setting.tokens * over // under


def _router(model: Model, setting: Setting) -> Op:
    choices = model.num_experts + model.zero_expert_num
    bias = (Weight(1, choices, role="vector"),) if model.router_bias else ()
    return Op(
        name="moe.router",
        keeps_precision=True,
        kind="gemm",
        split=Split.SEQUENCE,
        weights=(Weight(model.hidden_size, choices), *bias),
        flop=2 * setting.tokens * model.hidden_size * choices,
        saved=(Saved(8 * setting.tokens * choices, Split.SEQUENCE, ("moe",)),),
        moved_bytes=setting.tokens * (setting.element_bytes * model.hidden_size + 8 * choices),
        modules=("moe",),
    )


def _latent(model: Model, setting: Setting) -> Ops:
    """The projections to the latent on which experts act, and back; every rank has them whole."""
    hidden, latent = model.hidden_size, model.moe_latent_size
    if latent is None:
        return ()
    shapes = {"moe.latent_down": (hidden, latent), "moe.latent_up": (latent, hidden)}
    kept = setting.element_bytes * setting.tokens
    return tuple(
        Op(
            name=name,
            kind="gemm",
            split=Split.SEQUENCE,
            weights=(Weight(rows, columns), *((Weight(1, columns, role="vector"),) if model.mlp_bias else ())),
            flop=2 * setting.tokens * rows * columns,
            saved=(Saved(kept * latent, Split.SEQUENCE, ("moe",)),),
            moved_bytes=kept * (rows + columns),
            modules=("moe",),
        )
        for name, (rows, columns) in shapes.items()
    )


def _routed(model: Model, setting: Setting) -> Ops:
    kept = setting.element_bytes * _visits(model, setting)
    width = model.expert_input_width
    inner = (2 if model.gated_mlp else 1) * model.expert_width
    own = model.activation_parameters
    trained = (Weight(1, own, Split.EXPERT, model.num_experts, "vector"),) if own else ()
    activation = Op(
        name="moe.activation",
        kind="elementwise",
        split=Split.TENSOR,
        weights=trained,
        saved=(Saved(kept * inner, Split.TENSOR, ("moe",)),),
        moved_bytes=kept * (inner + model.expert_width),
        modules=("moe", "moe_act"),
    )
    activated = (Saved(kept * model.expert_width, Split.TENSOR, ("moe", "moe_act")),)
    return (
        _exchange("moe.dispatch", kept * width),
        _product("moe.up", model, setting, (width, inner), ()),
        activation,
        _product("moe.down", model, setting, (model.expert_width, width), activated),
        _exchange("moe.combine", kept * width),
    )


def _exchange(name: str, kept_bytes: int) -> Op:
    """Permutation of tokens to or from their experts: what it reads and writes; its result is kept."""
    return Op(
        name=name,
        kind="elementwise",
        split=Split.EXPERT_TOKENS,
        saved=(Saved(kept_bytes, Split.EXPERT_TOKENS, ("moe",)),),
        moved_bytes=2 * kept_bytes,
        modules=("moe",),
    )


def _product(name: str, model: Model, setting: Setting, shape: tuple[int, int], saved: tuple[Saved, ...]) -> Op:
    """One matrix product of every routed expert over the tokens that visit it."""
    rows, columns = shape
    visits = _visits(model, setting)
    bias = (Weight(1, columns, Split.EXPERT, model.num_experts, "vector"),) if model.mlp_bias else ()
    return Op(
        name=name,
        kind="gemm",
        split=Split.TENSOR,
        weights=(Weight(rows, columns, Split.EXPERT, model.num_experts), *bias),
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
    )
    return (*ops, gate)
