"""Ray Train: a Python script that starts one worker for each node, which starts the node's ranks.

Source: ray-project/ray@b7f4259e (2.60.0) python/ray/air/config.py, train/v2/api/config.py, train/torch/config.py.
"""

import json

from service.formats.program import Nodes, Program, launcher, script_of
from service.formats.rules import ExportRequest

_TEMPLATE = '''"""Trains on a Ray cluster: one worker a node, which starts a process for each of its GPUs."""

import os
import subprocess

import ray.train
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

SCRIPT = {script}


def train_on_node() -> None:
    rank = str(ray.train.get_context().get_world_rank())
    subprocess.run(["bash", "-c", SCRIPT], env={{**os.environ, "NODE_RANK": rank}}, check=True)


scaling_config = ScalingConfig(
    num_workers={nodes},
    use_gpu=True,
    resources_per_worker={{"GPU": {gpus}}},
    placement_strategy="{strategy}",
)

if __name__ == "__main__":
    TorchTrainer(train_on_node, torch_config=TorchConfig(backend="gloo"), scaling_config=scaling_config).fit()
'''


def _snippet(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    lines = script_of(program, nodes).splitlines(keepends=True)
    quoted = "\n".join(f"    {json.dumps(line)}" for line in lines)
    strategy = "STRICT_SPREAD" if nodes.count > 1 else "PACK"
    return _TEMPLATE.format(script=f"(\n{quoted}\n)", nodes=nodes.count, gpus=nodes.gpus_each, strategy=strategy)


RAY_TRAIN = launcher("ray-train", _snippet)
