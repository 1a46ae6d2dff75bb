"""Operations that each stack and implementation runs with their overlap, and ways to compute the loss. One row each."""

from dataclasses import dataclass

from service.estimator.question import AttentionName, CrossEntropyName, Gpu, ImplementationName, StackName
from service.estimator.software.versions import generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Transfers that run beside compute."""

    hides_gradients: bool = True
    """The gradients' exchange begins while the last micro-batch runs backward; else after it."""
    hides_sends: bool = True
    """Interleaved stages send while they compute the next chunk; stages without chunks always wait."""
    splits_sends: bool = False
    """Tensor ranks each send their share of the stream to the next stage, even where each holds all of it."""
    overlaps_tensor: bool = False
    """Tensor ranks exchange in pieces beside their products, unless the recipe says otherwise."""
    sharded_copy_bytes: float = 0.0
    """Traffic of each gathered parameter for one micro-batch: copies from and to the buffers of collectives."""
    reduces_half: bool = False
    """Gradients travel in the compute format, whatever they accumulate in."""
    gathers_narrow: bool = False
    """Tensor ranks gather activations in the format of the products, where that is fp8."""
    source: str
    """Source of these facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """Operations of a layer in one stack, as far as they change memory and overlap."""

    meaning: str
    """What it is, in one line."""
    fused_norm: bool = True
    """Norms keep only input and output."""
    fused_activation: bool = False
    """The activation keeps only its inputs and output."""
    repeats_key_values: bool = False
    """Keys and values are copied to every query head before attention."""
    sequence_first: bool = False
    """Activations lie sequence first, so kernels that want the batch first keep a copy of their result."""
    uses_transformer_engine: bool = False
    """Matrix products and norms are Transformer Engine's, with its workspace and its placeholders of gradients."""
    prefers_cudnn: tuple[str, ...] = ()
    """Generations of GPUs on which attention runs in cuDNN's kernel where none is named."""
    keeps_score_buffer: bool = False
    """Eager attention keeps a buffer of one layer's scores for the whole run."""
    casts_each_input: bool = False
    """Mixed precision is autocast over fp32 weights: each matrix product keeps its own cast of its input."""
    weighs_results: bool = True
    """Experts' results are weighted after their last product, and so kept."""
    fuses_mixer_output: bool = True
    """The kernel of a state space computes its norm and output again from what the scan kept."""
    runs_transformers: bool = False
    """Layers are those of transformers: eager attention adds a mask to its scores and keeps its softmax in fp32, and
    GPT-2 has one projection for queries, keys and values and a GELU written out."""
    keeps_fp8_inputs: bool = False
    """fp8 matrix products keep their inputs in fp8; else in the activations' format."""
    keeps_embedding: bool = False
    """The embedding's result is kept beside the first layer's input, which is a copy of it in another order."""
    drops_last_product: bool = False
    """Recompute by operation does not keep the product of the last matrix, which no gradient needs."""
    cross_entropies: tuple[CrossEntropyName, ...]
    """Ways to compute the loss; the first is the default."""
    overlap: Overlap
    """What runs beside its compute."""
    source: str
    """Source of these facts."""


_TITAN_OVERLAP = Overlap(
    gathers_narrow=True,
    sharded_copy_bytes=14.0,
    source="pytorch/torchtitan@b5bcd76 (FSDP2 prefetch; float8 tensor parallelism); "
    "torch fsdp/_fully_shard/_fsdp_collectives.py: two copies out of gathers (4 each), one into fp32 (6)",
)

