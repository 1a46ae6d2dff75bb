"""Assumptions and warnings of an answer, and single changes that would make a job fit, with what they save and cost."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from service.errors import Refused
from service.estimator.answer import Change, Memory, Totals, Verdict
from service.estimator.complete import CompleteOwnedPrice
from service.estimator.constants import CHECKPOINT_SECONDS, calibration_of, own_scale
from service.estimator.memory.device import verdict_of
from service.estimator.model.build import MIXERS
from service.estimator.model.ledger import padding_fraction
from service.estimator.model.training import trains_everything
from service.estimator.question import OffloadName, OwnedPrice, Price, Question, Software
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.run.run import loads_of, peak_stage_of
from service.estimator.run.stages import LoadedStage, slowest_step, stages_of, total_seconds
from service.estimator.run.totals import checkpointing_of, interruption_inputs, spares_of
from service.estimator.software.implementations import CROSS_ENTROPIES
from service.estimator.time.matrix_products import UNMEASURED_RATES, generation_rates
from service.units import BYTES, in_units

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


MOST_DOUBLINGS = 5
"""How often a degree is doubled. Source: a choice; 32 times as much is another job."""

OFFLOADS: dict[OffloadName, tuple[OffloadName, ...]] = {
    "none": ("optimizer", "activations", "optimizer-and-activations", "model"),
    "optimizer": ("optimizer-and-activations", "model"),
    "activations": ("optimizer-and-activations", "model"),
    "optimizer-and-activations": ("model",),
    "model": (),
}
"""What can be offloaded beyond what is."""

OF_ACTIVATIONS = ("activations", "logits", "recomputed_activations", "layer_buffers")
"""Lines that hold activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateChange:
    """One changed question."""

    field: str
    """Field that changes."""
    value: str
    """Its new value."""
    also: tuple[str, ...] = ()
    """Fields that have to change with it."""
    question: Question
    """The question as it was asked but for them."""


Ladder: TypeAlias = Iterable[CandidateChange]
"""Values of one field."""


def single_changes(question: Question, resolved: ResolvedQuestion, biggest: str, factor: float) -> Iterator[Ladder]:
    """The ladders of a question, those first that make its largest line smaller."""
    axes = [_splits(question, resolved, axis, factor) for axis in ("expert", "tensor", "context", "pipeline")]
    of_states = [_zero_stages(question, resolved), _offloads(question), _narrower_moments(question, resolved)]
    of_activations = [
        _recompute(question, resolved),
        _micro_batches(question),
        _kernels(question),
        _losses(question, resolved),
    ]
    moving = biggest in OF_ACTIVATIONS
    yield from (*of_activations, *axes, *of_states) if moving else (*of_states, *axes, *of_activations)


def last_resorts(question: Question, factor: float) -> Iterator[Ladder]:
    """More GPUs, and methods that train less: what is left where no other field is enough."""
    yield _more_gpus(question, factor)
    if question.recipe.method == "full":
        yield [_of_recipe(question, "method", name) for name in ("lora", "qlora")]


def _of_recipe(question: Question, name: str, value: Any) -> CandidateChange:
    recipe = replace(question.recipe, **{name: value})
    return CandidateChange(field=f"recipe.{name}", value=str(value), question=replace(question, recipe=recipe))


def _of_layout(question: Question, name: str, value: Any, data: int | None) -> CandidateChange:
    """One field of the layout changed, and the replicas where the question names them."""
    also = () if data == question.layout.data else (f"layout.data={data}",)
    layout = replace(question.layout, **{name: value, "data": data})
    return CandidateChange(
        field=f"layout.{name}", value=str(value), also=also, question=replace(question, layout=layout)
    )


def _recompute(question: Question, resolved: ResolvedQuestion) -> Ladder:
    own = resolved.workload.recompute
    more = ("selective", "full") if own.granularity == "none" else ("full",)
    is_all = own.granularity == "full" and own.method != "block"
    return [] if is_all else [_of_recipe(question, "recompute", choice) for choice in more]


def _micro_batches(question: Question) -> Ladder:
    half = question.recipe.micro_batch // 2
    while half:
        yield _of_recipe(question, "micro_batch", half)
        half //= 2


def _kernels(question: Question) -> Ladder:
    return [_of_recipe(question, "attention", "flash")] if question.recipe.attention == "eager" else []


