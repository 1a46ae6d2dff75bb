"""Assumptions that an answer rests on, and warnings about it."""

from service.estimator.answer import Totals
from service.estimator.complete import CompleteOwnedPrice
from service.estimator.constants import CHECKPOINT_SECONDS, calibration_of, own_scale
from service.estimator.model.build import MIXERS
from service.estimator.model.documents import padding_fraction
from service.estimator.model.training import trains_everything
from service.estimator.question import OwnedPrice, Price
from service.estimator.resolve import ResolvedQuestion
from service.estimator.run.totals import checkpointing_of, interruption_inputs, spares_of
from service.estimator.time.matrix_products import UNMEASURED_RATES, generation_rates

LEAST_GOODPUT_FRACTION = 0.5
"""Goodput below which the waste is too large for formulas of first order. Source: an assumption; a round figure."""

NO_ELECTRICITY = "cost_usd holds no electricity: give price.usd_per_kwh"
"""Warning that only an answer with totals needs."""


def run_assumptions(resolved: ResolvedQuestion) -> list[str]:
    """What the totals take for granted. None without training_tokens."""
    if resolved.question.recipe.training_tokens is None:
        return []
    return [*_failures(resolved), *_power(resolved), *_money(resolved)]


def run_warnings(resolved: ResolvedQuestion) -> list[str]:
    """What of the totals the asker should look at. None without training_tokens."""
    full = resolved.question
    if full.recipe.training_tokens is None:
        return []
    is_without = isinstance(full.price, OwnedPrice) and full.price.usd_per_kwh is None
    return [NO_ELECTRICITY] if is_without else []


def lost_time_warnings(resolved: ResolvedQuestion, totals: Totals | None) -> list[str]:
    """What of the lost time the asker should look at."""
    if totals is None:
        return []
    given, goodput, lines = checkpointing_of(resolved.workload).interval_seconds, totals.goodput, []
    if given is not None and goodput.checkpoint_interval_seconds > given:
        lines.append(
            f"checkpoints are taken every {goodput.checkpoint_interval_seconds:.3g} seconds, not every {given:g}: a "
            "step, "
            "or writing the one before, takes that long"
        )
    if totals.goodput_fraction < LEAST_GOODPUT_FRACTION:
        lines.append(
            f"interruptions and checkpoints take more time than training (goodput {totals.goodput_fraction:.2f}), and "
            "more than these first-order formulas say: restart sooner, write checkpoints faster, or use fewer GPUs"
        )
    return lines


def _failures(resolved: ResolvedQuestion) -> list[str]:
    cluster, given = resolved.question.cluster, checkpointing_of(resolved.workload)
    rates = interruption_inputs(resolved.question)
    once, restart = 1 / cluster.failures_per_gpu_hour, cluster.restart_seconds
    text = f"one interruption for {once:,.0f} GPU-hours, {restart / 60:.3g} minutes to restart"
    if given.stall_seconds is None and given.write_bytes_per_s is None:
        text += f", {CHECKPOINT_SECONDS:.0f} seconds for a checkpoint"
    spares, preempted = spares_of(cluster), rates["preemptions_per_instance_hour"]
    lines = [text]
    if preempted:
        lines.append(
            f"each of {rates['instances']} machine(s) is taken back {preempted:.3g} times an hour, which differs "
            "widely between spot markets, and another one is there at once"
        )
    if spares:
        lines.append(f"{spares} spare GPUs wait, are paid for, and are counted in billed_gpu_hours, cost and energy")
    return lines


def _power(resolved: ResolvedQuestion) -> list[str]:
    cluster = resolved.question.cluster
    busy, idle = cluster.busy_power_fraction, cluster.idle_power_fraction
    host, pue = cluster.host_power_fraction, cluster.pue
    lines = [
        f"nodes at work draw {busy:.3g} and waiting ones {idle:.3g} of their rated power, hosts and network are rated "
        f"at {host:.3g} of the GPU boards, and pue is {pue:.3g}"
    ]
    if cluster.grid_kg_co2e_per_kwh is None:
        lines.append("carbon is not estimated: neither cluster.grid_region nor cluster.grid_kg_co2e_per_kwh is given")
    return lines


def _money(resolved: ResolvedQuestion) -> list[str]:
    price = resolved.question.price
    if isinstance(price, CompleteOwnedPrice):
        return [
            f"own hardware of {price.purchase_usd:,.0f} USD a GPU is written off over "
            f"{price.amortisation_years:g} years in which it works {price.utilisation_fraction:.0%} of the time"
        ]
    if isinstance(price, Price) and price.discount_fraction:
        return [f"the price of a GPU-hour is reduced by {price.discount_fraction:.3%}"]
    return []


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


