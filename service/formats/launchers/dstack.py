"""Tasks of dstack.

Source: dstack 0.22.5 _internal/core/models/configurations.py, and its documentation of distributed tasks.
"""

from service.formats.program import NAME, Nodes, Program, Rendezvous, family_of, memory_of, script_of, writer
from service.formats.rules import ExportRequest, Target, Version
from service.formats.text import yaml_text

RENDEZVOUS = Rendezvous(rank='"$DSTACK_NODE_RANK"', address='"$DSTACK_MASTER_NODE_IP"')


def _task(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    slug = request.question.gpu.slug
    memory = memory_of(slug)
    gpu_parts = (family_of(slug), *(() if memory is None else (f"{memory}GB",)), str(nodes.gpus_each))
    return yaml_text(
        {
            "type": "task",
            "name": NAME,
            "nodes": nodes.count,
            "commands": [script_of(program, nodes, RENDEZVOUS)],
            "resources": {"gpu": ":".join(gpu_parts), "shm_size": "64GB"},
        }
    )


DSTACK = Target(
    name="dstack",
    tool="dstack",
    kind="launcher",
    versions={"0.22": Version(covers="0.22.5", file_name="train.dstack.yml", media_type="application/yaml")},
    write=writer(_task, "the image is dstack's own unless you name one"),
    source="dstack 0.22.5 _internal/core/models/configurations.py",
)
