"""What does a dense MLP do, gated (three matrices) or plain (two)?"""

from service.estimator.ledger import LAST_NORM, Op, Ops, Saved, Split, Weight
from service.estimator.model import Model
from service.estimator.names import MatrixName, RecomputeModule
from service.estimator.setting import Setting

_WRITTEN_PASSES = 14
"""Numbers that a GELU written out reads and writes beside its input and result, for each of them: eight operations.
Source: transformers activations.NewGELUActivation."""

Modules = tuple[RecomputeModule, ...]


def feed_forward_ops(
    model: Model,
    setting: Setting,
    *,
    width: int,
    name: str = "mlp",
    modules: Modules = ("mlp",),
) -> Ops:
    """Up-projection, activation and down-projection of one layer.

    Args:
        model: the model
        setting: how operations are carried out
        width: inner width, f [1]
        name: prefix of the operations' names
        modules: selective recompute of these drops what it keeps

    Returns:
        the operations

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (19 s b h: 8 before, 8 after the activation);
        gated form: Shazeer 2020, arXiv:2002.05202; transformers modeling_llama.LlamaMLP for the unfused form;
        trained activation (xIELU): Huang and Schlag 2024, arXiv:2411.13010;
        transformers activations.NewGELUActivation (GPT-2: GELU in single operations)
    """
    return (
        _up(model, setting, width, name, modules),
        _activation(model, setting, width, name, modules),
        _down(model, setting, width, name, modules),
    )


def up_matrices(model: Model) -> tuple[MatrixName, ...]:
    """The matrices that an MLP or an expert reads its input with, side by side.

    Args:
        model: the model

    Returns:
        their names
    """
    return ("gate_proj", "up_proj") if model.gated_mlp else ("up_proj",)


def _inner(model: Model, width: int) -> int:
    return (2 if model.gated_mlp else 1) * width


def _up(model: Model, setting: Setting, width: int, name: str, modules: Modules) -> Op:
    hidden, inner, kept = model.hidden_size, _inner(model, width), setting.element_bytes * setting.tokens
    bias = (Weight(1, inner, Split.TENSOR, role="vector"),) if model.mlp_bias else ()
    return Op(
        name=f"{name}.up",
        kind="gemm",
        split=Split.TENSOR,
        weights=(Weight(hidden, inner, Split.TENSOR, matrices=up_matrices(model)), *bias),
        reads=(LAST_NORM,),
        flop=2 * setting.tokens * hidden * inner,
        moved_bytes=kept * inner,
        whole_bytes=kept * hidden,
        modules=modules,
    )


def _activation(model: Model, setting: Setting, width: int, name: str, modules: Modules) -> Op:
    inner, kept = _inner(model, width), setting.element_bytes * setting.tokens
    unfused = width if model.gated_mlp and not setting.fused_activation else 0
    written = width if setting.runs_transformers and model.is_gpt2 else 0
    trained = (Weight(1, model.activation_parameters, role="vector"),) if model.activation_parameters else ()
    return Op(
        name=f"{name}.activation",
        kind="elementwise",
        split=Split.TENSOR,
        weights=trained,
        saved=(Saved(kept * (inner + unfused) + _written_bytes(setting) * written, Split.TENSOR, modules),),
        passing=(Saved(kept * (inner + width + written), Split.TENSOR),),
        moved_bytes=kept * (inner + width + 2 * unfused + _WRITTEN_PASSES * written),
        modules=modules,
    )


def _written_bytes(setting: Setting) -> int:
    """What a GELU written out keeps of each number beside its input: half of it, its tanh and one more than that.

    Autocast runs the power, and what follows from it, in fp32.
    """
    each = 2 + 2 + 4 + 4 if setting.casts_each_input else 3 * setting.element_bytes
    return each * setting.tokens


def _down(model: Model, setting: Setting, width: int, name: str, modules: Modules) -> Op:
    hidden, kept = model.hidden_size, setting.element_bytes * setting.tokens
    bias = (Weight(1, hidden, role="vector"),) if model.mlp_bias else ()
    return Op(
        name=f"{name}.down",
        kind="gemm",
        sums_in_parts=True,
        split=Split.TENSOR,
        weights=(Weight(width, hidden, Split.TENSOR, matrices=("down_proj",)), *bias),
        flop=2 * setting.tokens * width * hidden,
        saved=(Saved(setting.product_input_bytes(setting.tokens * width), Split.TENSOR, modules, "own_weights"),),
        passing=(Saved(kept * width, Split.TENSOR), Saved(kept * hidden, Split.GATHERED)),
        moved_bytes=kept * width,
        whole_bytes=kept * hidden,
        modules=modules,
    )
