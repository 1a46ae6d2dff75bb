"""Assumptions and warnings of an answer, and single changes that would make a job fit, with what they save and cost."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeAlias

from service.errors import Refused
from service.estimator.answer import Change, Memory, Totals, Verdict
from service.estimator.complete import CompleteOwnedPrice
from service.estimator.constants import CHECKPOINT_SECONDS, calibration_of, own_scale
from service.estimator.memory.device import verdict_of
from service.estimator.model.build import MIXERS, trains_everything
from service.estimator.model.counts import parameter_counts
from service.estimator.model.ledger import padding_fraction
from service.estimator.parallelism.buckets import gathers_beside, reduce_bucket_numbers, reduces_beside
from service.estimator.question import OffloadName, OwnedPrice, Price, Question, Recompute, Software
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.run.run import LoadedStage, loads_of, peak_stage_of, slowest_step, stages_of, total_seconds
from service.estimator.run.totals import checkpointing_of, interruption_inputs, spares_of
from service.estimator.software.precision import SHORT_NAMES
from service.estimator.software.stacks import CROSS_ENTROPIES, DEFAULT_STACKS
from service.estimator.time.rates import UNMEASURED_RATES, generation_rates
from service.estimator.time.step import RESIDUALS
from service.estimator.workload import Workload
from service.units import BYTES, in_units

LEAST_GOODPUT_FRACTION = 0.5
"""Goodput below which the waste is too large for formulas of first order. Source: an assumption; a round figure."""

SENSIBLE_BATCH_TOKENS = (4e6, 64e6)
"""Tokens in one step of recent large runs; DeepSeek-V3's 62.9 million are the "60 million" of the source.
Source: Ultrascale Playbook, batch size."""

LEAST_TRAINING_TOKENS = 200e9
"""Fewest recommended tokens for a language model. Source: lecture notes, memory and compute requirements."""

NOTICEABLE_PADDING_FRACTION = 0.05
"""Smallest share of padding that is worth a warning. Source: an assumption; a round figure."""

TOKENS_FOR_EACH_PARAMETER = 20
"""Compute-optimal training tokens for each parameter. Source: Hoffmann et al. 2022, arXiv:2203.15556."""

NO_TOTALS = "totals is null: give recipe.training_tokens"
NO_COST = "cost_usd is null: give price.usd_per_gpu_hour"
NO_ELECTRICITY = "cost_usd holds no electricity: give price.usd_per_kwh"
"""Warnings about totals; a memory answer has none of them."""


_SHORT_NAME = "precision {given} is {meant}, with an fp32 master copy; {given}-pure keeps none"


def assumptions_of(question: Question, resolved: ResolvedQuestion) -> tuple[str, ...]:
    """What the estimate of a question assumes."""
    given = question.recipe.precision
    run = (*_interruptions(resolved), *_power(resolved), *_price(resolved))
    return (
        *((_SHORT_NAME.format(given=given, meant=SHORT_NAMES[given]),) if given in SHORT_NAMES else ()),
        *(_stack(resolved) if question.recipe.stack is None else ()),
        *_depths(resolved),
        *_configuration(resolved),
        *_exchange(resolved),
        *_documents(resolved),
        *_method(resolved),
        *(run if resolved.question.recipe.training_tokens is not None else ()),
    )


def _stack(resolved: ResolvedQuestion) -> Iterator[str]:
    """The stack in place of one that is not named, unless it is the first."""
    name = resolved.workload.software.name
    if unable := DEFAULT_STACKS[: DEFAULT_STACKS.index(name)]:
        yield f"recipe.stack is {name}: {' or '.join(unable)} would not run this recipe in this layout"


_UNPUBLISHED = "{choice} is known from its paper alone: no published software trains so"


def _unpublished(workload: Workload) -> Iterator[str]:
    """Choices of software that was never published."""
    if workload.precision.is_unpublished:
        yield _UNPUBLISHED.format(choice=f"precision {workload.recipe.precision}")
    if workload.software.grouped_reductions:
        yield _UNPUBLISHED.format(choice="recipe.stack.grouped_reductions")


def _depths(resolved: ResolvedQuestion) -> Iterator[str]:
    """Multi-token-prediction depths that the stack drops."""
    model = resolved.question.model
    if dropped := model.num_nextn_predict_layers - resolved.workload.model.num_nextn_predict_layers:
        who = "a scalar head" if model.scalar_head else resolved.workload.software.name
        yield f"{who} has no multi-token prediction: the weights of {dropped} depth(s) are dropped when it loads them"


def _configuration(resolved: ResolvedQuestion) -> Iterator[str]:
    workload, layout, steps = resolved.workload, resolved.question.layout, resolved.question.cluster.measured_steps
    yield f"software as {workload.stack.meaning}"
    yield from _unpublished(workload)
    yield "every rank has the same load; ranks are numbered tensor, context, data, pipeline"
    if generation_rates(workload.gpu) is UNMEASURED_RATES:
        yield f"no measurement of {workload.gpu.architecture} matrix products: the median of other generations is used"
    calibration = calibration_of(workload.gpu)
    if calibration is not None:
        yield f"what was measured on this device stands in the place of published rates: {calibration.id}"
    if workload.recipe.attention == "flash" and workload.kernel == "eager":
        yield f"no fused attention of {workload.software.name} runs on {workload.gpu.architecture}: scores are kept"
    if any(MIXERS[shape.mixer].carries_state for shape in workload.ledger.shapes):
        yield "layers that carry a state run in fused kernels, which keep their inputs and results alone"
    if workload.model.zero_expert_num:
        yield "experts that do nothing are chosen as often as the others"
    if workload.model.num_experts:
        yield "tokens are spread evenly over the experts"
        yield f"each expert's matrices are split over {layout.expert_tensor} rank(s)"
        yield from _dispatch(workload)
    if workload.model.num_nextn_predict_layers:
        yield "multi-token-prediction depths are trained and counted in FLOP, on the last stage"
    if layout.schedule == "dualpipe" and layout.pipeline > 1:
        yield "each rank holds two copies of its stage's weights (DualPipe)"
    if steps:
        yield f"steps take {own_scale(steps):.3g} times as long as formulas say, by {len(steps)} measured step(s)"


def _dispatch(workload: Workload) -> Iterator[str]:
    """How tokens reach their experts where the recipe leaves it open, and what stating it would gain."""
    if workload.requested.dispatcher is None:
        narrower = 1 - RESIDUALS["MoE"] / RESIDUALS["MoE, dispatcher unknown"]
        yield (
            "tokens reach their experts by all-to-all: with recipe.stack.dispatcher, expert_overlap and cuda_graphs "
            f"stated, a step's interval would be {narrower:.0%} narrower"
        )


def _exchange(resolved: ResolvedQuestion) -> Iterator[str]:
    """How replicas exchange gradients and weights, as the stack does or the recipe says."""
    workload, degrees = resolved.workload, resolved.degrees
    if degrees.data * degrees.context == 1:
        return
    places = {True: "beside compute", False: "while compute waits"}
    reduced = f"gradients are reduced {places[bool(reduces_beside(workload, degrees))]}"
    last, numbers = workload.stack.bucket_stage, float(reduce_bucket_numbers(workload, degrees, is_first=True))
    if last is not None and degrees.zero_stage <= last and numbers < inf:
        reduced += f" in buckets of {numbers:,.0f}"
    if degrees.zero_stage > 0:
        reduced += f", and weights gathered {places[bool(gathers_beside(workload, degrees))]}"
    yield reduced


def _documents(resolved: ResolvedQuestion) -> Iterator[str]:
    recipe = resolved.question.recipe
    if not recipe.document_lengths:
        return
    if recipe.batching == "packed":
        yield "documents are packed to the end of every sequence, and split only where they are longer than one"
    if recipe.batching == "padded":
        yield "each document, split where it is longer, has a sequence of its own; kernels compute its padding"
    if resolved.question.layout.context > 1:
        yield "context ranks share the attention of all documents evenly"


def _method(resolved: ResolvedQuestion) -> Iterator[str]:
    method = resolved.workload.method
    if not trains_everything(method):
        yield "frozen weights are kept in the compute format, without a master copy"
    if method.name != "full":
        dropout = f"with a dropout of {method.dropout_fraction:g}" if method.dropout_fraction else "without dropout"
        yield f"adapters of rank {method.rank} beside {', '.join(method.targets)}, {dropout}"


def _interruptions(resolved: ResolvedQuestion) -> Iterator[str]:
    cluster, given = resolved.question.cluster, checkpointing_of(resolved.workload)
    once, restart = 1 / cluster.failures_per_gpu_hour, cluster.restart_seconds
    is_usual = given.stall_seconds is None and given.write_bytes_per_s is None
    checkpoint = f", {CHECKPOINT_SECONDS:.0f} seconds for a checkpoint" if is_usual else ""
    yield f"one interruption for {once:,.0f} GPU-hours, {restart / 60:.3g} minutes to restart{checkpoint}"
    rates, spares = interruption_inputs(resolved.question), spares_of(cluster)
    if preempted := rates["preemptions_per_instance_hour"]:
        yield (
            f"each of {rates['instances']} machine(s) is taken back {preempted:.3g} times an hour, which differs "
            "widely between spot markets, and another one is there at once"
        )
    if spares:
        yield f"{spares} spare GPUs wait, are paid for, and are counted in billed_gpu_hours, cost and energy"


def _power(resolved: ResolvedQuestion) -> Iterator[str]:
    cluster = resolved.question.cluster
    busy, idle = cluster.busy_power_fraction, cluster.idle_power_fraction
    yield (
        f"nodes at work draw {busy:.3g} and waiting ones {idle:.3g} of their rated power, hosts and network are rated "
        f"at {cluster.host_power_fraction:.3g} of the GPU boards, and pue is {cluster.pue:.3g}"
    )
    if cluster.grid_kg_co2e_per_kwh is None:
        yield "carbon is not estimated: neither cluster.grid_region nor cluster.grid_kg_co2e_per_kwh is given"


def _price(resolved: ResolvedQuestion) -> Iterator[str]:
    price = resolved.question.price
    if isinstance(price, CompleteOwnedPrice):
        yield (
            f"own hardware of {price.purchase_usd:,.0f} USD a GPU is written off over "
            f"{price.amortisation_years:g} years in which it works {price.utilisation_fraction:.0%} of the time"
        )
    if isinstance(price, Price) and price.discount_fraction:
        yield f"the price of a GPU-hour is reduced by {price.discount_fraction:.3%}"


def warnings_of(resolved: ResolvedQuestion, active: int) -> tuple[str, ...]:
    """Warnings about a whole estimate."""
    return (*_missing(resolved), *_tokens(resolved, active), *warnings_of_memory(resolved))


def _missing(resolved: ResolvedQuestion) -> Iterator[str]:
    tokens, price = resolved.question.recipe.training_tokens, resolved.question.price
    if tokens is None:
        yield NO_TOTALS
    if price is None:
        yield NO_COST
    if tokens is not None and isinstance(price, OwnedPrice) and price.usd_per_kwh is None:
        yield NO_ELECTRICITY


def _tokens(resolved: ResolvedQuestion, active: int) -> Iterator[str]:
    tokens = resolved.question.recipe.training_tokens
    if tokens is None or resolved.workload.method.name != "full":
        return
    optimal = TOKENS_FOR_EACH_PARAMETER * active
    if tokens < LEAST_TRAINING_TOKENS:
        least = LEAST_TRAINING_TOKENS / 1e9
        yield f"fewer than {least:.0f} billion training tokens are not recommended for a language model"
    if tokens < optimal:
        yield f"fewer than the compute-optimal {optimal:.3g} tokens (20 for each of {active:.4g} parameters)"


def warnings_of_memory(resolved: ResolvedQuestion) -> tuple[str, ...]:
    """Warnings about memory, sequences and layout."""
    return (*_sequence_warnings(resolved), *_layout_warnings(resolved))


def _sequence_warnings(resolved: ResolvedQuestion) -> Iterator[str]:
    recipe, limit = resolved.question.recipe, resolved.question.model.max_position_embeddings
    length = max(recipe.sequence_length, *(stage.sequence_length for stage in recipe.stages), 0)
    if limit is not None and length > limit:
        yield f"sequence_length {length} exceeds the {limit} tokens the model was built for"
    share = padding_fraction(recipe)
    if share >= NOTICEABLE_PADDING_FRACTION:
        yield f"{100 * share:.0f} % of the computed tokens are padding: batching packed would train on all of them"
    low, high = SENSIBLE_BATCH_TOKENS
    is_full_run = recipe.training_tokens is not None and resolved.workload.method.name == "full"
    if is_full_run and not low <= recipe.global_batch_tokens <= high:
        yield (
            f"a batch of {recipe.global_batch_tokens:.3g} tokens is outside the 4 to 60 million of recent large runs"
        )


def _layout_warnings(resolved: ResolvedQuestion) -> Iterator[str]:
    layout, domain = resolved.question.layout, resolved.question.cluster.scale_up_gpus
    if layout.tensor > domain:
        yield f"tensor degree {layout.tensor} leaves the fast link's {domain} GPUs: expect slow exchanges"
    fewest = min(float(one.degrees.accumulation) for one in (resolved, *(first for first, *_ in resolved.run_stages)))
    if layout.pipeline > fewest:
        yield f"a step of {fewest:.0f} micro-batch(es) cannot fill {layout.pipeline} stages"


def lost_time_warnings(resolved: ResolvedQuestion, totals: Totals | None) -> Iterator[str]:
    """Warnings about the time that interruptions and checkpoints take."""
    if totals is None:
        return
    given, taken = checkpointing_of(resolved.workload).interval_seconds, totals.goodput.checkpoint_interval_seconds
    if given is not None and taken > given:
        yield (
            f"checkpoints are taken every {taken:.3g} seconds, not every {given:g}: a step, "
            "or writing the one before, takes that long"
        )
    if totals.goodput_fraction < LEAST_GOODPUT_FRACTION:
        yield (
            f"interruptions and checkpoints take more time than training (goodput {totals.goodput_fraction:.2f}), and "
            "more than these first-order formulas say: restart sooner, write checkpoints faster, or use fewer GPUs"
        )


MOST_DOUBLINGS = 5
"""How often a degree is doubled. Source: a choice; 32 times as much is another job."""

OFFLOADS: dict[OffloadName, tuple[OffloadName, ...]] = {
    "none": ("optimizer", "activations", "optimizer-and-activations", "model"),
    "moments": ("optimizer", "optimizer-and-activations", "model"),
    "optimizer": ("optimizer-and-activations", "model"),
    "activations": ("optimizer-and-activations", "model"),
    "optimizer-and-activations": ("model",),
    "model": (),
}

ACTIVATION_LINES = ("activations", "logits", "recomputed_activations", "layer_buffers")
"""Memory lines of activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateChange:
    """One change of a question."""

    field: str
    value: str
    also: tuple[str, ...] = ()
    question: Question
    """The question with `field` and `also` changed."""


