"""A state-space mixer with one decay a head (Mamba-2: Mamba 2, Bamba, Zamba2, Nemotron-H, Falcon-H1)."""

from service.estimator.model.ledger import EVERYTHING, LAST_NORM, Ops, Setting, Split, Weight
from service.estimator.model.operations import convolution_op, mixer_input_op, mixer_output_op, scan_op
from service.estimator.question import LayerType, Model


def mamba2_ops(model: Model, layer_type: LayerType, setting: Setting) -> Ops:
    """Projections, convolution, scan by chunks and gated norm of one layer.

    The fused kernel saves the result of the input projection and the scan's output; its backward pass computes the
    convolution, the chunks' states and the gated norm again.
    """
    # Source: Dao and Gu 2024, arXiv:2405.21060, sections 6 and 7; state-spaces/mamba ops/triton/ssd_combined.py
    inner, heads, fuses_output = model.mamba_d_ssm or 0, model.mamba_n_heads or 0, setting.fuses_mixer_output
    state, shared = model.mamba_d_state or 0, 2 * (model.mamba_n_groups or 0) * (model.mamba_d_state or 0)
    outputs = 2 * inner + shared + heads
    after_block = layer_type == "shared_attention_and_mamba2"
    scan = scan_op(
        "mixer.scan",
        Weight(1, 3 * heads, Split.TENSOR, role="vector"),
        *((Weight(1, inner, Split.TENSOR, role="norm"),) if model.mixer_norm else ()),
        flop=7 * setting.tokens * inner * state,  # 7 FLOP a state, however the chunks are cut
        saved=setting.tensor_bytes(outputs + inner * (1 if fuses_output else 2)),
        moved=setting.tensor_bytes(outputs + inner),
    )
    return (
        mixer_input_op(
            model, setting, outputs=outputs, reads=("attention.norm", EVERYTHING) if after_block else (LAST_NORM,)
        ),
        convolution_op(model, setting, channels=inner + shared),
        scan,
        mixer_output_op(model, setting, inputs=inner, keeps_input=not fuses_output),
    )