IMPLEMENTATIONS: dict[StackName, dict[ImplementationName, Implementation]] = {
    "megatron-core": {
        "transformer-engine": Implementation(
            meaning="Transformer Engine's fused layers",
            fused_activation=True,
            sequence_first=True,
            uses_transformer_engine=True,
            prefers_cudnn=("Hopper", "Blackwell"),
            weighs_results=False,
            fuses_mixer_output=False,
            keeps_fp8_inputs=True,
            cross_entropies=("vocab-parallel", "fused", "transformer-engine"),
            overlap=Overlap(
                overlaps_tensor=True,
                source="NVIDIA/Megatron-LM@d98e8a64 overlap-grad-reduce, overlap-p2p-communication, tp-comm-overlap",
            ),
            source="NVIDIA/TransformerEngine@v2.11 pytorch/module; NVIDIA/Megatron-LM@d98e8a64 "
            "core/extensions/transformer_engine.py",
        ),
        "local": Implementation(
            meaning="Megatron-Core's own layers",
            fused_activation=True,
            sequence_first=True,
            keeps_score_buffer=True,
            weighs_results=False,
            fuses_mixer_output=False,
            cross_entropies=("vocab-parallel", "fused"),
            overlap=Overlap(
                hides_gradients=False,
                hides_sends=False,
                splits_sends=True,
                source="Narayanan et al. 2021, arXiv:2104.04473, section 4.1 (scatter and gather between stages)",
            ),
            source="NVIDIA/Megatron-LM@d98e8a64 core/transformer/dot_product_attention.py (global memory buffer), "
            "core/tensor_parallel/layers.py",
        ),
    },
    "torchtitan": {
        "eager": Implementation(
            meaning="torch operations one by one",
            prefers_cudnn=("Blackwell",),
            repeats_key_values=True,
            cross_entropies=("eager", "compiled", "loss-parallel", "chunked"),
            overlap=_TITAN_OVERLAP,
            source="pytorch/torchtitan@b5bcd76 models/common",
        ),
        "compiled": Implementation(
            meaning="each block compiled",
            prefers_cudnn=("Blackwell",),
            fused_activation=True,
            repeats_key_values=True,
            drops_last_product=True,
            cross_entropies=("compiled", "eager", "loss-parallel", "chunked"),
            overlap=_TITAN_OVERLAP,
            source="pytorch/torchtitan@b5bcd76 models/common; torch.compile",
        ),
    },
    "fsdp1": {
        "eager": Implementation(
            meaning="torch operations one by one",
            cross_entropies=("eager", "fused", "flash-attention"),
            overlap=Overlap(
                sharded_copy_bytes=4.0,
                source="Zhao et al. 2023, arXiv:2304.11277, section 3.3; torch FlatParameter: weights are views of "
                "what is gathered, gradients are copied into one flat tensor (read and written in two bytes)",
            ),
            source="mosaicml/llm-foundry@8c8dd48f models/mpt, models/layers/norm.py (LPLayerNorm: one kernel)",
        ),
    },
    "deepspeed": {
        "eager": Implementation(
            meaning="torch operations one by one",
            fused_norm=False,
            repeats_key_values=True,
            runs_transformers=True,
            cross_entropies=("eager", "eager-half", "vocab-parallel", "chunked"),
            overlap=Overlap(
                reduces_half=True,
                hides_sends=False,
                splits_sends=True,
                source="deepspeedai/DeepSpeed@edaa722 overlap_comm, reduce dtype; runtime/config.py pipe_partitioned",
            ),
            source="deepspeedai/DeepSpeed@edaa722; huggingface/transformers 5.23.0 modeling_llama",
        ),
        "local": Implementation(
            meaning="Megatron-DeepSpeed's own layers, Megatron-LM's of 2022",
            fused_activation=True,
            sequence_first=True,
            keeps_embedding=True,
            cross_entropies=("vocab-parallel",),
            overlap=Overlap(
                hides_gradients=False,
                hides_sends=False,
                splits_sends=True,
                source="bigscience-workshop/Megatron-DeepSpeed@58d92042; deepspeedai/DeepSpeed@v0.5.10 "
                "runtime/pipe/engine.py (gradients are reduced after the last backward pass; "
                "is_pipe_partitioned, is_grad_partitioned)",
            ),
            source="bigscience-workshop/Megatron-DeepSpeed@58d92042 megatron/model",
        ),
    },
    "nanotron": {
        "eager": Implementation(
            meaning="torch operations with fused norms and flash attention",
            cross_entropies=("vocab-parallel-fp32",),
            overlap=Overlap(
                hides_gradients=False,
                hides_sends=False,
                source="huggingface/nanotron@2411b02 parallel/pipeline_parallel/engine.py, optim/zero.py",
            ),
            source="huggingface/nanotron@2411b02 models/llama.py",
        ),
    },
    "transformers": {
        "eager": Implementation(
            meaning="torch operations one by one",
            fused_norm=False,
            repeats_key_values=True,
            casts_each_input=True,
            runs_transformers=True,
            cross_entropies=("eager", "eager-half", "chunked"),
            overlap=Overlap(source="torch.nn.parallel.DistributedDataParallel; Zhao et al. 2023"),
            source="huggingface/transformers 5.23.0 modeling_llama, modeling_gpt2, activations.NewGELUActivation, "
            "masking_utils.eager_mask; live bytes counted by torch 2.13's profiler",
        ),
    },
}


