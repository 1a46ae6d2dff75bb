"""Requests for a check: a question or a launcher's command, with limits, free GPUs and a deadline; scheduler jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from json import loads
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt, MaxLen
from pydantic import Field

from service.answers.checks import MOST_FREE
from service.answers.exports import Imported
from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.estimator.question import DESCRIBED, Strict
from service.features.exports.exports import import_file, with_replicas
from service.formats.launchers.slurm import SlurmJob
from service.formats.text import LONGEST_FILE_BYTES, MOST_FILES
from service.formats.training import Job
from service.validation import question_parts
from service.validation.forms import Component, DescribedAs
from service.validation.json_text import apply_merge_patch, single_line
from service.validation.problems import Collector, refused_at
from service.validation.questions import ParsedQuestion, read_question
from service.validation.reading import field_names, read_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Strict):
    """What the run may take at most."""

    days: Annotated[float, Gt(0), Lt(1e6)] | None = None
    """Wall time of the whole run."""
    cost_usd: Annotated[float, Ge(0), Lt(1e15)] | None = None
    """Cost of the whole run."""


MOST_UNKNOWN = 8
"""Most unknown settings that a check names."""

FormatName = Literal["script", "megatron-lm", "nanotron", "torchtitan", "deepspeed", "accelerate"]
"""A shell script that starts training, or the kind of configuration file that it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(Strict):
    """A job as the file of its launcher describes it."""

    format: FormatName
    """Kind of file; script is a shell script, with the files that it writes and the command that reads them."""
    content: Annotated[str, MaxLen(LONGEST_FILE_BYTES)]
    """The file, or the arguments."""
    files: Annotated[Mapping[str, Annotated[str, MaxLen(LONGEST_FILE_BYTES)]], MaxLen(MOST_FILES)] = field(
        default_factory=dict
    )
    """Files that the file names, by name; those that the training does not read are left aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest(Strict, question_parts.QuestionRequest):
    """A job that is about to start: its question, as fields or as its launcher's file, and its limits."""

    recipe: question_parts.RecipeFields = None
    """How it is trained, where the launcher's file leaves it open."""
    limits: Annotated[Any, DescribedAs(Limits | None)] = None
    """Limits of the run; null for none."""
    launch: Annotated[Any, DescribedAs(Launch | None)] = None
    """The launcher's file, which fills in what the question leaves out of model, recipe and layout."""
    free_pool: Annotated[
        Any, DescribedAs(Annotated[tuple[question_parts.ClusterForm, ...], MaxLen(MOST_FREE)] | None)
    ] = None
    """Clusters of free GPUs; where cluster is absent, the job is checked on the first."""
    deadline_seconds: Annotated[float, Ge(0), Le(60)] = 0.005
    """Seconds within which you need the verdict; time that is left goes into alternatives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteQuestion(Strict, question_parts.QuestionRequest):
    """Parts of a question that every job of a site shares."""

    recipe: question_parts.RecipeFields = None
    """Fields of the recipe that all jobs share."""
    cluster: Annotated[Any, DescribedAs(question_parts.RowName | question_parts.ClusterFields)] = None
    """Cluster of the jobs; each job gives its number of GPUs."""
    limits: Annotated[Any, DescribedAs(Limits)] = None
    """Limits of each run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCheckRequest(SlurmJob):
    """A job as Slurm's hooks describe it."""

    question: Annotated[Any, DescribedAs(SiteQuestion)] = field(default_factory=dict)
    """Parts of the question that a site sets for every job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCheckRequest(Strict):
    """A job of a scheduler that starts a shell script, or one command."""

    script: Annotated[str, MaxLen(LONGEST_FILE_BYTES)]
    """The script, or the command."""
    files: Annotated[Mapping[str, Annotated[str, MaxLen(LONGEST_FILE_BYTES)]], MaxLen(MOST_FILES)] = field(
        default_factory=dict
    )
    """Files that the script names, by name; those that the training does not read are left aside."""
    gpus: Annotated[int, Ge(1), Le(1 << 20)]
    """GPUs of the job."""
    gpus_per_node: Annotated[int, Ge(1), Le(1 << 20)] | None = None
    """GPUs of each node; null for as many as machines of the GPU usually have."""
    gpu: Annotated[str, MaxLen(256)] | None = None
    """The scheduler's name of the GPU; null where the site's question names it."""
    time_limit_seconds: Annotated[float, Gt(0), Lt(1e12)] | None = None
    """Requested wall time; null where the job requests none."""
    question: Annotated[Any, DescribedAs(SiteQuestion)] = field(default_factory=dict)
    """Parts of the question that a site sets for every job."""


VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"

FORBIDDEN = 403
"""Status code that kubectl shows for a denied object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesObject:
    """An object of Kubernetes."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED | {"extra": "allow"}

    api_version: Annotated[str, Field(alias="apiVersion")] = ""
    """Group and version."""
    kind: str = ""
    """Kind of object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """A request to admit an object."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED | {"extra": "allow"}

    uid: str
    """Id of the request."""
    object: Annotated[Any, DescribedAs(KubernetesObject)] = None
    """The object to create."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionReview(Strict):
    """A review as Kubernetes sends it to a webhook."""

    api_version: Annotated[Literal["admission.k8s.io/v1"], Field(alias="apiVersion")]
    """Group and version."""
    kind: Literal["AdmissionReview"]
    """Kind of object."""
    request: AdmissionRequest
    """The request to admit an object."""