Ladder: TypeAlias = Iterable[CandidateChange]
"""Values of one field."""


def candidate_ladders(question: Question, resolved: ResolvedQuestion, biggest: str, factor: float) -> Iterator[Ladder]:
    """The ladders of a question, first those that make its largest memory line smaller."""
    stack, recipe, zero_stage = resolved.workload.stack, question.recipe, resolved.question.layout.zero_stage
    axes = [_splits(question, resolved, axis, factor) for axis in ("expert", "tensor", "context", "pipeline")]
    of_states = [
        _layout_changes(question, "zero_stage", [stage for stage in sorted(stack.zero_stages) if stage > zero_stage]),
        _layout_changes(question, "offload", OFFLOADS[question.layout.offload]),
        _narrower_moments(question, resolved),
    ]
    halves = [recipe.micro_batch >> times for times in range(1, recipe.micro_batch.bit_length())]
    of_activations = [
        _recipe_changes(question, "recompute", _more_recompute(resolved.workload.recompute)),
        _recipe_changes(question, "micro_batch", halves),
        _recipe_changes(question, "attention", ("flash",) if recipe.attention == "eager" else ()),
        _losses(question, resolved),
    ]
    first, last = (of_activations, of_states) if biggest in ACTIVATION_LINES else (of_states, of_activations)
    yield from (*first, *axes, *last)


