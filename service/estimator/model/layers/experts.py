"""A sparse MLP: router, routed experts, shared experts (MoE)."""

from dataclasses import replace
from functools import partial

from service.estimator.model.ledger import LAST_NORM, WIDE_BYTES, Op, Ops, Saved, SequenceSettings, Split, Weight
from service.estimator.model.operations import bias_of, feed_forward_ops, product_op, up_matrices
from service.estimator.question import Model


def expert_ops(model: Model, setting: SequenceSettings) -> Ops:
    """Router, dispatch, routed experts, combine and shared experts of one layer, load balanced."""
    # Source: Shazeer et al. 2017, arXiv:1701.06538 (top-k routing); DeepSeekMoE, arXiv:2401.06066 (shared experts);
    # LongCat-Flash, arXiv:2509.01322, section 2.1 (experts that do nothing); Megatron-LM moe-latent-size;
    # Megatron-LM@d98e8a64 core/transformer/moe (saved: results of routing, permuted input, activation on both sides)
    return (_router(model, setting), *_latent_experts(model, setting), *_shared(model, setting))


def _visits(model: Model, setting: SequenceSettings) -> int:
    """Tokens over all routed experts; a token counts once for each expert that processes it [1]."""
    numerator, denominator = model.visits
    return setting.tokens * numerator // denominator


def _router(model: Model, setting: SequenceSettings) -> Op:
    choices, hidden, visits = model.num_experts + model.zero_expert_num, model.hidden_size, model.num_experts_per_tok
    # Saved: scores, probabilities, a map of tokens to experts, and the destination of each copy. Those of transformers
    # are fp32 probabilities, the chosen ones with their sum, and four lists of where each copy comes from and goes to
    # (transformers 5.24.0 modeling_mixtral.MixtralTopKRouter, integrations/moe.py grouped_mm_experts_forward).
    routing_bytes = setting.tokens * (choices * (3 * setting.element_bytes + 5) + 8 * (visits + model.num_experts))
    if setting.runs_transformers:
        routing_bytes = setting.tokens * (4 * choices + visits * (4 + 4 * 8 + setting.element_bytes) + 4)
    op = product_op(
        "moe.router",
        setting,
        Weight(hidden, choices),
        *bias_of(choices, given=model.router_bias),
        moved=hidden,
        split=Split.SEQUENCE,
        keeps_precision=True,
        saved=(Saved(routing_bytes, Split.SEQUENCE, ("moe",)),),
        modules=("moe",),
        reads=(LAST_NORM,),
    )
    return replace(op, moved_bytes=op.moved_bytes + 8 * setting.tokens * choices)


def _latent_experts(model: Model, setting: SequenceSettings) -> Ops:
    """Routed experts, in a latent space between two projections where the model has one; no rank splits these."""
    routed, hidden, latent = _routed(model, setting), model.hidden_size, model.moe_latent_size
    if latent is None:
        return routed
    project = partial(product_op, moved=hidden + latent, split=Split.SEQUENCE, modules=("moe",))
    down, up = bias_of(latent, given=model.mlp_bias), bias_of(hidden, given=model.mlp_bias)
    joined = Saved(setting.tensor_bytes(latent), Split.SEQUENCE, ("moe",), "own_weights")
    return (
        project("moe.latent_down", setting, Weight(hidden, latent), *down, reads=(LAST_NORM,)),
        *routed,
        project("moe.latent_up", setting, Weight(latent, hidden), *up, reads=("moe.combine",), saved=(joined,)),
    )