def _losses(question: Question, resolved: ResolvedQuestion) -> Ladder:
    """The cross entropy that holds least of those that the software has."""
    workload = resolved.workload
    element = workload.precision.element_bytes
    least = min(workload.implementation.cross_entropies, key=lambda name: CROSS_ENTROPIES[name].logit_bytes(element))
    if CROSS_ENTROPIES[least].logit_bytes(element) >= workload.cross_entropy.logit_bytes(element):
        return []
    given = question.recipe.stack
    software = given if isinstance(given, Software) else Software(name=workload.software.name)
    recipe = replace(question.recipe, stack=replace(software, cross_entropy=least))
    return [CandidateChange(field="recipe.stack.cross_entropy", value=least, question=replace(question, recipe=recipe))]


def _multiples(factor: float) -> list[int]:
    """By how much to multiply a degree: from where on it may be enough, for k-fold degrees save at most k-fold bytes.

    >>> _multiples(3.5), _multiples(100.0)
    ([4, 8, 16, 32, 2], [32, 16, 8, 4, 2])
    """
    every = [2**power for power in range(1, MOST_DOUBLINGS + 1)]
    enough = [times for times in every if times >= factor] or every[-1:]
    return [*enough, *(times for times in reversed(every) if times < enough[0])]


def _splits(question: Question, resolved: ResolvedQuestion, axis: str, factor: float) -> Ladder:
    """Multiples of one axis with as many fewer replicas, which experts alone share."""
    if axis == "expert" and not resolved.workload.model.num_experts:
        return
    degree, data = getattr(question.layout, axis), question.layout.data
    for times in _multiples(factor):
        if axis == "expert" or data is None:
            yield _of_layout(question, axis, degree * times, data)
        elif data % times == 0:
            yield _of_layout(question, axis, degree * times, data // times)


def _zero_stages(question: Question, resolved: ResolvedQuestion) -> Ladder:
    now = resolved.question.layout.zero_stage
    more = [stage for stage in sorted(resolved.workload.stack.zero_stages) if stage > now]
    return [_of_layout(question, "zero_stage", stage, question.layout.data) for stage in more]


def _offloads(question: Question) -> Ladder:
    return [_of_layout(question, "offload", more, question.layout.data) for more in OFFLOADS[question.layout.offload]]


def _narrower_moments(question: Question, resolved: ResolvedQuestion) -> Ladder:
    recipe = question.recipe
    if recipe.optimizer != "adamw" or recipe.moment_dtype is not None:
        return []
    if "bf16" in resolved.workload.stack.moment_dtypes:
        return [_of_recipe(question, "moment_dtype", "bf16")]
    return [_of_recipe(question, "optimizer", "adamw-8bit")]


def _more_gpus(question: Question, factor: float) -> Ladder:
    for times in _multiples(factor):
        gpus, data = question.cluster.gpus * times, question.layout.data and question.layout.data * times
        also = () if data is None else (f"layout.data={data}",)
        changed = replace(
            question, cluster=replace(question.cluster, gpus=gpus), layout=replace(question.layout, data=data)
        )
        yield CandidateChange(field="cluster.gpus", value=str(gpus), also=also, question=changed)


MOST_TRIES = 16
"""Changed questions that an answer tries. Source: a choice; more would cost an answer its speed."""

MOST_LAST_TRIES = 4
"""The same for last resorts. Source: a choice."""

MOST_CHANGES = 8
"""Changes that an answer names. Source: a choice; more are not read."""

VERDICTS: tuple[Verdict, ...] = ("fits", "at_risk", "out_of_memory")
"""In the order in which changes are told."""

LEAST_SAVING = 0.01
"""Share of the device peak that a change must save to be worth a line. Source: a choice; less is within the spread."""


@dataclass(slots=True)
class ChangeResult:
    """One question, its fullest GPU and what is needed to tell its step."""

    resolved: ResolvedQuestion
    stages: list[LoadedStage]
    memory: Memory
    """What they hold."""

    @property
    def device_bytes(self) -> float:
        """Device peak of the fullest GPU [byte]."""
        return self.memory.device_peak_bytes.value

    @property
    def verdict(self) -> Verdict:
        """Whether it fits."""
        return verdict_of(self.memory.oom_probability_fraction)

    @property
    def token_seconds(self) -> float:
        """Seconds of one step over its tokens: a batch that is left to its default follows the layout."""
        recipe = self.resolved.workload.recipe
        seconds = total_seconds(slowest_step(self.resolved, self.stages))
        return seconds / (recipe.global_batch * recipe.sequence_length)


@dataclass(slots=True)
class LadderSearch:
    """A ladder on the way up."""

    left: Iterator[CandidateChange]
    """Values that are not tried yet."""
    tried: list[tuple[CandidateChange, ChangeResult]] = field(default_factory=list)
    """Those that broke no rule."""
    is_enough: bool = False
    """Whether the last one made the job fit."""
    goes_on: bool = True
    """Whether a next value may be better."""

    def step(self) -> None:
        """Try the next value that breaks no rule."""
        for change in self.left:
            try:
                result = _result_of(change.question)
            except Refused:
                continue
            is_better = all(result.device_bytes < other.device_bytes for _, other in self.tried)
            self.tried.append((change, result))
            self.is_enough = result.verdict == "fits"
            self.goes_on = is_better and not self.is_enough
            return
        self.goes_on = False


def _always() -> bool:
    return True


def advised(memory: Memory, question: Question, goes_on: Callable[[], bool] = _always) -> Memory:
    """The memory part of an answer with what to change where it does not surely fit."""
    if verdict_of(memory.oom_probability_fraction) == "fits":
        return memory
    changes = ranked_changes(question, memory.biggest_line, goes_on)
    return replace(memory, changes=changes, suggestions=tuple(map(describe_change, changes)))


def ranked_changes(question: Question, biggest: str, goes_on: Callable[[], bool] = _always) -> tuple[Change, ...]:
    """Single changes that save memory, those first that make the job fit, and among them the cheapest in time.

    Of each field the first value that is enough is told, or else the one that saves most. More GPUs and methods that
    train less are tried where nothing else is enough.
    """
    before = _result_of(question)
    factor, seconds = before.device_bytes / before.memory.usable_bytes, before.token_seconds
    searches = _search_ladders(single_changes(question, before.resolved, biggest, factor), MOST_TRIES, goes_on)
    if not any(search.is_enough for search in searches):
        searches += _search_ladders(last_resorts(question, factor), MOST_LAST_TRIES, goes_on)
    results = [change for search in searches for change in _best_change(search, before.device_bytes, seconds)]
    return tuple(sorted(results, key=lambda change: (VERDICTS.index(change.verdict), _cost(change)))[:MOST_CHANGES])


def _search_ladders(ladders: Iterable[Ladder], most: int, goes_on: Callable[[], bool]) -> list[LadderSearch]:
    """The values of each ladder that break no rule, up to the first that is enough, a value of each ladder in turn."""
    searches = [LadderSearch(iter(ladder)) for ladder in ladders]
    going = searches
    while going and most > 0:
        for search in going[:most]:
            if not goes_on():
                return searches
            search.step()
        most -= len(going)
        going = [search for search in going if search.goes_on]
    return searches


def _best_change(search: LadderSearch, before_bytes: float, before_seconds: float) -> Iterator[Change]:
    """The change that a ladder comes to: the first value that is enough, or else the one that saves most."""
    worthwhile = [
        (change, result)
        for change, result in search.tried
        if before_bytes - result.device_bytes > LEAST_SAVING * before_bytes
    ]
    if not worthwhile:
        return
    change, result = min(worthwhile, key=lambda one: one[1].device_bytes)
    yield Change(
        field=change.field,
        value=change.value,
        also=change.also,
        saves_bytes=before_bytes - result.device_bytes,
        device_peak_bytes=result.device_bytes,
        verdict=result.verdict,
        slower_fraction=result.token_seconds / before_seconds - 1,
    )


def _cost(change: Change) -> float:
    """What ranks a change: time lost where it fits, memory still missing where it does not."""
    return change.slower_fraction if change.verdict == "fits" else change.device_peak_bytes


def _result_of(question: Question) -> ChangeResult:
    result = resolve(question)
    stages = stages_of(result)
    return ChangeResult(result, stages, peak_stage_of(result, stages, loads_of(result, stages)).memory)


def describe_change(change: Change) -> str:
    """A change as a person reads it.

    >>> wider = Change(
    ...     field="layout.tensor", value="4", also=("layout.data=2",), saves_bytes=2.0**30, device_peak_bytes=1.0,
    ...     verdict="fits", slower_fraction=0.3,
    ... )

    >>> describe_change(wider)
    'tensor 4 with data 2: saves 1 GiB, 30 % slower, fits'
    """
    percent = round(100 * change.slower_fraction)
    pace = "as fast" if percent == 0 else f"{abs(percent)} % {'slower' if percent > 0 else 'faster'}"
    enough = {"fits": "fits", "at_risk": "then at risk", "out_of_memory": "not enough alone"}[change.verdict]
    beside = "".join(f" with {one.partition('.')[2].replace('=', ' ')}" for one in change.also)
    setting = f"{change.field.partition('.')[2]} {change.value}{beside}"
    return f"{setting}: saves {in_units(change.saves_bytes, BYTES)}, {pace}, {enough}"