def last_ladders(question: Question, resolved: ResolvedQuestion, factor: float) -> Iterator[Ladder]:
    """Changes to try if no other field is enough: more GPUs, and for fine-tuning methods that train less."""
    yield _more_gpus(question, factor)
    if question.recipe.method == "full" and not _is_pretraining(question, resolved):
        yield _recipe_changes(question, "method", ("lora", "qlora"))


def _is_pretraining(question: Question, resolved: ResolvedQuestion) -> bool:
    """Whether adapters are no choice: the named software trains from the start, or there are too many tokens."""
    workload, tokens = resolved.workload, question.recipe.training_tokens
    if question.recipe.stack is not None and not workload.stack.quantizes:
        return True
    return tokens is not None and tokens > parameter_counts(workload.model, workload.ledger).total


def _recipe_changes(question: Question, name: str, values: Iterable[Any]) -> Ladder:
    for value in values:
        recipe = replace(question.recipe, **{name: value})
        yield CandidateChange(field=f"recipe.{name}", value=str(value), question=replace(question, recipe=recipe))


def _layout_changes(question: Question, name: str, values: Iterable[Any]) -> Ladder:
    return (_layout_change(question, name, value, question.layout.data) for value in values)


def _layout_change(question: Question, name: str, value: Any, data: int | None) -> CandidateChange:
    """A change of one field of the layout, and of `data` if the question gives it."""
    also = () if data == question.layout.data else (f"layout.data={data}",)
    layout = replace(question.layout, **{name: value, "data": data})
    return CandidateChange(
        field=f"layout.{name}", value=str(value), also=also, question=replace(question, layout=layout)
    )


