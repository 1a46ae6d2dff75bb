"""Names of component schemas, chosen for readers of generated code."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args

from service.answers.checks import CheckVerdict
from service.answers.launch_checks import LaunchStatus, LaunchVerdict, Where
from service.answers.plans import Objective, UnknownName
from service.answers.workers import RunnerName
from service.api.errors import KINDS
from service.api.openapi import Schema
from service.calibration.records import DeviceKind, ProbeName, ProbeStatus
from service.catalogue.rows import PriceStat, RegionKind, Scope, Verified
from service.estimator import question
from service.estimator.answer import Basis, Phase, Verdict
from service.estimator.memory.memory import Moment, StepName
from service.features.checks.schemas import FormatName
from service.features.compare.schemas import Pairing

PARTS: Mapping[str, Any] = json.loads(Path(__file__).with_name("parts.json").read_text(encoding="utf-8"))
"""Parts of the document that are plain data: tags, security schemes, headers, and the schemas of problems."""

RENAMED: Mapping[str, str] = PARTS["renamed"]
"""Published names of classes whose own name is ambiguous."""

INPUT, OUTPUT = "-Input", "-Output"
"""Suffixes of pydantic for a dataclass in a request, and for the same in an answer, with every default filled."""

CHOICES: Mapping[str, tuple[str, Any]] = {
    "AttentionGate": ("A gate on what attention finds.", question.AttentionGate),
    "AttentionKernel": ("How attention is computed.", question.AttentionName),
    "Basis": ("What a number rests on.", Basis),
    "Batching": ("How documents fill sequences.", question.BatchingName),
    "CheckVerdict": ("May a job start?", CheckVerdict),
    "CheckpointRule": ("How the time between checkpoints is found.", question.IntervalRule),
    "ContextMethod": ("How attention is divided over a sequence.", question.ContextMethod),
    "CrossEntropy": ("How the loss is computed.", question.CrossEntropyName),
    "ExpertDispatcher": ("How tokens get to their experts.", question.DispatcherName),
    "FloatDtype": ("A floating-point type of gradients or master weights.", question.GradientDtype),
    "DeviceKind": ("What was measured on.", DeviceKind),
    "LaunchFormat": ("A kind of file that says how a job trains.", FormatName),
    "LaunchStatus": ("Where a launch check is.", LaunchStatus),
    "LaunchVerdict": ("May a job start, after what was measured?", LaunchVerdict),
    "LayerType": ("How a layer mixes tokens.", question.LayerType),
    "MlpType": ("How a layer mixes channels.", question.MlpType),
    "ModelPart": ("A part of a model.", question.PartName),
    "MomentDtype": ("Type of the optimizer's moments.", question.MomentDtype),
    "Normalization": ("How a layer is normalised.", question.Normalization),
    "Objective": ("What plans are ranked by.", Objective),
    "Offload": ("What is kept in the host's memory.", question.OffloadName),
    "OnWorkers": ("On which workers a launch check may run.", Where),
    "Optimizer": ("What turns gradients into updates.", question.OptimizerName),
    "Pairing": ("How clusters and prices are paired.", Pairing),
    "Phase": ("The part of a step in which memory peaks.", Phase),
    "Precision": ("In which numbers a model trains.", question.PrecisionName),
    "PriceModel": ("On what terms a GPU is rented.", question.PriceModel),
    "PriceStat": ("Which of several prices a row holds.", PriceStat),
    "ProbeName": ("A thing that a worker can measure.", ProbeName),
    "ProbeStatus": ("Where a probe is.", ProbeStatus),
    "ProblemCode": ("A kind of problem, stable.", KINDS),
    "QkNorm": ("How queries and keys are normalised.", question.QkNorm),
    "Quantization": ("In which form frozen matrices are kept.", question.QuantizationName),
    "RankOrder": ("Which ranks are neighbours.", question.RankOrder),
    "RecomputeGranularity": ("How much is computed again.", question.RecomputeName),
    "RecomputeMethod": ("Which layers compute again.", question.RecomputeMethod),
    "RecomputeModule": ("A module that is computed again.", question.RecomputeModule),
    "RegionKind": ("What a region is.", RegionKind),
    "RunnerName": ("Where a worker runs what it is given.", RunnerName),
    "Schedule": ("The order of a pipeline's passes.", question.ScheduleName),
    "SoftwareImplementation": ("Whose operations training software runs.", question.ImplementationName),
    "StackName": ("Training software.", question.StackName),
    "TargetMatrix": ("A matrix that gets an adapter.", question.MatrixName),
    "TimelineMoment": ("A moment of a step.", Moment),
    "TimelineStep": ("The first step, or a later one.", StepName),
    "ToolName": ("Another tool that estimates memory.", question.ToolName),
    "TrainingMethodName": ("Which parameters are trained.", question.MethodName),
    "UnknownField": ("A field that can be solved for.", UnknownName),
    "Verdict": ("Whether the job fits.", Verdict),
    "RowScope": ("Whose answers may rest on a row or a calibration: its owner's, or everyone's.", Scope),
    "Verified": ("Whether a row was checked against its source.", Verified),
    "ZeroStage": ("What is sharded over replicas.", question.ZeroStage),
}

EXAMPLES = {"example", "examples"}
"""Keys below which nothing is a schema."""


def published_name(name: str) -> str:
    """What a component is called in the contract.

    >>> [published_name(name) for name in ("Layout-Input", "Layout-Output", "service__estimator__question__Versions")]
    ['Layout', 'ResolvedLayout', 'AnswerVersions']
    """
    own = name.rpartition("__")[2]
    kind = own.removesuffix(INPUT).removesuffix(OUTPUT)
    renamed = RENAMED.get(own) or RENAMED.get(kind, kind)
    return f"Resolved{renamed}" if own.endswith(OUTPUT) and own not in RENAMED else renamed


def published(document: Any) -> Any:
    """A part of the contract in which every component has its published name, and every known choice is one."""
    if isinstance(document, list):
        return [published(item) for item in document]
    if not isinstance(document, dict):
        return document
    fields = {key: value if key in EXAMPLES else published(value) for key, value in document.items()}
    values = fields.get("enum")
    name = _names_of_choices().get(tuple(values)) if isinstance(values, list) else None
    if name is not None:
        others = {key: value for key, value in fields.items() if key not in {"enum", "type"}}
        return others | {"$ref": f"#/components/schemas/{name}"}
    if isinstance(fields.get("$ref"), str):
        path, _, component = fields["$ref"].rpartition("/")
        return fields | ({"$ref": f"{path}/{published_name(component)}"} if path.endswith("/schemas") else {})
    return fields


def published_schemas(schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """The component schemas under their published names, and those of the choices."""
    renamed = {published_name(name): published(schema) for name, schema in schemas.items()}
    return dict(sorted((renamed | {name: _schema(name) for name in CHOICES}).items()))


def _schema(name: str) -> Schema:
    meaning, _ = CHOICES[name]
    values = _values(name)
    kind = "integer" if isinstance(values[0], int) else "string"
    return {"type": kind, "description": meaning, "enum": values}


def _values(name: str) -> list[Any]:
    kind = CHOICES[name][1]
    return list(kind if isinstance(kind, Mapping) else get_args(kind))


@cache
def _names_of_choices() -> Mapping[tuple[Any, ...], str]:
    return {tuple(_values(name)): name for name in CHOICES}
