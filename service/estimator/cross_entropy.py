"""How much of the logits is live while their loss is computed? One row a way to compute it."""

from dataclasses import dataclass

from service.estimator.names import CrossEntropyName


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropy:
    """Live copies of the logits at the peak of one way to compute the loss."""

    meaning: str
    """What it does, in one line."""
    half_copies: float
    """Copies in the activations' format."""
    full_copies: float
    """Copies in fp32."""
    kept_bytes: float
    """Bytes for each logit that stay until the backward pass."""
    chunks: int = 1
    """Parts of the sequence that are done one after another."""
    hole_bytes: float = 0.0
    """Bytes for each logit that the allocator cannot reuse at the peak."""
    source: str
    """Who says so."""

    def logit_bytes(self, element_bytes: int) -> float:
        """Live bytes for each logit at the peak [byte]."""
        return (self.half_copies * element_bytes + 4 * self.full_copies) / self.chunks


_MEGATRON = "NVIDIA/Megatron-LM@d98e8a64 core/tensor_parallel/cross_entropy.py"

CROSS_ENTROPIES: dict[CrossEntropyName, CrossEntropy] = {
    "eager": CrossEntropy(
        meaning="logits in fp32, their log-softmax and its gradient",
        half_copies=0,
        full_copies=3,
        kept_bytes=4,
        hole_bytes=2.0,
        source="torch.nn.functional.cross_entropy: log-softmax, its gradient and that of the loss; the freed logits, "
        "half and float, leave a hole in which one of those fits",
    ),
    "eager-half": CrossEntropy(
        meaning="logits, their shifted copy, log-softmax and gradient, all in the compute format",
        half_copies=4,
        full_copies=0,
        kept_bytes=2,
        source="torch.nn.functional.cross_entropy of half-precision logits without autocast (DeepSpeed fp16)",
    ),
    "compiled": CrossEntropy(
        meaning="the same in one compiled graph, which keeps the logits and writes their gradient",
        half_copies=2,
        full_copies=0,
        kept_bytes=2,
        source="torch.compile of torch.nn.functional.cross_entropy",
    ),
    "flash-attention": CrossEntropy(
        meaning="FlashAttention's kernel, which reads the logits as they are and writes their gradient beside them",
        half_copies=2,
        full_copies=0,
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
        half_copies=0,
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
        full_copies=0,
        kept_bytes=2,
        source="NVIDIA/TransformerEngine@v2.11 pytorch/triton/cross_entropy.py",
    ),
    "loss-parallel": CrossEntropy(
        meaning="DTensor: each tensor rank its part of the vocabulary, in fp32 and out of place",
        half_copies=0,
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
