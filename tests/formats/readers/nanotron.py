"""Reads YAML with nanotron's own classes of a configuration, from a copy of its repository, without flash attention."""

import json
import sys
import tempfile
from unittest.mock import MagicMock


def main() -> None:
    sys.path.insert(0, f"{sys.argv[1]}/src")
    for name in ("flash_attn", "flash_attn.ops", "flash_attn.ops.triton", "flash_attn.ops.triton.layer_norm",
                 "flash_attn.layers", "flash_attn.layers.rotary", "flash_attn.flash_attn_interface",
                 "flash_attn.modules", "flash_attn.modules.mha", "flash_attn.bert_padding", "grouped_gemm",
                 "grouped_gemm.ops", "functorch", "functorch.dim", "ring_flash_attn", "ring_flash_attn.adapters",
                 "ring_flash_attn.adapters.hf_adapter", "ring_flash_attn.llama3_flash_attn_varlen"):  # fmt: skip
        sys.modules[name] = MagicMock(__version__="2.7.4", __spec__=None)
    from nanotron.config import get_config_from_file

    found = []
    for content in json.load(sys.stdin):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(content)
            file.flush()
            config = get_config_from_file(file.name)
        parallelism, tokens = config.parallelism, config.tokens
        found.append(
            {
                "layout.data": parallelism.dp,
                "layout.tensor": parallelism.tp,
                "layout.pipeline": parallelism.pp,
                "layout.context": parallelism.context_parallel_size,
                "layout.expert": parallelism.expert_parallel_size,
                "layout.zero_stage": config.optimizer.zero_stage,
                "recipe.sequence_length": tokens.sequence_length,
                "recipe.micro_batch": tokens.micro_batch_size,
                "recipe.global_batch": config.global_batch_size,
                "recipe.recompute": parallelism.recompute_layer,
            }
        )
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
