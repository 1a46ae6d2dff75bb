"""Collectives of small models that torch counts under gloo, in an environment with torch and transformers.

Writes for each case the calls of every collective in one step, and the bytes of their whole tensors.
"""

import json
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import distributed, multiprocessing
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile

from tests.estimator.time.traffic_cases import CASES, CONFIG, RANKS, TOKENS, Case

SHARDED = {"c10d::_allgather_base_": ("all_gather", 0), "c10d::_reduce_scatter_base_": ("reduce_scatter", 1)}
REPLICATED = {"gloo:all_reduce": ("all_reduce", 0)}
"""Operations of torch: which collective each is, and which of its arguments is the whole tensor."""


def model_of(case: Case) -> Any:
    """A model of the case, wrapped."""
    torch.manual_seed(0)
    model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG))
    if case.bucket_bytes is not None:
        caps = {"bucket_cap_mb": case.bucket_bytes / (1 << 20)}
        return torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False, **caps)
    if case.stack == "torchtitan":  # as its distributed/fsdp.py does, the head kept
        fully_shard(model.model.embed_tokens, reshard_after_forward=case.reshard)
        fully_shard([model.model.norm, model.lm_head], reshard_after_forward=False)
    for layer in model.model.layers:
        fully_shard(layer, reshard_after_forward=case.reshard)
    return fully_shard(model, **({} if case.stack == "torchtitan" else {"reshard_after_forward": case.reshard}))


def counted(case: Case) -> dict[str, list[float]]:
    """Calls and bytes of each collective in one step, the third, when buckets have been built again."""
    model, tokens = model_of(case), torch.arange(TOKENS).reshape(1, TOKENS)
    for _ in range(2):
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as trace:
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    collectives = SHARDED if case.bucket_bytes is None else REPLICATED
    for event in trace.events():
        if event.name in collectives:
            name, place = collectives[event.name]
            shape = event.input_shapes[place]
            found[name][0] += 1
            found[name][1] += 4 * torch.Size(shape[0] if isinstance(shape[0], list) else shape).numel()
    return dict(found)


def run(rank: int, folder: str) -> None:
    """One process of the group; the first one writes what it counted."""
    torch.set_num_threads(1)
    store = distributed.FileStore(f"{folder}/store", RANKS)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    found = {name: counted(case) for name, case in CASES.items()}
    if rank == 0:
        Path(folder, "counts.json").write_text(json.dumps(found), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


def main() -> None:
    """Count every case and print the counts."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run, (folder,), nprocs=RANKS)
        sys.stdout.write(Path(folder, "counts.json").read_text(encoding="utf-8") + "\n")


if __name__ == "__main__":
    main()
