"""Whose operations does a stack run, and what does each of them keep? One row for each stack and implementation."""

from dataclasses import dataclass

from service.estimator.gpu import Gpu
from service.estimator.names import AttentionName, CrossEntropyName, ImplementationName, StackName
from service.estimator.workspaces import generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """How one stack carries out the operations of a layer, as far as memory is concerned."""

    meaning: str
    """What it is, in one line."""
    fused_norm: bool
    """Norms keep only input and output."""
    fused_activation: bool
    """The activation keeps only its inputs and output."""
    repeats_key_values: bool
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
    source: str
    """Who says so."""


IMPLEMENTATIONS: dict[StackName, dict[ImplementationName, Implementation]] = {
    "megatron-core": {
        "transformer-engine": Implementation(
            meaning="Transformer Engine's fused layers",
            fused_norm=True,
            fused_activation=True,
            repeats_key_values=False,
            sequence_first=True,
            uses_transformer_engine=True,
            prefers_cudnn=("Hopper", "Blackwell"),
            weighs_results=False,
            fuses_mixer_output=False,
            keeps_fp8_inputs=True,
            cross_entropies=("vocab-parallel", "fused", "transformer-engine"),
            source="NVIDIA/TransformerEngine@v2.11 pytorch/module; NVIDIA/Megatron-LM@d98e8a64 "
            "core/extensions/transformer_engine.py",
        ),
        "local": Implementation(
            meaning="Megatron-Core's own layers",
            fused_norm=True,
            fused_activation=True,
            repeats_key_values=False,
            sequence_first=True,
            keeps_score_buffer=True,
            weighs_results=False,
            fuses_mixer_output=False,
            cross_entropies=("vocab-parallel", "fused"),
            source="NVIDIA/Megatron-LM@d98e8a64 core/transformer/dot_product_attention.py (global memory buffer), "
            "core/tensor_parallel/layers.py",
        ),
    },
    "torchtitan": {
        "eager": Implementation(
            meaning="torch operations one by one",
            fused_norm=True,
            prefers_cudnn=("Blackwell",),
            fused_activation=False,
            repeats_key_values=True,
            cross_entropies=("eager", "compiled", "loss-parallel", "chunked"),
            source="pytorch/torchtitan@b5bcd76 models/common",
        ),
        "compiled": Implementation(
            meaning="each block compiled",
            fused_norm=True,
            prefers_cudnn=("Blackwell",),
            fused_activation=True,
            repeats_key_values=True,
            drops_last_product=True,
            cross_entropies=("compiled", "eager", "loss-parallel", "chunked"),
            source="pytorch/torchtitan@b5bcd76 models/common; torch.compile",
        ),
    },
    "fsdp1": {
        "eager": Implementation(
            meaning="torch operations one by one",
            fused_norm=True,
            fused_activation=False,
            repeats_key_values=False,
            cross_entropies=("eager", "fused", "flash-attention"),
            source="mosaicml/llm-foundry@8c8dd48f models/mpt, models/layers/norm.py (LPLayerNorm: one kernel)",
        ),
    },
    "deepspeed": {
        "eager": Implementation(
            meaning="torch operations one by one",
            fused_norm=False,
            fused_activation=False,
            repeats_key_values=True,
            runs_transformers=True,
            cross_entropies=("eager", "eager-half", "vocab-parallel", "chunked"),
            source="deepspeedai/DeepSpeed@edaa722; huggingface/transformers 5.23.0 modeling_llama",
        ),
        "local": Implementation(
            meaning="Megatron-DeepSpeed's own layers, Megatron-LM's of 2022",
            fused_norm=True,
            fused_activation=True,
            repeats_key_values=False,
            sequence_first=True,
            keeps_embedding=True,
            cross_entropies=("vocab-parallel",),
            source="bigscience-workshop/Megatron-DeepSpeed@58d92042 megatron/model",
        ),
    },
    "nanotron": {
        "eager": Implementation(
            meaning="torch operations with fused norms and flash attention",
            fused_norm=True,
            fused_activation=False,
            repeats_key_values=False,
            cross_entropies=("vocab-parallel-fp32",),
            source="huggingface/nanotron@2411b02 models/llama.py",
        ),
    },
    "transformers": {
        "eager": Implementation(
            meaning="torch operations one by one",
            fused_norm=False,
            fused_activation=False,
            repeats_key_values=True,
            casts_each_input=True,
            runs_transformers=True,
            cross_entropies=("eager", "eager-half", "chunked"),
            source="huggingface/transformers 5.23.0 modeling_llama, modeling_gpt2, activations.NewGELUActivation, "
            "masking_utils.eager_mask; live bytes counted by torch 2.13's profiler",
        ),
    },
}


def kernel_of(
    attention: AttentionName, implementation: Implementation, gpu: Gpu, *, deterministic: bool
) -> AttentionName:
    """The attention kernel that runs where the recipe only says flash.

    Args:
        attention: what the recipe says
        implementation: whose operations run
        gpu: the GPU
        deterministic: whether only deterministic kernels run

    Returns:
        the kernel: cuDNN's where the implementation prefers it, but on Blackwell not where determinism rules it out;
        else FlashAttention-2

    Source:
        NVIDIA/TransformerEngine@v2.11 pytorch/attention/dot_product_attention/utils.py get_attention_backend;
        pytorch/torchtitan@6fc499f models/attention.py (cuDNN first on Blackwell)
    """
    if attention != "flash":
        return attention
    family = generation(gpu)
    is_ruled_out = deterministic and family == "Blackwell"
    return "cudnn" if family in implementation.prefers_cudnn and not is_ruled_out else "flash-2"
