"""The table of other tools, and the terms in which their answers differ from this one."""

from service.errors import Problem, Refused
from service.estimator.answer import Memory
from service.estimator.other_tools.accelerate import ACCELERATE
from service.estimator.other_tools.eleutherai_cookbook import COOKBOOK
from service.estimator.other_tools.megatron_theoretical import MEGATRON
from service.estimator.other_tools.nanotron_predict_memory import NANOTRON
from service.estimator.other_tools.tool import Comparison, MethodLine, Tool, ToolAnswer
from service.estimator.other_tools.zero3_estimator import ZERO3
from service.estimator.question import Question, ToolName
from service.estimator.resolve import ResolvedQuestion, resolve
from service.units import BYTES, in_units

TOOLS: dict[ToolName, Tool] = {
    "nanotron-predict-memory": NANOTRON,
    "megatron-theoretical": MEGATRON,
    "accelerate": ACCELERATE,
    "zero3-estimator": ZERO3,
    "eleutherai-cookbook": COOKBOOK,
}


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
