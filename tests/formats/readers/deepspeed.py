"""Reads JSON with DeepSpeed's own configuration, in a world of as many processes as the file is for."""

import json
import sys
from contextlib import redirect_stdout


def main() -> None:
    with redirect_stdout(sys.stderr):
        found = [read(one["content"], one["world"]) for one in json.load(sys.stdin)]
    json.dump(found, sys.stdout)


def read(content: str, world: int) -> dict[str, object]:
    """What DeepSpeed takes the file to say."""
    import deepspeed
    import torch.distributed as dist
    from deepspeed.comm import comm
    from deepspeed.comm.torch import TorchBackend
    from deepspeed.runtime.config import DeepSpeedConfig
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # nothing is sent: no kernel is compiled
    comm.cdb = TorchBackend("fake", timeout=None, init_method=None)
    try:
        config = DeepSpeedConfig(json.loads(content))
    finally:
        comm.cdb = None
        dist.destroy_process_group()
    return {
        "global_batch": config.train_batch_size,
        "micro_batch": config.train_micro_batch_size_per_gpu,
        "data": config.world_size,
        "zero_stage": config.zero_optimization_stage,
        "tensor": max(1, config.tensor_parallel_config.autotp_size),
        "stages": config.pipeline["stages"],
        "checkpoints": config.activation_checkpointing_config.number_checkpoints,
    }


if __name__ == "__main__":
    main()
