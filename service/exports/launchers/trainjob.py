"""How does Kubeflow Trainer want a question written? As a TrainJob on the runtime torch-distributed.

Source: kubeflow-trainer-api 2.3.0 (trainer.kubeflow.org/v1alpha1); kubeflow/trainer v2.3.0 for the variables PET_*.
"""

from service.exports.emitted import yaml_text
from service.exports.launchers.launched import IMAGE, NAME, YOUR_IMAGE, resource_of, written_as
from service.exports.program import Meeting, Nodes, Program, script_of
from service.exports.target import Job, Target, Version

MEETING = Meeting(rank='"$PET_NODE_RANK"', address='"$PET_MASTER_ADDR"')


def _manifest(job: Job, program: Program, nodes: Nodes) -> str:
    trainer = {
        "image": IMAGE,
        "command": ["bash", "-c"],
        "args": [script_of(program, nodes, MEETING)],
        "numNodes": nodes.count,
        "numProcPerNode": nodes.gpus_each,
        "resourcesPerNode": {"limits": {resource_of(job.question): nodes.gpus_each}},
    }
    return yaml_text(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": NAME},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
        }
    )


TRAINJOB = Target(
    name="trainjob",
    tool="Kubeflow Trainer",
    kind="launcher",
    versions={
        "v1alpha1": Version(covers="Trainer v2.3", file_name="trainjob.yaml", media_type="application/yaml"),
    },
    write=written_as(_manifest, YOUR_IMAGE, "the runtime torch-distributed is installed with Kubeflow Trainer"),
    source="kubeflow-trainer-api 2.3.0",
)
"""A TrainJob."""