def _more_recompute(rule: Recompute) -> tuple[str, ...]:
    if rule.granularity == "none":
        return ("selective", "full")
    return () if rule.granularity == "full" and rule.method != "block" else ("full",)


def _losses(question: Question, resolved: ResolvedQuestion) -> Ladder:
    """The cross entropy of the software that saves the fewest bytes."""
    workload, given = resolved.workload, question.recipe.stack
    element, model = workload.precision.element_bytes, workload.model
    least = min(
        workload.implementation.cross_entropies, key=lambda name: CROSS_ENTROPIES[name].logit_bytes(element, model)
    )
    if CROSS_ENTROPIES[least].logit_bytes(element, model) < workload.cross_entropy.logit_bytes(element, model):
        software = given if isinstance(given, Software) else Software(name=workload.software.name)
        recipe = replace(question.recipe, stack=replace(software, cross_entropy=least))
        changed = replace(question, recipe=recipe)
        yield CandidateChange(field="recipe.stack.cross_entropy", value=least, question=changed)


def _multiples(factor: float) -> list[int]:
    """Factors to try on a degree, first those that may be enough: a k-fold degree saves at most k-fold bytes.

    >>> _multiples(3.5), _multiples(100.0)
    ([4, 8, 16, 32, 2], [32, 16, 8, 4, 2])
    """
    every = [2**power for power in range(1, MOST_DOUBLINGS + 1)]
    enough = [times for times in every if times >= factor] or every[-1:]
    return [*enough, *(times for times in reversed(every) if times < enough[0])]


