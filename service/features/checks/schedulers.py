"""Checks of Slurm jobs and Kubernetes objects: the script becomes a question, the resources a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from service.answers.checks import Check
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.estimator.question import DESCRIBED
from service.features.checks.check import StoreQuestion, check
from service.features.checks.schemas import FORBIDDEN, KIND, VERSION, SlurmCheckRequest, read_launch, with_launch
from service.formats.launchers.kubernetes import scheduled_by_kubernetes
from service.formats.launchers.slurm import SECONDS_PER_MINUTE, scheduled_by_slurm
from service.formats.program import SCRIPT_FORMAT, Scheduled
from service.units import SECONDS_PER_DAY
from service.validation.json_text import apply_merge_patch
from service.validation.problems import not_an_object
from service.validation.question_parts import PARTS
from service.validation.reading import read_spec
from service.validation.text import single_line

NAME_A_GPU = (
    "name it in the job (Slurm: gres/gpu:h100:8), in the address that a hook is fetched from (?gpu=h100), or in the "
    "object's annotation"
)

NO_JOB = "not checked: no kind of object that is read, or no container asks for GPUs"

HOOK_DEADLINE_SECONDS = 0.01
"""Time for alternatives in a hook, which delays a user. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCheck:
    """Answer to a scheduler."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED

    verdict: Literal["ok", "warn", "deny", "unknown"]
    """unknown: the job is none that can be judged, so it is let through."""
    reason: str
    """Why, in one line of at most 255 characters."""
    check: Check | None
    """The check behind it; null where there is none."""


def check_scheduled(job: Scheduled, catalogue: Catalogue, keep: StoreQuestion = lambda _: None) -> JobCheck:
    """Check a scheduler's job; one that cannot be checked is let through."""
    try:
        imported = read_launch({"format": SCRIPT_FORMAT, "content": job.script})
        question = with_launch({name: job.overrides[name] for name in PARTS if name in job.overrides}, imported)
    except Refused as refused:
        return _let_through("unknown", _not_checked(refused))
    try:
        cluster = _cluster(job, catalogue)
        body = {**question, "cluster": cluster, "deadline_seconds": HOOK_DEADLINE_SECONDS}
        found = check({**body, **_limits(job, question)}, catalogue, keep)
    except Refused as refused:
        return _let_through("warn", _not_checked(refused))
    return JobCheck(verdict=found.verdict, reason=found.reason, check=found)


def check_slurm_job(body: Mapping[str, Any], catalogue: Catalogue, keep: StoreQuestion = lambda _: None) -> JobCheck:
    """Check a job of Slurm."""
    job = read_spec(SlurmCheckRequest, body, "")
    if not isinstance(job.question, dict):
        raise Refused(not_an_object("question", PARTS))
    try:
        return check_scheduled(scheduled_by_slurm(job, job.question), catalogue, keep)
    except Refused as refused:
        return _let_through("unknown", _not_checked(refused))


def check_manifest(manifest: Mapping[str, Any], catalogue: Catalogue, keep: StoreQuestion = lambda _: None) -> JobCheck:
    """Check an object of Kubernetes."""
    try:
        job = scheduled_by_kubernetes(manifest)
    except Refused as refused:
        return _let_through("unknown", _not_checked(refused))
    return _let_through("unknown", NO_JOB) if job is None else check_scheduled(job, catalogue, keep)


def _let_through(verdict: Literal["warn", "unknown"], reason: str) -> JobCheck:
    return JobCheck(verdict=verdict, reason=reason, check=None)


def as_lines(job_check: JobCheck) -> str:
    """A verdict for scripts without a JSON parser."""
    found = job_check.check
    seconds = None if found is None else found.time_limit_seconds
    minutes = "" if seconds is None else str(round(seconds / SECONDS_PER_MINUTE))
    return f"{job_check.verdict}\n{job_check.reason}\n{'' if found is None else found.id}\n{minutes}\n"


def _not_checked(refused: Refused) -> str:
    problem = refused.problems[0]
    return single_line(f"not checked: {problem.message}; {problem.fix}")


def _cluster(job: Scheduled, catalogue: Catalogue) -> dict[str, Any]:
    """The GPUs that a job asks for, of the kind that it names, or else its site."""
    site = job.overrides.get("cluster", {})
    if not isinstance(site, str | Mapping):
        raise Refused(not_an_object("cluster", ["preset", "gpu", "gpus_per_node"]))
    known = {"preset": site} if isinstance(site, str) else dict(site)
    if job.gpu is not None:
        known["gpu"] = catalogue.find_gpu(job.gpu).row.slug
    elif not {"gpu", "preset"} & known.keys():
        message = "neither the job nor its site names a model of GPU"
        raise Refused(Problem(field="cluster.gpu", code="required", message=message, fix=NAME_A_GPU))
    if job.gpus > job.gpus_each:
        known["gpus_per_node"] = job.gpus_each
    known.pop("nodes", None)
    return {**known, "gpus": job.gpus}


def _limits(job: Scheduled, question: Mapping[str, Any]) -> dict[str, Any]:
    """Limits of the site, and the wall time of the job if the length of the run is known."""
    recipe = question.get("recipe")
    if not isinstance(recipe, Mapping) or recipe.get("training_tokens") is None:
        return {}
    days = {} if job.time_limit_seconds is None else {"days": job.time_limit_seconds / SECONDS_PER_DAY}
    limits = apply_merge_patch(days, job.overrides.get("limits", {}))
    return {"limits": limits} if limits else {}


LONGEST_UID = 128


def answer_review(
    review: Mapping[str, Any], catalogue: Catalogue, keep: StoreQuestion = lambda _: None
) -> tuple[dict[str, Any], str | None]:
    """Answer an admission review; with the verdict, if an object was checked."""
    request = review.get("request")
    is_review = review.get("apiVersion") == VERSION and review.get("kind") == KIND
    uid = request.get("uid") if isinstance(request, Mapping) else None
    if not is_review or not isinstance(request, Mapping) or not isinstance(uid, str) or len(uid) > LONGEST_UID:
        message = f"the body is no {KIND} of {VERSION} with a request and its uid"
        fix = "let a ValidatingWebhookConfiguration with admissionReviewVersions [v1] send it"
        raise Refused(Problem(field="", code="not_a_review", message=message, fix=fix))
    manifest = request.get("object")
    job_check = check_manifest(manifest, catalogue, keep) if isinstance(manifest, Mapping) else None
    response = {"uid": uid, **_response(job_check)}
    verdict = None if job_check is None else job_check.verdict
    return {"apiVersion": VERSION, "kind": KIND, "response": response}, verdict


def _response(job_check: JobCheck | None) -> dict[str, Any]:
    if job_check is None or job_check.verdict == "unknown":
        return {"allowed": True}
    noted = {} if job_check.check is None else {"auditAnnotations": {"estimate": job_check.check.id}}
    text = f"traincost: {job_check.reason}"
    if job_check.verdict == "deny":
        return {"allowed": False, "status": {"code": FORBIDDEN, "message": text}, **noted}
    return {"allowed": True, **({"warnings": [text]} if job_check.verdict == "warn" else {}), **noted}
