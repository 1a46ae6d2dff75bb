"""What should the reader of an answer know: what was assumed, what looks odd, what to change when it does not fit?"""

from service.estimator.device_calibration import calibration_of
from service.estimator.documents import padding_fraction
from service.estimator.filled import filled
from service.estimator.matrix_rates import UNMEASURED_RATES, generation_rates
from service.estimator.mixers import MIXERS
from service.estimator.own_steps import own_scale
from service.estimator.resolve import Resolved
from service.estimator.run_advice import run_assumptions, run_warnings
from service.estimator.training import trains_everything

SENSIBLE_BATCH_TOKENS = (4e6, 64e6)
"""Tokens in one step of recent large runs; DeepSeek-V3's 62.9 million are the "60 million" of the source.
Source: Ultrascale Playbook, batch size."""

LEAST_TRAINING_TOKENS = 200e9
"""Fewer tokens are not recommended for a language model. Source: lecture notes, memory and compute requirements."""

NOTICEABLE_PADDING_FRACTION = 0.05
"""Padding below this share is not worth a warning. Source: an assumption; a round figure."""

TOKENS_FOR_EACH_PARAMETER = 20
"""Compute-optimal training tokens for each parameter. Source: Hoffmann et al. 2022, arXiv:2203.15556."""

NO_TOTALS = "totals is null: give recipe.training_tokens"
NO_COST = "cost_usd is null: give price.usd_per_gpu_hour"
"""Warnings that only an answer with totals needs."""


def assumptions_of(resolved: Resolved) -> tuple[str, ...]:
    """What the estimate takes for granted.

    Args:
        resolved: the question

    Returns:
        one sentence each
    """
    job, layout = resolved.job, resolved.question.layout
    said = [
        f"software as {job.stack.meaning}",
        "every rank has the same load; ranks are numbered tensor, context, data, pipeline",
    ]
    if generation_rates(job.gpu) is UNMEASURED_RATES:
        said.append(
            f"no measurement of {job.gpu.architecture} matrix products: the median of other generations is used"
        )
    calibration = calibration_of(job.gpu)
    if calibration is not None:
        said.append(f"what was measured on this device stands in the place of published rates: {calibration.id}")
    if any(MIXERS[shape.mixer].carries_state for shape in job.ledger.shapes):
        said.append("layers that carry a state run in fused kernels, which keep their inputs and results alone")
    if job.model.zero_expert_num:
        said.append("experts that do nothing are chosen as often as the others")
    if job.model.num_experts:
        said.append("tokens are spread evenly over the experts")
        said.append(f"each expert's matrices are split over {layout.expert_tensor} rank(s)")
    if job.model.num_nextn_predict_layers:
        said.append("multi-token-prediction depths are trained and counted in FLOP, on the last stage")
    if layout.schedule == "dualpipe" and layout.pipeline > 1:
        said.append("each rank holds two copies of its stage's weights (DualPipe)")
    said.extend((*_measured(resolved), *_documents(resolved), *_method(resolved)))
    said.extend(run_assumptions(resolved))
    return tuple(said)


def _measured(resolved: Resolved) -> list[str]:
    steps = resolved.question.cluster.measured_steps
    if not steps:
        return []
    return [f"steps take {own_scale(steps):.3g} times as long as formulas say, by {len(steps)} measured step(s)"]


def _documents(resolved: Resolved) -> list[str]:
    recipe = resolved.question.recipe
    said = []
    if recipe.document_lengths and recipe.batching == "packed":
        said.append("documents are packed to the end of every sequence, and split only where they are longer than one")
    if recipe.document_lengths and recipe.batching == "padded":
        said.append("each document, split where it is longer, has a sequence of its own; kernels compute its padding")
    if recipe.document_lengths and resolved.question.layout.context > 1:
        said.append("context ranks share the attention of all documents evenly")
    return said


def _method(resolved: Resolved) -> list[str]:
    method = resolved.job.method
    said = [] if trains_everything(method) else ["frozen weights are kept in the compute format, without a master copy"]
    if method.name != "full":
        said.append(f"adapters of rank {method.rank} beside {', '.join(method.targets)}, without dropout")
    return said


def warnings_of(resolved: Resolved, active: int) -> tuple[str, ...]:
    """What the asker of a whole estimate should look at.

    Args:
        resolved: the question
        active: parameters that one token uses [1]

    Returns:
        one sentence each
    """
    return (*_missing(resolved), *_tokens(resolved, active), *warnings_of_memory(resolved))


def warnings_of_memory(resolved: Resolved) -> tuple[str, ...]:
    """What the asker should look at, whatever the run is to cost.

    Args:
        resolved: the question

    Returns:
        one sentence each
    """
    return (
        *_length(resolved),
        *_padding(resolved),
        *_batch(resolved),
        *_layout(resolved),
    )


def _missing(resolved: Resolved) -> list[str]:
    said = []
    if resolved.question.recipe.training_tokens is None:
        said.append(NO_TOTALS)
    if resolved.question.price is None:
        said.append(NO_COST)
    return said + run_warnings(resolved)


def _padding(resolved: Resolved) -> list[str]:
    share = padding_fraction(resolved.question.recipe)
    if share < NOTICEABLE_PADDING_FRACTION:
        return []
    return [f"{100 * share:.0f} % of the computed tokens are padding: batching packed would train on all of them"]


def _length(resolved: Resolved) -> list[str]:
    recipe, limit = resolved.question.recipe, resolved.question.model.max_position_embeddings
    length = max(recipe.sequence_length, *(filled(stage.sequence_length) for stage in recipe.stages), 0)
    if limit is None or length <= limit:
        return []
    return [f"sequence_length {length} exceeds the {limit} tokens the model was built for"]


def _tokens(resolved: Resolved, active: int) -> list[str]:
    recipe = resolved.question.recipe
    said: list[str] = []
    if recipe.training_tokens is None or resolved.job.method.name != "full":
        return said
    optimal = TOKENS_FOR_EACH_PARAMETER * active
    if recipe.training_tokens < LEAST_TRAINING_TOKENS:
        least = LEAST_TRAINING_TOKENS / 1e9
        said.append(f"fewer than {least:.0f} billion training tokens are not recommended for a language model")
    if recipe.training_tokens < optimal:
        said.append(f"fewer than the compute-optimal {optimal:.3g} tokens (20 for each of {active:.4g} parameters)")
    return said


def _batch(resolved: Resolved) -> list[str]:
    tokens, asked = filled(resolved.question.recipe.global_batch_tokens), resolved.question.recipe.training_tokens
    low, high = SENSIBLE_BATCH_TOKENS
    if asked is None or low <= tokens <= high or resolved.job.method.name != "full":
        return []
    return [f"a batch of {tokens:.3g} tokens is outside the 4 to 60 million of recent large runs"]


def _layout(resolved: Resolved) -> list[str]:
    layout, domain = resolved.question.layout, filled(resolved.question.cluster.scale_up_gpus)
    said = []
    if layout.tensor > domain:
        said.append(f"tensor degree {layout.tensor} leaves the fast link's {domain} GPUs: expect slow exchanges")
    every = (resolved, *(first for first, *_ in resolved.run_stages))
    fewest = min(float(one.degrees.accumulation) for one in every)
    if layout.pipeline > fewest:
        said.append(f"a step of {fewest:.0f} micro-batch(es) cannot fill {layout.pipeline} stages")
    return said
