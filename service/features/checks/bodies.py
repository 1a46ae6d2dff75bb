"""Checks from the bytes of a body, for compute processes when parsing takes long."""

from service.answers.checks import Check
from service.catalogue import Catalogue
from service.features.checks.check import check
from service.features.checks.schedulers import JobCheck, answer_review, check_manifest, check_slurm_job
from service.store.scenarios import CheckedQuestion
from service.validation.json_text import parse_object
from service.validation.serialization import to_bytes

CheckedQuestions = list[CheckedQuestion]
"""Questions of checks, which the API process stores."""


def check_of(content: bytes, catalogue: Catalogue) -> tuple[Check, CheckedQuestions]:
    """Check the job of a body."""
    questions: CheckedQuestions = []
    return check(parse_object(content), catalogue, questions.append), questions


def slurm_check_of(content: bytes, catalogue: Catalogue) -> tuple[JobCheck, CheckedQuestions]:
    """Check a job of Slurm."""
    questions: CheckedQuestions = []
    return check_slurm_job(parse_object(content), catalogue, questions.append), questions


def manifest_check_of(content: bytes, catalogue: Catalogue) -> tuple[JobCheck, CheckedQuestions]:
    """Check an object of Kubernetes."""
    questions: CheckedQuestions = []
    return check_manifest(parse_object(content), catalogue, questions.append), questions


def review_of(content: bytes, catalogue: Catalogue) -> tuple[bytes, CheckedQuestions, list[str]]:
    """Answer an AdmissionReview, with its verdict if there is one."""
    questions: CheckedQuestions = []
    verdicts: list[str] = []
    return (
        to_bytes(answer_review(parse_object(content), catalogue, questions.append, verdicts.append)),
        questions,
        verdicts,
    )
