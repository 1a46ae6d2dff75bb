"""Verdicts for schedulers: of a Slurm job, of a script and of an object of Kubernetes."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from service.answers.checks import Check, CheckVerdict, JobCheck
from service.answers.exports import Imported
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.features.checks import schemas
from service.features.checks.check import LEFT_OUT, StoreQuestion, check
from service.formats.drafts import CERTAIN, GIVE_MODEL
from service.formats.launchers.manifests import scheduled_by_kubernetes
from service.formats.launchers.slurm import SECONDS_PER_MINUTE, scheduled_by_slurm
from service.formats.program import Scheduled
from service.formats.training import SCRIPT_FORMAT
from service.units import SECONDS_PER_DAY
from service.validation.json_text import apply_merge_patch, single_line
from service.validation.problems import not_an_object
from service.validation.question_parts import PARTS
from service.validation.reading import read_spec

NAME_A_GPU = (
    "name it in the job (Slurm: gres/gpu:h100:8), in the address that a hook is fetched from (?gpu=h100), or in the "
    "object's annotation"
)

HOOK_DEADLINE_SECONDS = 0.01
"""Time for alternatives in a hook, which delays a user. Source: a choice."""

MOST_ASSUMPTIONS = 3
"""Most assumptions of a reading that a user is shown. Source: a choice."""

TRAINING = ("model", "recipe")
"""Parts of a question that state a training where no script does."""


def check_scheduled(job: Scheduled, catalogue: Catalogue, keep: StoreQuestion) -> JobCheck:
    """Check a scheduler's job; one that cannot be checked is let through."""
    question = {name: job.overrides[name] for name in PARTS if name in job.overrides}
    try:
        launch = _launch(job)
        question, warnings = schemas.with_launch(question, launch, job.gpus), schemas.warnings_of_launch(launch)
        if (reason := schemas.not_understood_text(launch)) is not None:
            return _not_judged("unknown", reason, "not_understood", warnings)
        if "model" not in question:
            return _not_judged("unknown", _without_model(launch), "no_model", warnings)
    except Refused as refused:
        if not all(part in question for part in TRAINING):
            return _let_through("unknown", refused)
        launch, warnings = None, ()
    try:
        cluster = _cluster(job, catalogue)
        body = {**question, "cluster": cluster, "deadline_seconds": HOOK_DEADLINE_SECONDS}
        found = check({**body, **_limits(job, question)}, catalogue, keep)
    except Refused as refused:
        return _let_through("warn", refused, warnings)
    return _judged(found, warnings, () if launch is None else launch.assumptions)


def _without_model(launch: Imported) -> str:
    """Why a training is not judged whose settings name no model."""
    why = next((one for one in launch.assumptions if GIVE_MODEL in one), f"no model is named: {GIVE_MODEL}")
    return single_line(f"not checked: {why}, in the object's annotation or to POST /v1/check")


def _launch(job: Scheduled) -> Imported:
    """What a job starts."""
    if isinstance(job.script, Problem):
        raise Refused(job.script)
    return schemas.read_launch({"format": SCRIPT_FORMAT, "content": job.script, "files": job.files}, job.job)


def _judged(found: Check, warnings: tuple[str, ...], assumptions: tuple[str, ...]) -> JobCheck:
    """The verdict with all warnings but that about alternatives, which a scheduler does not show.

    A verdict against the job shows what the reading assumes and may be otherwise.
    """
    own = [one for one in found.warnings if one != LEFT_OUT]
    if found.verdict in {"warn", "deny"}:
        shown = [one for one in assumptions if not one.endswith(CERTAIN)][:MOST_ASSUMPTIONS]
        own += (f"assumed: {one}" for one in shown)
    return JobCheck(
        verdict=found.verdict,
        reason=found.reason,
        not_judged=None,
        warnings=tuple(map(single_line, (*warnings, *own))),
        check=replace(found, assumptions=(*assumptions, *found.assumptions)),
    )


def check_slurm_job(body: Mapping[str, Any], catalogue: Catalogue, keep: StoreQuestion) -> JobCheck:
    job = read_spec(schemas.SlurmCheckRequest, body, "")
    if not isinstance(job.question, dict):
        raise Refused(not_an_object("question", PARTS))
    try:
        return check_scheduled(scheduled_by_slurm(job, job.question), catalogue, keep)
    except Refused as refused:
        return _let_through("unknown", refused)


def check_script(body: Mapping[str, Any], catalogue: Catalogue, keep: StoreQuestion) -> JobCheck:
    job = read_spec(schemas.ScriptCheckRequest, body, "")
    if not isinstance(job.question, dict):
        raise Refused(not_an_object("question", PARTS))
    scheduled = Scheduled(
        script=job.script,
        files=job.files,
        gpus=job.gpus,
        gpus_each=job.gpus_per_node or job.gpus,
        gpu=job.gpu,
        time_limit_seconds=job.time_limit_seconds,
        overrides=job.question,
    )
    return check_scheduled(scheduled, catalogue, keep)