def _splits(question: Question, resolved: ResolvedQuestion, axis: str, factor: float) -> Ladder:
    """Multiples of one degree with as many fewer replicas; expert parallelism keeps the replicas."""
    if axis == "expert" and not resolved.workload.model.num_experts:
        return
    degree, data = getattr(question.layout, axis), question.layout.data
    for times in _multiples(factor):
        if axis == "expert" or data is None:
            yield _layout_change(question, axis, degree * times, data)
        elif data % times == 0:
            yield _layout_change(question, axis, degree * times, data // times)


def _narrower_moments(question: Question, resolved: ResolvedQuestion) -> Ladder:
    if question.recipe.optimizer != "adamw" or question.recipe.moment_dtype is not None:
        return ()
    if "bf16" in resolved.workload.stack.moment_dtypes:
        return _recipe_changes(question, "moment_dtype", ("bf16",))
    return _recipe_changes(question, "optimizer", ("adamw-8bit",))


def _more_gpus(question: Question, factor: float) -> Ladder:
    for times in _multiples(factor):
        gpus, data = question.cluster.gpus * times, question.layout.data and question.layout.data * times
        changed = replace(
            question, cluster=replace(question.cluster, gpus=gpus), layout=replace(question.layout, data=data)
        )
        also = () if data is None else (f"layout.data={data}",)
        yield CandidateChange(field="cluster.gpus", value=str(gpus), also=also, question=changed)


MOST_TRIALS = 16
"""Changed questions that an answer tries. Source: a choice; more would cost an answer its speed."""

MOST_LAST_TRIALS = 4
"""The same for last resorts. Source: a choice."""

MOST_CHANGES = 8
"""Changes that an answer names. Source: a choice; more are not read."""

VERDICTS: tuple[Verdict, ...] = ("fits", "at_risk", "out_of_memory")
"""Verdicts in the order in which changes are ranked."""

LEAST_SAVING = 0.01
"""Share of the device peak that a change must save to be worth a line. Source: a choice; less is within the spread."""


@dataclass(slots=True)
class ChangeResult:
    """One question with its stages and the memory of its peak stage."""

    resolved: ResolvedQuestion
    stages: list[LoadedStage]
    memory: Memory
    """Memory of the peak stage."""

    @property
    def device_bytes(self) -> float:
        """Device peak of the GPU with the highest peak [byte]."""
        return self.memory.device_peak_bytes.value

    @property
    def verdict(self) -> Verdict:
        """Whether it fits."""
        return verdict_of(self.memory.oom_probability_fraction)

    @property
    def token_seconds(self) -> float:
        """Seconds of one step over its tokens, because the default batch depends on the layout."""
        recipe = self.resolved.workload.recipe
        seconds = total_seconds(slowest_step(self.resolved, self.stages))
        return seconds / (recipe.global_batch * recipe.sequence_length)


@dataclass(slots=True)
class LadderSearch:
    """Progress on one ladder."""

    left: Iterator[CandidateChange]
    """Values that are not tried yet."""
    tried: list[tuple[CandidateChange, ChangeResult]] = field(default_factory=list)
    """Tried values that broke no rule."""
    is_enough: bool = False
    """Whether the last one made the job fit."""
    may_continue: bool = True
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
            self.may_continue = is_better and not self.is_enough
            return
        self.may_continue = False


def _always() -> bool:
    return True


def with_advice(memory: Memory, question: Question, may_continue: Callable[[], bool] = _always) -> Memory:
    """The memory part of an answer, with suggested changes if the job may not fit."""
    if verdict_of(memory.oom_probability_fraction) == "fits":
        return memory
    changes = ranked_changes(question, memory.biggest_line, may_continue)
    return replace(memory, changes=changes, suggestions=tuple(map(describe_change, changes)))


def ranked_changes(question: Question, biggest: str, may_continue: Callable[[], bool] = _always) -> tuple[Change, ...]:
    """Single changes that save memory, those first that make the job fit, and among them the cheapest in time.

    Each field gives its first value that is enough, or else the one that saves most. More GPUs and methods that
    train less are tried where nothing else is enough.
    """
    before = _result_of(question)
    factor, seconds = before.device_bytes / before.memory.usable_bytes, before.token_seconds
    searches = _search_ladders(candidate_ladders(question, before.resolved, biggest, factor), MOST_TRIALS, may_continue)
    if not any(search.is_enough for search in searches):
        searches += _search_ladders(last_ladders(question, before.resolved, factor), MOST_LAST_TRIALS, may_continue)
    results = [change for search in searches for change in _best_change(search, before.device_bytes, seconds)]
    return tuple(sorted(results, key=lambda change: (VERDICTS.index(change.verdict), _cost(change)))[:MOST_CHANGES])


def _search_ladders(ladders: Iterable[Ladder], most: int, may_continue: Callable[[], bool]) -> list[LadderSearch]:
    """Try one legal value of each ladder in turn, until each has a value that is enough or `most` are tried."""
    searches = [LadderSearch(iter(ladder)) for ladder in ladders]
    going = searches
    while going and most > 0:
        for search in going[:most]:
            if not may_continue():
                return searches
            search.step()
        most -= len(going)
        going = [search for search in going if search.may_continue]
    return searches


def _best_change(search: LadderSearch, before_bytes: float, before_seconds: float) -> Iterator[Change]:
    """The best change of a ladder: the first value that is enough, or else the one that saves most."""
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
    """Sort key of a change: lost time if the job fits with it, else its device peak."""
    return change.slower_fraction if change.verdict == "fits" else change.device_peak_bytes


def _result_of(question: Question) -> ChangeResult:
    result = resolve(question)
    stages = stages_of(result)
    return ChangeResult(result, stages, peak_stage_of(result, stages, loads_of(result, stages)).memory)


def describe_change(change: Change) -> str:
    """A change in words.

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
