"""accelerate's estimate-memory: sizes of a model, and of training it with Adam on one device."""

from service.estimator.model.counts import ParameterCounts, parameter_counts
from service.estimator.other_tools.tool import OPTIMIZER, STATES, WEIGHTS, MethodLine, Term, ToolAnswer
from service.estimator.resolve import ResolvedQuestion


def headless_bytes(counts: ParameterCounts, head_bias: int) -> int:
    """fp32 bytes of the model without its head, which is the class that the tool builds.

    Formula: 4 (N - head - its bias)
    Args:
        head_bias: numbers of the head's bias [1]
    Returns: bytes [byte]
    Source: huggingface/accelerate@16cb6eb src/accelerate/commands/estimate.py (AutoModel, float32)

    >>> from service.estimator.model.counts import count_parameters
    >>> from service.estimator.samples import LLAMA_3_8B
    >>> headless_bytes(count_parameters(LLAMA_3_8B), 0) // 4
    7504924672
    """
    return 4 * (counts.total - counts.lm_head - head_bias)


def answer(resolved: ResolvedQuestion) -> ToolAnswer:
    """The tool's own terms and totals for a question."""
    model = resolved.question.model
    counts = parameter_counts(model, resolved.workload.ledger)
    fp32_bytes = float(headless_bytes(counts, model.vocab_size if model.lm_head_bias else 0))
    if resolved.question.recipe.precision == "fp32":
        size: float = fp32_bytes
        terms: tuple[Term, ...] = (
            Term("model", fp32_bytes, is_counted=False),
            Term("gradients", fp32_bytes, is_counted=False),
            Term("optimizer", 2 * fp32_bytes, is_counted=False),
            Term("step", 4 * fp32_bytes, STATES),
        )
    else:
        size, fp16_bytes = fp32_bytes / 2, fp32_bytes // 2
        terms = (
            Term("model", fp32_bytes, (*WEIGHTS, "master_weights"), is_counted=False),
            Term("gradients", fp32_bytes + fp16_bytes, ("gradients",), is_counted=False),
            Term("optimizer", 2 * fp32_bytes, OPTIMIZER),
            Term("step", 2 * fp32_bytes, is_counted=False),
        )
    return ToolAnswer(terms=terms, totals=(MethodLine(name="Total Size", bytes=size),))
