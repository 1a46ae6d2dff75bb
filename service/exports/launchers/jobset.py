"""How does JobSet want a question written? As one indexed Job, a pod for each node.

Source: kubeflow-trainer-api 2.3.0, its models of jobset.x-k8s.io/v1alpha2; batch/v1 of Kubernetes 1.37.
"""

from service.exports.emitted import yaml_text
from service.exports.launchers.launched import NAME, YOUR_IMAGE, pod, written_as
from service.exports.program import Meeting, Nodes, Program, script_of
from service.exports.target import Job, Target, Version

_JOB = "node"

MEETING = Meeting(rank='"$JOB_COMPLETION_INDEX"', address=f"{NAME}-{_JOB}-0-0.{NAME}")


def _manifest(job: Job, program: Program, nodes: Nodes) -> str:
    template = {"spec": {**pod(job, nodes, script_of(program, nodes, MEETING)), "restartPolicy": "Never"}}
    spec = {
        "parallelism": nodes.count,
        "completions": nodes.count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": template,
    }
    return yaml_text(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": NAME},
            "spec": {
                "network": {"enableDNSHostnames": True},
                "replicatedJobs": [{"name": _JOB, "replicas": 1, "template": {"spec": spec}}],
            },
        }
    )


JOBSET = Target(
    name="jobset",
    tool="JobSet",
    kind="launcher",
    versions={
        "v1alpha2": Version(covers="jobset.x-k8s.io/v1alpha2", file_name="jobset.yaml", media_type="application/yaml"),
    },
    write=written_as(_manifest, YOUR_IMAGE),
    source="kubeflow-trainer-api 2.3.0, jobset.x-k8s.io/v1alpha2",
)
"""A JobSet."""
