"""Reads arguments with Megatron-LM's own parser and its own checks, from a copy of its repository, without a GPU.

What the checks ask of the machine is answered as one with Hopper GPUs and a new Transformer Engine would answer.
"""

import json
import logging
import os
import sys
import typing
from contextlib import redirect_stdout

ENGINE = "2.16.0"
"""Transformer Engine that is said to be installed."""


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    items = json.load(sys.stdin)
    logging.disable(logging.INFO)
    with redirect_stdout(sys.stderr):
        on_hopper()
        found = [judged(one["words"], one["environment"], one["world"]) for one in items]
    json.dump(found, sys.stdout, default=str)


def on_hopper() -> None:
    """Have the checks find what a machine that trains has."""
    if not hasattr(typing, "override"):
        typing.override = lambda function: function  # type: ignore[attr-defined]  # Python 3.12 has it
    import torch

    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: type("Properties", (), {"major": 9, "minor": 0})
    from megatron.core import utils
    from megatron.core.models.common.embeddings import rope_utils
    from packaging.version import Version

    utils._te_version = Version(ENGINE)
    rope_utils.fused_apply_rotary_pos_emb = on_hopper


def judged(words: list[str], environment: dict[str, str], world: int) -> dict[str, object]:
    """What Megatron-LM takes the arguments to say in a world of as many processes, or why it refuses them."""
    before = dict(os.environ)
    os.environ.update(environment, WORLD_SIZE=str(world))
    try:
        return read(words)
    except (Exception, SystemExit) as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    finally:
        os.environ.clear()
        os.environ.update(before)


def read(words: list[str]) -> dict[str, object]:
    """What Megatron-LM takes the arguments to say, once it has checked them and made the model's configuration."""
    from megatron.training.argument_utils import core_transformer_config_from_args
    from megatron.training.arguments import parse_args, validate_args

    sys.argv = ["pretrain_gpt.py", *words]
    args = parse_args()
    validate_args(args)
    core_transformer_config_from_args(args)
    names = (
        "data_parallel_size", "tensor_model_parallel_size", "context_parallel_size", "pipeline_model_parallel_size",
        "virtual_pipeline_model_parallel_size", "expert_model_parallel_size", "use_megatron_fsdp",
        "data_parallel_sharding_strategy", "use_distributed_optimizer", "use_layer_wise_distributed_optimizer",
        "micro_batch_size", "global_batch_size", "seq_length", "recompute_granularity",
    )  # fmt: skip
    return {name: getattr(args, name) for name in names}


if __name__ == "__main__":
    main()