def kernel_of(
    attention: AttentionName, implementation: Implementation, gpu: Gpu, *, deterministic: bool
) -> AttentionName:
    """The attention kernel that runs where the recipe only says flash.

    cuDNN's where the implementation prefers it, but on Blackwell not where determinism rules it out; else
    FlashAttention-2.

    Source:
        NVIDIA/TransformerEngine@v2.11 pytorch/attention/dot_product_attention/utils.py get_attention_backend;
        pytorch/torchtitan@6fc499f models/attention.py (cuDNN first on Blackwell)
    """
    if attention != "flash":
        return attention
    family = generation(gpu)
    is_ruled_out = deterministic and family == "Blackwell"
    return "cudnn" if family in implementation.prefers_cudnn and not is_ruled_out else "flash-2"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropy:
    """Live copies of the logits at the peak of one way to compute the loss."""

    meaning: str
    """What it does, in one line."""
    half_copies: float = 0
    """Copies in the activations' format."""
    full_copies: float = 0
    """Copies in fp32."""
    kept_bytes: float
    """Bytes for each logit that stay until the backward pass."""
    chunks: int = 1
    """Parts of the sequence that are done one after another."""
    hole_bytes: float = 0.0
    """Bytes for each logit that the allocator cannot reuse at the peak."""
    source: str
    """Source of these facts."""

    def logit_bytes(self, element_bytes: int) -> float:
        """Live bytes for each logit at the peak [byte]."""
        return (self.half_copies * element_bytes + 4 * self.full_copies) / self.chunks


_MEGATRON = "NVIDIA/Megatron-LM@d98e8a64 core/tensor_parallel/cross_entropy.py"

CROSS_ENTROPIES: dict[CrossEntropyName, CrossEntropy] = {
    "eager": CrossEntropy(
        meaning="logits in fp32, their log-softmax and its gradient",
        full_copies=3,
        kept_bytes=4,
        hole_bytes=2.0,
        source="torch.nn.functional.cross_entropy: log-softmax, its gradient and that of the loss; the freed logits, "
        "half and float, leave a hole in which one of those fits",
    ),
    "eager-half": CrossEntropy(
        meaning="logits, their shifted copy, log-softmax and gradient, all in the compute format",
        half_copies=4,
        kept_bytes=2,
        source="torch.nn.functional.cross_entropy of half-precision logits without autocast (DeepSpeed fp16)",
    ),
    "compiled": CrossEntropy(
        meaning="the same in one compiled graph, which keeps the logits and writes their gradient",
        half_copies=2,
        kept_bytes=2,
        source="torch.compile of torch.nn.functional.cross_entropy",
    ),
    "flash-attention": CrossEntropy(
        meaning="FlashAttention's kernel, which reads the logits as they are and writes their gradient beside them",
        half_copies=2,
        kept_bytes=2,
        source="Dao-AILab/flash-attention@v2.5.0 flash_attn/ops/triton/cross_entropy.py (inplace_backward off)",
    ),
    "vocab-parallel": CrossEntropy(
        meaning="each tensor rank its part of the vocabulary; softmax and gradient in place in one fp32 copy",
        half_copies=1,
        full_copies=1,
        kept_bytes=4,
        source=_MEGATRON + " (2-byte logits, 4-byte softmax in place)",
    ),
    "vocab-parallel-fp32": CrossEntropy(
        meaning="the same from logits that are fp32 already, out of place",
        full_copies=2,
        kept_bytes=4,
        source="huggingface/nanotron@67c5ebb6 parallel/tensor_parallel/functional.py sharded_cross_entropy",
    ),
    "fused": CrossEntropy(
        meaning="vocab-parallel in compiled kernels, which hold a second fp32 copy (cross-entropy-loss-fusion native)",
        half_copies=1,
        full_copies=2,
        kept_bytes=4,
        source="NVIDIA/Megatron-LM@d98e8a64 core/fusions/fused_cross_entropy.py; peak read off its functional test",
    ),
    "transformer-engine": CrossEntropy(
        meaning="Transformer Engine's kernel, which writes the gradient over the logits",
        half_copies=1,
        kept_bytes=2,
        source="NVIDIA/TransformerEngine@v2.11 pytorch/triton/cross_entropy.py",
    ),
    "loss-parallel": CrossEntropy(
        meaning="DTensor: each tensor rank its part of the vocabulary, in fp32 and out of place",
        full_copies=4,
        kept_bytes=4,
        source="torch.distributed.tensor.parallel.loss_parallel",
    ),
    "chunked": CrossEntropy(
        meaning="a part of the tokens at a time, logits and loss together",
        half_copies=1,
        full_copies=2,
        kept_bytes=0,
        chunks=8,
        source="pytorch/torchtitan components/loss.py; Liger-Kernel fused_linear_cross_entropy",
    ),
}