def check_manifest(
    manifest: Mapping[str, Any],
    catalogue: Catalogue,
    keep: StoreQuestion,
    site: Mapping[str, Any] = MappingProxyType({}),
) -> JobCheck:
    """Check an object of Kubernetes, with parts of the question that its annotation leaves out."""
    try:
        job = scheduled_by_kubernetes(manifest)
        return check_scheduled(replace(job, overrides=apply_merge_patch(site, job.overrides)), catalogue, keep)
    except Refused as refused:
        return _let_through("unknown", refused)


def _let_through(verdict: CheckVerdict, refused: Refused, warnings: tuple[str, ...] = ()) -> JobCheck:
    problem = refused.problems[0]
    return _not_judged(verdict, single_line(f"not checked: {problem.message}; {problem.fix}"), problem.code, warnings)


def _not_judged(verdict: CheckVerdict, reason: str, code: str, warnings: tuple[str, ...]) -> JobCheck:
    return JobCheck(verdict=verdict, reason=reason, not_judged=code, warnings=warnings, check=None)


def as_lines(job_check: JobCheck) -> str:
    """A verdict for scripts without a JSON parser: five lines, and one for each warning."""
    found = job_check.check
    seconds = None if found is None else found.time_limit_seconds
    minutes = "" if seconds is None else str(round(seconds / SECONDS_PER_MINUTE))
    estimate = "" if found is None else found.id
    lines = (job_check.verdict, job_check.reason, estimate, minutes, job_check.not_judged or "", *job_check.warnings)
    return "".join(f"{line}\n" for line in lines)


def _cluster(job: Scheduled, catalogue: Catalogue) -> dict[str, Any]:
    """The GPUs that a job asks for, of the kind that it names, or else its site."""
    site = job.overrides.get("cluster", {})
    if not isinstance(site, str | Mapping):
        raise Refused(not_an_object("cluster", ["preset", "gpu", "gpus_per_node"]))
    known = {"preset": site} if isinstance(site, str) else dict(site)
    if job.gpu is not None:
        known["gpu"] = catalogue.find_gpu(job.gpu).row.slug
    elif {"gpu", "preset"} & known.keys():
        pass
    elif job.machine is not None:
        known["preset"] = catalogue.find_cluster(job.machine).row.slug
    else:
        message = "neither the job nor its site names a model of GPU"
        raise Refused(Problem(field="cluster.gpu", code="required", message=message, fix=NAME_A_GPU))
    if job.gpus > job.gpus_each:
        known["gpus_per_node"] = job.gpus_each
    known.pop("nodes", None)
    return {**known, "gpus": job.gpus}


def _limits(job: Scheduled, question: Mapping[str, Any]) -> dict[str, Any]:
    """Limits of the site, and the wall time of the job if the length of the run is known."""
    recipe = question.get("recipe")
    days: dict[str, float] = {}
    if isinstance(recipe, Mapping) and recipe.get("training_tokens") is not None and job.time_limit_seconds is not None:
        days["days"] = job.time_limit_seconds / SECONDS_PER_DAY
    limits = apply_merge_patch(days, job.overrides.get("limits", {}))
    return {"limits": limits} if limits else {}


LONGEST_UID = 128

SILENT = frozenset({"no_gpus", "not_read", "owned"})
"""Reasons that concern no training, so that a webhook does not report them: it sees every object of a kind."""


def answer_review(
    review: Mapping[str, Any], catalogue: Catalogue, keep: StoreQuestion
) -> tuple[dict[str, Any], JobCheck | None]:
    """Answer an admission review; with the check, if it holds an object."""
    request = review.get("request")
    is_review = review.get("apiVersion") == schemas.VERSION and review.get("kind") == schemas.KIND
    uid = request.get("uid") if isinstance(request, Mapping) else None
    if not is_review or not isinstance(request, Mapping) or not isinstance(uid, str) or len(uid) > LONGEST_UID:
        message = f"the body is no {schemas.KIND} of {schemas.VERSION} with a request and its uid"
        fix = "let a ValidatingWebhookConfiguration with admissionReviewVersions [v1] send it"
        raise Refused(Problem(field="", code="not_a_review", message=message, fix=fix))
    manifest = request.get("object")
    job_check = check_manifest(manifest, catalogue, keep) if isinstance(manifest, Mapping) else None
    response = {"apiVersion": schemas.VERSION, "kind": schemas.KIND, "response": {"uid": uid, **_response(job_check)}}
    return response, job_check


def _response(job_check: JobCheck | None) -> dict[str, Any]:
    if job_check is None or job_check.not_judged in SILENT:
        return {"allowed": True}
    text = f"traincost: {job_check.reason}"
    is_reported = job_check.verdict in {"warn", "unknown"}
    warnings = [*([text] if is_reported else []), *(f"traincost: {one}" for one in job_check.warnings)]
    response: dict[str, Any] = {"warnings": warnings} if warnings else {}
    if job_check.check is not None:
        response["auditAnnotations"] = {"estimate": job_check.check.id}
    elif job_check.not_judged is not None:
        response["auditAnnotations"] = {"not-judged": job_check.not_judged}
    if job_check.verdict == "deny":
        return {"allowed": False, "status": {"code": schemas.FORBIDDEN, "message": text}, **response}
    return {"allowed": True, **response}
