"""A state-space mixer with one decay a head (Mamba-2: Mamba 2, Bamba, Zamba2, Nemotron-H, Falcon-H1)."""

from service.estimator.model.ledger import EVERYTHING, LAST_NORM, Op, Ops, Saved, Setting, Split, Weight
from service.estimator.model.operations import convolution_op, mixer_input_op, mixer_output_op
from service.estimator.question import LayerType, Model


def mamba2_ops(model: Model, layer_type: LayerType, setting: Setting) -> Ops:
    """Projections, convolution, scan and gated norm of one layer.

    The fused kernel keeps what the input projection writes and the scan's output; the convolution, the chunks'
    states and the gated norm are computed again in the backward pass.

    Source:
        Dao and Gu 2024, arXiv:2405.21060, sections 6 and 7; state-spaces/mamba ops/triton/ssd_combined.py (what is
        saved and computed again)
    """
    inner = model.mamba_d_ssm or 0
    shared = 2 * (model.mamba_n_groups or 0) * (model.mamba_d_state or 0)
    outputs = 2 * inner + shared + (model.mamba_n_heads or 0)
    after_block = layer_type == "shared_attention_and_mamba2"
    reads = ("attention.norm", EVERYTHING) if after_block else (LAST_NORM,)
    return (
        mixer_input_op(model, setting, outputs=outputs, reads=reads),
        convolution_op(model, setting, channels=inner + shared),
        _scan(model, setting, outputs),
        mixer_output_op(model, setting, inputs=inner, keeps_input=not setting.fuses_mixer_output),
    )


def _scan(model: Model, setting: Setting, inputs: int) -> Op:
    """The recurrence by chunks; 7 FLOP a state, however the chunks are cut."""
    inner, heads = model.mamba_d_ssm or 0, model.mamba_n_heads or 0
    norm = (Weight(1, inner, Split.TENSOR, role="norm"),) if model.mixer_norm else ()
    flop = 7 * setting.tokens * inner * (model.mamba_d_state or 0)
    return Op(
        name="mixer.scan",
        kind="attention",
        split=Split.TENSOR,
        weights=(Weight(1, 3 * heads, Split.TENSOR, role="vector"), *norm),
        flop=flop,
        kernel_rerun_flop=flop,
        saved=(Saved(setting.tensor_bytes(inputs + inner * (1 if setting.fuses_mixer_output else 2)), Split.TENSOR),),
        moved_bytes=setting.tensor_bytes(inputs + inner),
    )
