"""How does Volcano want a question written? As a Job whose pods start together or not at all.

Source: volcano-sh/apis@536f121 pkg/apis/batch/v1alpha1/job.go; volcano.sh documentation of the plugins env and svc.
"""

from service.exports.emitted import yaml_text
from service.exports.launchers.launched import NAME, YOUR_IMAGE, pod, written_as
from service.exports.program import Meeting, Nodes, Program, script_of
from service.exports.target import Job, Target, Version

MEETING = Meeting(rank='"$VC_TASK_INDEX"', address='"${VC_NODE_HOSTS%%,*}"')


def _manifest(job: Job, program: Program, nodes: Nodes) -> str:
    template = {"spec": {**pod(job, nodes, script_of(program, nodes, MEETING)), "restartPolicy": "OnFailure"}}
    return yaml_text(
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": NAME},
            "spec": {
                "schedulerName": "volcano",
                "minAvailable": nodes.count,
                "plugins": {"env": [], "svc": []},
                "tasks": [{"name": "node", "replicas": nodes.count, "template": template}],
            },
        }
    )


VOLCANO = Target(
    name="volcano",
    tool="Volcano",
    kind="launcher",
    versions={
        "v1alpha1": Version(
            covers="batch.volcano.sh/v1alpha1 at 536f121", file_name="volcano.yaml", media_type="application/yaml"
        ),
    },
    write=written_as(_manifest, YOUR_IMAGE),
    source="volcano-sh/apis@536f121 pkg/apis/batch/v1alpha1/job.go",
)
"""A Job of Volcano."""