AdmissionAnswer = Annotated[
    Any,
    Component("AdmissionAnswer", loads(Path(__file__).with_name("admission_answer.json").read_text(encoding="utf-8"))),
]
"""JSON of an answered review; parts that do not apply are absent."""


@dataclass(frozen=True, slots=True)
class ParsedCheck:
    """A parsed request for a check."""

    question: Mapping[str, Any]
    parsed: ParsedQuestion
    """The same question, parsed, with its names looked up in the catalogue."""
    limits: Limits
    free_pool: tuple[Any, ...]
    """Clusters of free GPUs, each in the form of a question's cluster."""
    deadline_seconds: float
    """Seconds within which the caller needs the verdict."""
    warnings: tuple[str, ...]
    """One warning that names settings of the launcher's file which the import does not know, if any."""
    assumptions: tuple[str, ...]
    """What the readings of the launcher's file and of the question assume."""
    not_understood: str | None
    """Reason for which the launcher's file gives no verdict: settings that change the answer and are not understood."""


OTHER_FIELDS = ("limits", "launch", "free_pool", "deadline_seconds")

OTHER_PATHS = (*OTHER_FIELDS, *(f"limits.{name}" for name in field_names(Limits)))
"""Fields beside the question, nested ones included."""


def read_check(body: Mapping[str, Any], catalogue: Catalogue) -> ParsedCheck:
    """Parse a request body."""
    problems = Collector()
    question = {name: value for name, value in body.items() if name not in OTHER_FIELDS}
    warnings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    not_understood = None
    imported = None if body.get("launch") is None else problems.read(read_launch, body["launch"])
    if imported is not None:
        question, warnings = with_launch(question, imported), warnings_of_launch(imported)
        assumptions, not_understood = imported.assumptions, not_understood_text(imported)
    free_pool = problems.read(_free_pool, body.get("free_pool"), catalogue) or ()
    if free_pool and question.get("cluster") is None:
        question["cluster"], *others = free_pool
        free_pool = tuple(others)
    given = {name: body[name] for name in ("limits", "deadline_seconds") if body.get(name) is not None}
    limits = problems.read(read_spec, Limits, given.pop("limits", {}), "limits")
    options = problems.read(read_spec, CheckRequest, given, "")
    parsed = problems.read(partial(read_question, question, catalogue, beside=OTHER_PATHS))
    problems.refuse()
    if limits is None or options is None or parsed is None:
        raise AssertionError("a refused part is a problem")
    return ParsedCheck(
        question,
        parsed,
        limits,
        free_pool,
        options.deadline_seconds,
        warnings,
        assumptions=(*assumptions, *parsed.assumptions),
        not_understood=not_understood,
    )


def read_launch(value: object, job: Job | None = None) -> Imported:
    """Import a launch file or script."""
    launch = read_spec(Launch, value, "launch")
    try:
        return import_file(launch.format, launch.content, launch.files, job, only_named=True)
    except Refused as refused:
        raise refused_at("launch", refused) from None


def with_launch(question: Mapping[str, Any], imported: Imported, gpus: int | None = None) -> dict[str, Any]:
    """A question with its gaps filled from an import, for a job's number of GPUs or else that of its cluster."""
    parts = {"model": imported.model, "recipe": dict(imported.recipe), "layout": dict(imported.layout)}
    filled = {
        name: apply_merge_patch(value, question[name]) if name in question else value for name, value in parts.items()
    }
    found = {**question, **{name: value for name, value in filled.items() if value is not None}}
    recipe, layout, cluster = found["recipe"], found["layout"], question.get("cluster")
    if isinstance(recipe, Mapping) and isinstance(layout, Mapping):
        of_cluster = cluster.get("gpus") if isinstance(cluster, Mapping) else None
        found["recipe"], found["layout"] = with_replicas(imported, recipe, layout, gpus or of_cluster)
    return found


def warnings_of_launch(imported: Imported) -> tuple[str, ...]:
    """A warning that names settings which the import does not know, if there are any."""
    named = ", ".join(one.name for one in imported.unknown[:MOST_UNKNOWN])
    return (single_line(f"settings that are not known were passed over: {named}"),) if named else ()


def not_understood_text(imported: Imported) -> str | None:
    """A line that names settings which change the answer and are not understood; None without any."""
    named = [f"{one.name} (line {one.line}): {one.why}" for one in imported.not_understood]
    return single_line(f"not checked: the meaning of a setting is not modelled: {'; '.join(named)}") if named else None


def _free_pool(value: object, catalogue: Catalogue) -> tuple[Any, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MOST_FREE:
        message = f"free_pool is not a list of at most {MOST_FREE} clusters"
        fix = 'give clusters as in a question, such as [{"gpu": "h100-sxm5-80gb", "gpus": 64}]'
        raise Refused(Problem(field="free_pool", code="not_a_list", message=message, fix=fix))
    problems = Collector()
    for place, cluster in enumerate(value):
        try:
            question_parts.read_cluster(cluster, catalogue)
        except Refused as refused:
            problems.add(*refused_at(f"free_pool[{place}]", refused, "cluster").problems)
    problems.refuse()
    return tuple(value)
