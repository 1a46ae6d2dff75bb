"""What does Kubernetes want to hear of an object that is to be admitted? AdmissionReview v1, in and out."""

from collections.abc import Callable, Mapping
from typing import Any

from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.workflows.checks import Keep
from service.workflows.scheduled_checks import JudgedJob, judge_manifest

VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"

LONGEST_UID = 128

FORBIDDEN = 403
"""Code of the status that kubectl shows of what is not admitted."""


def reviewed(
    review: Mapping[str, Any],
    catalogue: Catalogue,
    keep: Keep = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """The answer to a review.

    Args:
        review: an AdmissionReview with a request
        catalogue: the facts
        keep: what to do with its question
        tell: what to do with the verdict, where there is one

    Returns:
        an AdmissionReview with a response; only what runs out of memory is not allowed

    Raises:
        Refused: it is no AdmissionReview of version 1
    """
    request = review.get("request")
    is_review = review.get("apiVersion") == VERSION and review.get("kind") == KIND
    uid = request.get("uid") if isinstance(request, Mapping) else None
    if not is_review or not isinstance(request, Mapping) or not isinstance(uid, str) or len(uid) > LONGEST_UID:
        message = f"the body is no {KIND} of {VERSION} with a request and its uid"
        fix = "let a ValidatingWebhookConfiguration with admissionReviewVersions [v1] send it"
        raise Refused(Problem(field="", code="not_a_review", message=message, fix=fix))
    manifest = request.get("object")
    judged = judge_manifest(manifest, catalogue, keep) if isinstance(manifest, Mapping) else None
    if judged is not None:
        tell(judged.verdict)
    return {"apiVersion": VERSION, "kind": KIND, "response": {"uid": uid, **_response(judged)}}


def _response(judged: JudgedJob | None) -> dict[str, Any]:
    if judged is None or judged.verdict == "unknown":
        return {"allowed": True}
    noted = {} if judged.check is None else {"auditAnnotations": {"estimate": judged.check.id}}
    said = f"traincost: {judged.reason}"
    if judged.verdict == "deny":
        return {"allowed": False, "status": {"code": FORBIDDEN, "message": said}, **noted}
    return {"allowed": True, **({"warnings": [said]} if judged.verdict == "warn" else {}), **noted}
