"""SkyPilot: a task.

Source: SkyPilot 0.14.1 sky/utils/schemas.py, and its documentation of the variables of distributed tasks.
"""

from service.formats.program import NAME, Nodes, Program, Rendezvous, script_of, sized_name_of, writer
from service.formats.rules import ExportRequest, Target, Version
from service.formats.text import yaml_text

RENDEZVOUS = Rendezvous(rank='"$SKYPILOT_NODE_RANK"', address='"$MASTER_ADDR"')

_FIRST = 'export MASTER_ADDR="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"\n'


def _task(request: ExportRequest, program: Program, nodes: Nodes) -> str:
    gpus = f"{sized_name_of(request.question.gpu.slug)}:{nodes.gpus_each}"
    return yaml_text(
        {
            "name": NAME,
            "num_nodes": nodes.count,
            "resources": {"accelerators": gpus},
            "run": script_of(program, nodes, RENDEZVOUS, before=_FIRST),
        }
    )


SKYPILOT = Target(
    name="skypilot",
    tool="SkyPilot",
    kind="launcher",
    versions={"0.14": Version(covers="0.14.1", file_name="sky.yaml", media_type="application/yaml")},
    write=writer(_task, "the GPU is named as sky gpus list names its family; clouds differ in the rest"),
    source="SkyPilot 0.14.1 sky/utils/schemas.py",
)