def assumptions_of(resolved: ResolvedQuestion) -> tuple[str, ...]:
    """What the estimate takes for granted."""
    workload, layout = resolved.workload, resolved.question.layout
    lines = [
        f"software as {workload.stack.meaning}",
        "every rank has the same load; ranks are numbered tensor, context, data, pipeline",
    ]
    if generation_rates(workload.gpu) is UNMEASURED_RATES:
        lines.append(
            f"no measurement of {workload.gpu.architecture} matrix products: the median of other generations is used"
        )
    calibration = calibration_of(workload.gpu)
    if calibration is not None:
        lines.append(f"what was measured on this device stands in the place of published rates: {calibration.id}")
    if any(MIXERS[shape.mixer].carries_state for shape in workload.ledger.shapes):
        lines.append("layers that carry a state run in fused kernels, which keep their inputs and results alone")
    if workload.model.zero_expert_num:
        lines.append("experts that do nothing are chosen as often as the others")
    if workload.model.num_experts:
        lines.append("tokens are spread evenly over the experts")
        lines.append(f"each expert's matrices are split over {layout.expert_tensor} rank(s)")
    if workload.model.num_nextn_predict_layers:
        lines.append("multi-token-prediction depths are trained and counted in FLOP, on the last stage")
    if layout.schedule == "dualpipe" and layout.pipeline > 1:
        lines.append("each rank holds two copies of its stage's weights (DualPipe)")
    lines.extend((*_measured(resolved), *_documents(resolved), *_method(resolved)))
    lines.extend(run_assumptions(resolved))
    return tuple(lines)


def _measured(resolved: ResolvedQuestion) -> list[str]:
    steps = resolved.question.cluster.measured_steps
    if not steps:
        return []
    return [f"steps take {own_scale(steps):.3g} times as long as formulas say, by {len(steps)} measured step(s)"]


def _documents(resolved: ResolvedQuestion) -> list[str]:
    recipe = resolved.question.recipe
    lines = []
    if recipe.document_lengths and recipe.batching == "packed":
        lines.append("documents are packed to the end of every sequence, and split only where they are longer than one")
    if recipe.document_lengths and recipe.batching == "padded":
        lines.append("each document, split where it is longer, has a sequence of its own; kernels compute its padding")
    if recipe.document_lengths and resolved.question.layout.context > 1:
        lines.append("context ranks share the attention of all documents evenly")
    return lines


def _method(resolved: ResolvedQuestion) -> list[str]:
    method = resolved.workload.method
    lines = (
        [] if trains_everything(method) else ["frozen weights are kept in the compute format, without a master copy"]
    )
    if method.name != "full":
        lines.append(f"adapters of rank {method.rank} beside {', '.join(method.targets)}, without dropout")
    return lines


def warnings_of(resolved: ResolvedQuestion, active: int) -> tuple[str, ...]:
    """What the asker of a whole estimate should look at."""
    return (*_missing(resolved), *_tokens(resolved, active), *warnings_of_memory(resolved))


def warnings_of_memory(resolved: ResolvedQuestion) -> tuple[str, ...]:
    """What the asker should look at, whatever the run is to cost."""
    return (
        *_length(resolved),
        *_padding(resolved),
        *_batch(resolved),
        *_layout(resolved),
    )


def _missing(resolved: ResolvedQuestion) -> list[str]:
    lines = []
    if resolved.question.recipe.training_tokens is None:
        lines.append(NO_TOTALS)
    if resolved.question.price is None:
        lines.append(NO_COST)
    return lines + run_warnings(resolved)


def _padding(resolved: ResolvedQuestion) -> list[str]:
    share = padding_fraction(resolved.question.recipe)
    if share < NOTICEABLE_PADDING_FRACTION:
        return []
    return [f"{100 * share:.0f} % of the computed tokens are padding: batching packed would train on all of them"]


def _length(resolved: ResolvedQuestion) -> list[str]:
    recipe, limit = resolved.question.recipe, resolved.question.model.max_position_embeddings
    length = max(recipe.sequence_length, *(stage.sequence_length for stage in recipe.stages), 0)
    if limit is None or length <= limit:
        return []
    return [f"sequence_length {length} exceeds the {limit} tokens the model was built for"]


def _tokens(resolved: ResolvedQuestion, active: int) -> list[str]:
    recipe = resolved.question.recipe
    lines: list[str] = []
    if recipe.training_tokens is None or resolved.workload.method.name != "full":
        return lines
    optimal = TOKENS_FOR_EACH_PARAMETER * active
    if recipe.training_tokens < LEAST_TRAINING_TOKENS:
        least = LEAST_TRAINING_TOKENS / 1e9
        lines.append(f"fewer than {least:.0f} billion training tokens are not recommended for a language model")
    if recipe.training_tokens < optimal:
        lines.append(f"fewer than the compute-optimal {optimal:.3g} tokens (20 for each of {active:.4g} parameters)")
    return lines


def _batch(resolved: ResolvedQuestion) -> list[str]:
    tokens, question = resolved.question.recipe.global_batch_tokens, resolved.question.recipe.training_tokens
    low, high = SENSIBLE_BATCH_TOKENS
    if question is None or low <= tokens <= high or resolved.workload.method.name != "full":
        return []
    return [f"a batch of {tokens:.3g} tokens is outside the 4 to 60 million of recent large runs"]


def _layout(resolved: ResolvedQuestion) -> list[str]:
    layout, domain = resolved.question.layout, resolved.question.cluster.scale_up_gpus
    lines = []
    if layout.tensor > domain:
        lines.append(f"tensor degree {layout.tensor} leaves the fast link's {domain} GPUs: expect slow exchanges")
    every = (resolved, *(first for first, *_ in resolved.run_stages))
    fewest = min(float(one.degrees.accumulation) for one in every)
    if layout.pipeline > fewest:
        lines.append(f"a step of {fewest:.0f} micro-batch(es) cannot fill {layout.pipeline} stages")
    return lines
