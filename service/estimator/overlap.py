"""What does a stack send beside its compute, and what does it wait for? One row for each stack and implementation."""

from dataclasses import dataclass

from service.estimator.names import ImplementationName, StackName


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Which transfers run beside compute, and how."""

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
    """Who says so."""


OVERLAPS: dict[tuple[StackName, ImplementationName], Overlap] = {
    ("megatron-core", "transformer-engine"): Overlap(
        overlaps_tensor=True,
        source="NVIDIA/Megatron-LM@d98e8a64 overlap-grad-reduce, overlap-p2p-communication, tp-comm-overlap",
    ),
    ("megatron-core", "local"): Overlap(
        hides_gradients=False, hides_sends=False, splits_sends=True,
        source="Narayanan et al. 2021, arXiv:2104.04473, section 4.1 (scatter and gather between stages)",
    ),
    ("deepspeed", "local"): Overlap(
        hides_gradients=False, hides_sends=False, splits_sends=True,
        source="bigscience-workshop/Megatron-DeepSpeed@58d92042; deepspeedai/DeepSpeed@v0.5.10 runtime/pipe/engine.py "
        "(gradients are reduced after the last backward pass; is_pipe_partitioned, is_grad_partitioned)",
    ),
    ("deepspeed", "eager"): Overlap(
        reduces_half=True,
        hides_sends=False, splits_sends=True,
        source="deepspeedai/DeepSpeed@edaa722 overlap_comm, reduce dtype; runtime/config.py pipe_partitioned",
    ),
    ("nanotron", "eager"): Overlap(
        hides_gradients=False, hides_sends=False,
        source="huggingface/nanotron@2411b02 parallel/pipeline_parallel/engine.py, optim/zero.py",
    ),
    ("torchtitan", "eager"): Overlap(
        gathers_narrow=True,
        sharded_copy_bytes=14.0, source="pytorch/torchtitan@b5bcd76 (FSDP2 prefetch; float8 tensor parallelism); "
        "torch fsdp/_fully_shard/_fsdp_collectives.py: two copies out of gathers (4 each), one into fp32 (6)",
    ),
    ("torchtitan", "compiled"): Overlap(
        gathers_narrow=True,
        sharded_copy_bytes=14.0, source="pytorch/torchtitan@b5bcd76 (FSDP2 prefetch; float8 tensor parallelism); "
        "torch fsdp/_fully_shard/_fsdp_collectives.py: two copies out of gathers (4 each), one into fp32 (6)",
    ),
    ("fsdp1", "eager"): Overlap(
        sharded_copy_bytes=4.0,
        source="Zhao et al. 2023, arXiv:2304.11277, section 3.3; torch FlatParameter: weights are views of what is "
        "gathered, gradients are copied into one flat tensor (read and written in two bytes)",
    ),
    ("transformers", "eager"): Overlap(source="torch.nn.parallel.DistributedDataParallel; Zhao et al. 2023"),
}  # fmt: skip
"""By stack and implementation; every one has its row."""
