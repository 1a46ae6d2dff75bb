"""State-space mixers: Mamba (Falcon Mamba, Jamba), Mamba-2 (Bamba, Zamba2, Nemotron-H, Falcon-H1)."""

from service.estimator.model.ledger import EVERYTHING, LAST_NORM, Op, Ops, Saved, SequenceSettings, Split, Weight
from service.estimator.model.operations import (
    bias_of,
    convolution_op,
    mixer_input_op,
    mixer_output_op,
    product_op,
    scan_op,
)
from service.estimator.question import LayerType, Model

CHUNK_TOKENS = 2048
"""Tokens after which the scan kernel writes its state down.
Source: state-spaces/mamba csrc/selective_scan/selective_scan_fwd_kernel.cuh (kNThreads x kNItems)."""


def mamba_ops(model: Model, layer_type: LayerType, setting: SequenceSettings) -> Ops:
    """Projections, convolution and selective scan of one layer.

    The fused kernel saves the input projection's result, the step, B and C before their projection, the scan's
    output, and its state once a chunk; its backward pass computes the convolution, the steps and the gate again.
    Not counted: what tensor ranks exchange for steps, B and C, R + 2 N numbers a token beside h.
    """
    # Source: Gu and Dao 2023, arXiv:2312.00752, section 3 and algorithm 2; state-spaces/mamba
    # ops/selective_scan_interface.py (what is saved); norms on step, B and C: Jamba, arXiv:2403.19887, section 6.3
    inner, rank, state = model.mamba_d_ssm or 0, model.mamba_dt_rank or 0, model.mamba_d_state or 0
    numbers = rank + 2 * state
    selection = product_op(  # to the step's latent, B and C; every tensor rank has them whole
        "mixer.selection",
        setting,
        Weight(inner, numbers, Split.TENSOR, matrices=("x_proj",)),
        *((Weight(1, numbers, role="norm"),) if model.mixer_norm else ()),
        moved=inner,
        whole=numbers,
        saved=(Saved(setting.tensor_bytes(numbers), Split.WHOLE),),
    )
    steps = product_op(
        "mixer.steps",
        setting,
        Weight(rank, inner, Split.TENSOR, matrices=("dt_proj",)),
        *bias_of(inner, Split.TENSOR, given=True),
        moved=inner,
        whole=rank,
    )
    return (
        mixer_input_op(model, setting, outputs=2 * inner),
        convolution_op(model, setting, channels=inner),
        selection,
        steps,
        _scan(inner, state, setting),
        mixer_output_op(model, setting, inputs=inner, keeps_input=False),
    )


def _scan(inner: int, state: int, setting: SequenceSettings) -> Op:
    """The recurrence; 7 FLOP a state: decay, its product, step times B, times x, sum, and C times the state."""
    chunks = -(-setting.tokens // CHUNK_TOKENS)
    flop = 7 * setting.tokens * inner * state
    return Op(
        name="mixer.scan",
        kind="elementwise",
        split=Split.TENSOR,
        weights=(Weight(1, inner * state, Split.TENSOR, role="vector"), Weight(1, inner, Split.TENSOR, role="vector")),
        flop=flop,
        kernel_rerun_flop=flop,
        saved=(
            Saved(setting.tensor_bytes(3 * inner), Split.TENSOR),
            Saved(chunks * 2 * state * inner * 4, Split.TENSOR),
        ),
        moved_bytes=setting.tensor_bytes(4 * inner),
        whole_bytes=setting.tensor_bytes(2 * state),
    )


STATE_TOKENS = 128
"""Tokens of one chunk of Mamba-2, whose state is written down.
Source: NVIDIA/Megatron-LM@d98e8a64 core/ssm/mamba_mixer.py (chunk_size)."""

STATE_BYTES = 12
"""Traffic of one number of a chunk's state: written and read in fp32, then passed on, written and read in bf16.
Source: state-spaces/mamba ops/triton/ssd_combined.py _mamba_chunk_scan_combined_fwd (states_in_fp32)."""


def mamba2_ops(model: Model, layer_type: LayerType, setting: SequenceSettings) -> Ops:
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
        moved=setting.tensor_bytes(outputs + inner) + STATE_BYTES * setting.tokens // STATE_TOKENS * inner * state,
    )
    return (
        mixer_input_op(
            model, setting, outputs=outputs, reads=("attention.norm", EVERYTHING) if after_block else (LAST_NORM,)
        ),
        convolution_op(model, setting, channels=inner + shared),
        scan,
        mixer_output_op(model, setting, inputs=inner, keeps_input=not fuses_output),
    )
