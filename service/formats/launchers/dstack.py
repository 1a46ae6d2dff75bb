"""How does dstack want a question written? As a task.

Source: dstack 0.22.5 _internal/core/models/configurations.py, and its documentation of distributed tasks.
"""

from service.formats.launchers.common import NAME, family_of, memory_of, written_as
from service.formats.program import Meeting, Nodes, Program, script_of
from service.formats.rules import Job, Target, Version
from service.formats.text import yaml_text

MEETING = Meeting(rank='"$DSTACK_NODE_RANK"', address='"$DSTACK_MASTER_NODE_IP"')


def _task(job: Job, program: Program, nodes: Nodes) -> str:
    slug = job.question.gpu.slug
    memory = memory_of(slug)
    words = (family_of(slug), *(() if memory is None else (f"{memory}GB",)), str(nodes.gpus_each))
    return yaml_text(
        {
            "type": "task",
            "name": NAME,
            "nodes": nodes.count,
            "commands": [script_of(program, nodes, MEETING)],
            "resources": {"gpu": ":".join(words), "shm_size": "64GB"},
        }
    )


DSTACK = Target(
    name="dstack",
    tool="dstack",
    kind="launcher",
    versions={"0.22": Version(covers="0.22.5", file_name="train.dstack.yml", media_type="application/yaml")},
    write=written_as(_task, "the image is dstack's own unless you name one"),
    source="dstack 0.22.5 _internal/core/models/configurations.py",
)
"""A task of dstack."""
