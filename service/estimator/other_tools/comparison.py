"""The table of other tools, and the terms in which their answers differ from this one."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from operator import attrgetter
from typing import Any

from service.errors import Problem, Refused
from service.estimator.answer import Memory
from service.estimator.complete import CompleteQuestion
from service.estimator.model.build import layer_type, mlp_type, trains_everything
from service.estimator.other_tools import (
    accelerate,
    eleutherai_cookbook,
    megatron_theoretical,
    nanotron_predict_memory,
    zero3_estimator,
)
from service.estimator.other_tools.tool import Comparison, MethodLine, ToolAnswer
from service.estimator.question import Model, Question, ToolName
from service.estimator.resolve import ResolvedQuestion, resolve
from service.units import BYTES, in_units


def _recompute(resolved: ResolvedQuestion) -> str:
    rule = resolved.workload.recompute
    if rule.granularity != "selective" or rule.modules == ("core_attn",):
        return rule.granularity
    return f"selective ({', '.join(rule.modules)})"


def _mixers(model: Model) -> list[str]:
    """Kinds of layers that are not attention alone; layers of attention all keep and hold the same."""
    kinds = dict.fromkeys(layer_type(model, layer) for layer in range(model.num_hidden_layers))
    return [kind for kind in kinds if kind not in ("full_attention", "sliding_attention", "chunked_attention")]


def _mlps(model: Model) -> set[str]:
    return {mlp_type(model, layer) for layer in range(model.num_hidden_layers)}


def _has_equal_experts(model: Model) -> bool:
    lone = not (model.shared_expert_intermediate_size or model.moe_latent_size)
    return not model.num_experts or (lone and _mlps(model) == {"sparse"})


Values = list[Any]
"""Values of a field that a formula reads."""

_CONDITIONS: dict[str, Callable[[ResolvedQuestion, CompleteQuestion, Values], bool]] = {
    "method_trains_everything": lambda resolved, _question, _values: trains_everything(resolved.workload.method),
    "method_recomputes_so": lambda resolved, _question, values: _recompute(resolved) in values,
    "method_keeps_no_scores": lambda resolved, question, _values: (
        question.recipe.attention != "eager" or resolved.workload.recompute.modules == ("core_attn",)
    ),
    "method_reads_one_length": lambda resolved, _question, _values: not resolved.run_stages,
    "method_splits_norms": lambda _resolved, question, _values: (
        question.layout.tensor == 1 or question.layout.sequence_parallel
    ),
    "method_shards_so": lambda _resolved, question, values: (
        question.layout.shard_group == 1 or question.layout.zero_stage in values
    ),
    "method_shards_over_all_replicas": lambda _resolved, question, _values: (
        question.layout.zero_stage == 0 or question.layout.shard_group == question.layout.data * question.layout.context
    ),
    "method_runs_the_schedule": lambda _resolved, question, values: (
        question.layout.pipeline == 1 or question.layout.schedule in values
    ),
    "method_fills_nodes": lambda _resolved, question, _values: (
        question.cluster.gpus % question.cluster.gpus_per_node == 0
    ),
    "method_counts_the_mixers": lambda _resolved, question, _values: not _mixers(question.model),
    "method_counts_one_mlp_a_layer": lambda _resolved, question, _values: _mlps(question.model) <= {"dense", "sparse"},
    "method_counts_uneven_experts": lambda _resolved, question, _values: _has_equal_experts(question.model),
    "method_splits_experts_as_tensors": lambda _resolved, question, _values: (
        not question.model.num_experts or question.layout.expert_tensor == question.layout.tensor
    ),
}
"""Conditions of the limits that are more than a list of values of their field, by name.
One replica shards nothing, whatever its ZeRO stage, and one stage runs no schedule."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A feature of questions that a formula does not read, so that the question is refused."""

    name: str
    """Code of the refusal."""
    field: str
    message: str
    """What the tool cannot express and why it matters, a format string over `tool` and the parts of the question."""
    fix: str
    """What to do, in the same form, over `values` too."""
    values: Values
    """Values of the field that the formula reads."""

    def holds(self, resolved: ResolvedQuestion) -> bool:
        """Whether the formula reads all that the question has here."""
        condition = _CONDITIONS.get(self.name)
        if condition is None:
            return attrgetter(self.field)(resolved.question) in self.values
        return condition(resolved, resolved.question, self.values)

    def problem(self, tool: str, resolved: ResolvedQuestion) -> Problem:
        """The refusal of a question by a tool."""
        question = resolved.question
        parts = {
            "model": question.model,
            "recipe": question.recipe,
            "layout": question.layout,
            "cluster": question.cluster,
            "recompute": _recompute(resolved),
            "mixers": ", ".join(_mixers(question.model)),
            "values": " or ".join(map(str, self.values)),
        }
        message, fix = self.message.format(tool=tool, **parts), self.fix.format(**parts)
        return Problem(field=self.field, code=self.name, message=message, fix=fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One other tool that answers questions about memory."""

    tool: str
    meaning: str
    """What it computes, in one line."""
    source: str
    """Where its formula stands."""
    answer: Callable[[ResolvedQuestion], ToolAnswer]
    limits: tuple[Limit, ...]
    """What its formula does not read."""
    known_defects: tuple[str, ...]
    """What it leaves out or counts wrongly, a sentence each."""


def _shipped_tools() -> dict[ToolName, Tool]:
    """The rows of tools.toml with their formulas; a limit without values reads a field only where it is left out."""
    table = tomllib.loads(files(__package__).joinpath("tools.toml").read_text(encoding="utf-8"))
    answers: dict[ToolName, Callable[[ResolvedQuestion], ToolAnswer]] = {
        "nanotron-predict-memory": nanotron_predict_memory.answer,
        "megatron-theoretical": megatron_theoretical.answer,
        "accelerate": accelerate.answer,
        "zero3-estimator": zero3_estimator.answer,
        "eleutherai-cookbook": eleutherai_cookbook.answer,
    }

    def limit(name: str, values: Values) -> Limit:
        row = {"values": [None], **table["limits"][name]}
        return Limit(name=name, **(row | {"values": values} if values else row))

    return {
        name: Tool(
            tool=row["tool"],
            meaning=row["meaning"],
            source=row["source"],
            answer=answer,
            limits=tuple(limit(code, values) for code, values in row["limits"].items()),
            known_defects=tuple(row["known_defects"]),
        )
        for name, answer in answers.items()
        for row in [table["tools"][name]]
    }


TOOLS = _shipped_tools()
"""The other tools, by name of the method."""


def compare(name: ToolName, question: Question, memory: Memory) -> Comparison:
    """Compare another tool's answer to a question with our own estimate."""
    row, resolved = TOOLS[name], resolve(question)
    problems = unsupported(row, resolved)
    if problems:
        raise Refused(*problems)
    result = row.answer(resolved)
    ours = memory.allocated_peak_bytes.value
    return Comparison(
        method=name,
        tool=row.tool,
        source=row.source,
        lines=tuple(MethodLine(name=term.name, bytes=term.bytes) for term in result.terms),
        totals=result.totals,
        variants=result.variants,
        peak_bytes=result.peak_bytes,
        ours_bytes=ours,
        difference_fraction=result.peak_bytes / ours - 1,
        main_reason=_main_reason(row, result, memory),
        known_defects=row.known_defects,
    )


def unsupported(row: Tool, resolved: ResolvedQuestion) -> tuple[Problem, ...]:
    """Problems for the parts of a question that a tool's formula does not cover."""
    return tuple(limit.problem(row.tool, resolved) for limit in row.limits if not limit.holds(resolved))


def _main_reason(row: Tool, result: ToolAnswer, memory: Memory) -> str:
    """Sentence on the term with the largest difference between the tool's bytes and ours."""
    ours_bytes = {line.kind: line.bytes for line in memory.stages[memory.peak_stage].lines}
    counted = [term for term in result.terms if term.is_counted]
    named = {kind for term in counted for kind in term.kinds}
    pairs = [(term.name, term.bytes, [kind for kind in term.kinds if kind in ours_bytes]) for term in counted]
    pairs += [(kind, 0.0, [kind]) for kind in ours_bytes if kind not in named]

    def gap_bytes(pair: tuple[str, float, list[str]]) -> float:
        return abs(pair[1] - sum(ours_bytes[kind] for kind in pair[2]))

    name, theirs, kinds = max(pairs, key=gap_bytes)
    ours = sum(ours_bytes[kind] for kind in kinds)
    if theirs == ours:
        return "no term differs"
    kinds_text = " and ".join(kind.replace("_", " ") for kind in kinds if ours_bytes[kind])
    if not theirs:
        return f"the largest difference is that its peak leaves out {kinds_text}, {in_units(ours, BYTES)} of ours"
    own_share = f"{in_units(ours, BYTES)} by ours ({kinds_text})" if ours else "nothing by ours"
    return f"the largest difference is in {name}: {in_units(theirs, BYTES)} by {row.tool}, {own_share}"
