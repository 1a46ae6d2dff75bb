"""Reads arguments with Megatron-LM's own parser, from a copy of its repository, without a GPU."""

import json
import sys
from contextlib import redirect_stdout


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    items = json.load(sys.stdin)
    with redirect_stdout(sys.stderr):
        found = [read(words) for words in items]
    json.dump(found, sys.stdout, default=str)


def read(words: list[str]) -> dict[str, object]:
    """What Megatron-LM takes the arguments to say."""
    import typing

    if not hasattr(typing, "override"):
        typing.override = lambda function: function  # type: ignore[attr-defined]  # Python 3.12 has it
    from megatron.training.arguments import parse_args

    sys.argv = ["pretrain_gpt.py", *words]
    args = parse_args()
    names = (
        "tensor_model_parallel_size", "context_parallel_size", "pipeline_model_parallel_size",
        "expert_model_parallel_size", "num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout",
        "micro_batch_size", "global_batch_size", "seq_length", "recompute_granularity", "recompute_method",
        "recompute_num_layers", "use_distributed_optimizer", "num_layers", "hidden_size",
    )  # fmt: skip
    return {name: getattr(args, name) for name in names}


if __name__ == "__main__":
    main()
