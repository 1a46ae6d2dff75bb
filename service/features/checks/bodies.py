"""Checks of whole bodies from their bytes; compute processes read what takes long."""

from service.answers.checks import Check
from service.catalogue import Catalogue
from service.features.checks.check import check
from service.features.checks.schedulers import JudgedJob, judge_manifest, judge_slurm_job, reviewed
from service.store import CheckedQuestion
from service.validation.json_text import parse_object
from service.validation.serialization import to_bytes

Kept = list[CheckedQuestion]
"""Questions of checks, which the process that answers keeps."""


def check_of(content: bytes, catalogue: Catalogue) -> tuple[Check, Kept]:
    """The check that a body asks for."""
    kept: Kept = []
    return check(parse_object(content), catalogue, kept.append), kept


def slurm_check_of(content: bytes, catalogue: Catalogue) -> tuple[JudgedJob, Kept]:
    """The verdict on a job of Slurm."""
    kept: Kept = []
    return judge_slurm_job(parse_object(content), catalogue, kept.append), kept


def manifest_check_of(content: bytes, catalogue: Catalogue) -> tuple[JudgedJob, Kept]:
    """The verdict on an object of Kubernetes."""
    kept: Kept = []
    return judge_manifest(parse_object(content), catalogue, kept.append), kept


def review_of(content: bytes, catalogue: Catalogue) -> tuple[bytes, Kept, list[str]]:
    """The answer to an AdmissionReview, and its verdict where there is one."""
    kept: Kept = []
    verdicts: list[str] = []
    return to_bytes(reviewed(parse_object(content), catalogue, kept.append, verdicts.append)), kept, verdicts
