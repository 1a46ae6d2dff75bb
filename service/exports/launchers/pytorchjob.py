"""How does the Kubeflow Training Operator want a question written? As a PyTorchJob.

Source: kubeflow-training 1.9.4 (kubeflow.org/v1).
"""

from service.exports.emitted import yaml_text
from service.exports.launchers.launched import NAME, YOUR_IMAGE, pod, written_as
from service.exports.program import Meeting, Nodes, Program, script_of
from service.exports.target import Job, Target, Version

MEETING = Meeting(rank='"$PET_NODE_RANK"', address='"$MASTER_ADDR"')


def _manifest(job: Job, program: Program, nodes: Nodes) -> str:
    template = {"spec": pod(job, nodes, script_of(program, nodes, MEETING))}

    def replicas(count: int) -> dict[str, object]:
        return {"replicas": count, "restartPolicy": "OnFailure", "template": template}

    others = {"Worker": replicas(nodes.count - 1)} if nodes.count > 1 else {}
    return yaml_text(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": NAME},
            "spec": {
                "runPolicy": {"backoffLimit": 0},
                "nprocPerNode": str(nodes.gpus_each),
                "pytorchReplicaSpecs": {"Master": replicas(1), **others},
            },
        }
    )


PYTORCHJOB = Target(
    name="pytorchjob",
    tool="Kubeflow Training Operator",
    kind="launcher",
    versions={
        "v1": Version(covers="Training Operator 1.9", file_name="pytorchjob.yaml", media_type="application/yaml"),
    },
    write=written_as(_manifest, YOUR_IMAGE),
    source="kubeflow-training 1.9.4",
)
"""A PyTorchJob."""