def _routed(model: Model, setting: SequenceSettings) -> Ops:
    # Grouped products are no operation of autocast: all between them is in the format of the experts' weights.
    # Source: transformers 5.24.0 integrations/moe.py (_grouped_mm casts its input to the format of the weights)
    numbers = round(_visits(model, setting) * setting.expert_load)
    tensor_bytes = (WIDE_BYTES if setting.wide_experts else setting.element_bytes) * numbers
    width, inner_width = model.expert_input_width, model.expert_width
    inner, activation_numbers = (2 if model.gated_mlp else 1) * inner_width, model.activation_parameters
    vector = Weight(1, activation_numbers, Split.EXPERT, model.num_experts, "vector")
    # Beside what an activation reads, its result: the gate's where a product reads it, or the weighed one.
    keeps_more = not (setting.fused_activation if model.gated_mlp else setting.weighs_results)
    kept_width = inner_width if keeps_more else 0
    read_bytes = tensor_bytes * inner if setting.wide_experts else setting.activation_bytes(numbers * inner)
    activation = Op(
        name="moe.activation",
        kind="elementwise",
        split=Split.TENSOR,
        weights=(vector,) if activation_numbers else (),
        saved=(Saved(read_bytes + tensor_bytes * kept_width, Split.TENSOR, ("moe",)),),
        transient=(Saved(tensor_bytes * (inner + inner_width), Split.TENSOR),),
        moved_bytes=tensor_bytes * (inner + inner_width),
        modules=("moe", "moe_act"),
    )
    input_bytes, received_bytes = (
        tensor_bytes * fed if setting.wide_experts else setting.product_input_bytes(numbers * fed)
        for fed in (inner_width, width)
    )
    activated = Saved(input_bytes, Split.TENSOR, ("moe", "moe_act"), "own_weights")
    received = Saved(received_bytes, Split.EXPERT_TOKENS, ("moe",), "next_weights")
    returned_bytes = WIDE_BYTES * numbers if setting.weighs_wide else tensor_bytes
    returned = Saved(returned_bytes * width, Split.EXPERT_TOKENS, ("moe",))
    combined = _permutation("moe.combine", returned, ("moe.down", "moe.router"))
    return (
        _permutation("moe.dispatch", received, ("moe.latent_down",) if model.moe_latent_size else (LAST_NORM,)),
        _product("moe.up", model, setting, (width, inner), ()),
        activation,
        _product("moe.down", model, setting, (inner_width, width), (activated,)),
        *_weighed_bias(model, numbers * width),
        combined if setting.weighs_results else replace(combined, saved=()),
    )


BIAS_BYTES = 31
"""Memory traffic, in each pass, of one number of a result to which experts add their biases times its token's
probability: product, sum, joined experts and a cast forward; gradients of both factors backward, all in fp32.
Source: NVIDIA/Megatron-LM@d98e8a64 core/transformer/moe/experts.py _apply_bias: 28 bytes forward, 34 backward."""


def _weighed_bias(model: Model, numbers: int) -> Ops:
    if not model.mlp_bias:
        return ()
    moved = BIAS_BYTES * numbers
    return (Op(name="moe.bias", kind="elementwise", split=Split.EXPERT_TOKENS, moved_bytes=moved, modules=("moe",)),)


def _permutation(name: str, result: Saved, reads: tuple[str, ...]) -> Op:
    """Permutation of tokens to or from their experts, which reads and writes every token and saves its result."""
    return Op(
        name=name,
        kind="elementwise",
        split=Split.EXPERT_TOKENS,
        saved=(result,),
        moved_bytes=2 * result.bytes,
        modules=("moe",),
        reads=reads,
    )


def _product(
    name: str, model: Model, setting: SequenceSettings, shape: tuple[int, int], saved: tuple[Saved, ...]
) -> Op:
    """One matrix product of every routed expert over the tokens that visit it."""
    rows, columns = shape
    visits = _visits(model, setting)
    matrices = ("down_proj",) if saved else up_matrices(model)
    return Op(
        name=name,
        kind="gemm",
        split=Split.TENSOR,
        is_row_parallel=bool(saved),
        weights=(
            Weight(rows, columns, Split.EXPERT, model.num_experts, matrices=matrices),
            *bias_of(columns, Split.EXPERT, model.num_experts, given=model.mlp_bias),
        ),
        flop=2 * visits * rows * columns,
        is_wide=setting.wide_experts,
        saved=saved,
        moved_bytes=(WIDE_BYTES if setting.wide_experts else setting.element_bytes) * visits * (rows + columns),
        modules=("moe",),
    )


def _shared(model: Model, setting: SequenceSettings) -> Ops:
    width = model.shared_expert_intermediate_size
    if not width:
        return ()
    ops = feed_forward_ops(model, setting, width=width, name="shared", modules=("moe", "shared_experts"))
    if not model.shared_expert_gate:
        return ops
    gate = product_op(
        "shared.gate",
        setting,
        Weight(model.hidden_size, 1),
        moved=model.hidden_size,
        split=Split.SEQUENCE,
        keeps_precision=True,
        saved=(Saved(setting.tensor_bytes(model.hidden_size), Split.SEQUENCE, ("moe", "shared_experts")),),
        modules=("moe", "shared_experts"),
        reads=(LAST_NORM,),
    )
    return (*ops, gate)
