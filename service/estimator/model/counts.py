"""Parameters of a model and FLOP of its training, exact sums over the ledger, and the conventions of others."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from service.estimator.answer import ActiveParameters
from service.estimator.model.build import MIXERS, build_ledger, layer_type
from service.estimator.model.ledger import Ledger, Op, Ops, SequenceSettings, Split, rerun_flop
from service.estimator.question import Model, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCounts:
    """Parameter counts of one model, undivided."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"use_attribute_docstrings": True}

    total: int
    """Every number of the model once."""
    trained: int
    """Numbers that are trained, those of adapters and depths counted."""
    adapters: int
    """Numbers of adapters."""
    active: ActiveParameters
    """What one token uses, by the vendors' definitions."""
    non_embedding: int
    """Without token embedding, positions and an untied head."""
    input_embedding: int
    """Token embedding."""
    position_embedding: int
    """Learned position table."""
    lm_head: int
    """Head matrix; 0 where tied."""
    routed_experts: int
    """All routed experts."""
    shared_experts: int
    """All shared experts."""
    multi_token_prediction: int
    """Own weights of the multi-token-prediction depths."""


def parameter_counts(model: Model, ledger: Ledger) -> ParameterCounts:
    """Parameters of a model, exact, from its ledger.

    Formula:
        total: sum of rows x columns x copies over every weight once; trained: over those that are not frozen; adapters:
        r (n_in + n_out) for each adapted matrix; active: total - routed (1 - k / (E + Z));
        non-embedding: total - token table - positions - untied head
    Args:
        ledger: its ledger under any setting
    Returns: the counts [1]
    Source: definition; equal to the count of unique parameters of the transformers classes
    """
    layers = list(zip(ledger.kind_counts(), ledger.kinds, strict=True))
    groups = [(1, ledger.embedding), *layers, (1, ledger.head)]
    every = [(times, op.name, weight) for times, ops in groups for op in ops for weight in op.weights]
    pairs = [result for result in every if result[2].role != "adapter"]
    whole = [(times, weight) for times, ops in ledger.groups() for op in ops for weight in op.weights]

    total = sum(times * weight.parameters for times, _, weight in pairs if not weight.tied)
    routed = sum(times * weight.parameters for times, _, weight in pairs if weight.split is Split.EXPERT)
    shared = sum(
        times * weight.parameters
        for times, name, weight in pairs
        if name.startswith("shared.") and name != "shared.gate"
    )
    token_table = model.vocab_size * model.embedding_width
    positions = model.position_embedding_rows * model.hidden_size
    head = 0 if model.tie_word_embeddings and not model.scalar_head else model.head_outputs * model.embedding_width
    over, under = model.visits
    depth = ledger.depth + ledger.kinds[ledger.depth_kind]
    active = total - routed + (routed // model.num_experts * over // under if model.num_experts else 0)
    outside = token_table + positions + head
    return ParameterCounts(
        total=total,
        trained=sum(times * weight.parameters for times, weight in whole if weight.trained and not weight.tied),
        adapters=sum(times * weight.parameters for times, _, weight in every if weight.role == "adapter"),
        active=ActiveParameters(
            total=active, without_input_embedding=active - token_table, non_embedding=active - outside
        ),
        non_embedding=total - outside,
        input_embedding=token_table,
        position_embedding=positions,
        lm_head=head,
        routed_experts=routed,
        shared_experts=shared,
        multi_token_prediction=ledger.depths * sum(weight.parameters for op in depth for weight in op.weights),
    )


def count_parameters(model: Model) -> ParameterCounts:
    """Parameters of a model, exact, from its fields alone."""
    return parameter_counts(model, build_ledger(model, SequenceSettings(tokens=1, element_bytes=2)))


PFLOP_DAY_FLOP = 10**15 * 24 * 3600
"""FLOP of one PFLOP/s for one day, 8.64e19. Source: definition (also lecture notes, compute units)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceFlop:
    """FLOP of one sequence through the whole model."""

    causal: int
    """Forward, over visible keys."""
    full: int
    """Forward, without any mask."""
    backward: int
    """Backward, over visible keys."""
    full_backward: int
    rerun: int
    """Forward, run a second time for recompute, over visible keys."""
    full_rerun: int
    """The same without any mask."""

    @property
    def training(self) -> int:
        """Forward and backward, over visible keys."""
        return self.causal + self.backward

    @property
    def full_training(self) -> int:
        """Forward and backward, without any mask."""
        return self.full + self.full_backward


def forward_flop(ops: Ops) -> int:
    """Forward FLOP of some operations on one sequence, over visible keys.

    Formula: sum of the operations' FLOP
    Returns: FLOP of one sequence [FLOP]
    Source: definition: the ledger of operations, model/ledger.py

    >>> forward_flop(())
    0
    """
    return sum(op.flop for op in ops)


def full_flop(ops: Ops) -> int:
    """Forward FLOP of some operations on one sequence, without any attention mask.

    Formula: sum of the operations' FLOP, core attention over all s^2 pairs
    Returns: FLOP of one sequence [FLOP]
    Source: definition: the ledger of operations, model/ledger.py

    >>> full_flop(())
    0
    """
    return sum(op.flop if op.full_flop is None else op.full_flop for op in ops)


def backward_flop(ops: Ops) -> int:
    """Backward FLOP of some operations on one sequence, over visible keys.

    Formula: sum over the operations of F for each operand whose gradient is needed: 2 F where everything is trained
    Returns: FLOP of one sequence [FLOP]
    Source:
        definition: the ledger of operations, model/ledger.py; Kaplan et al. 2020, arXiv:2001.08361, section 2.1
        (C_backward = 4 P D); build.trained_ledger

    >>> backward_flop(())
    0
    """
    return sum(op.backward_flop for op in ops)


def sequence_flop(ledger: Ledger, rule: Recompute) -> SequenceFlop:
    """FLOP of one sequence through the whole model, and what recompute repeats of it."""
    groups = ledger.groups()
    layers = ledger.layer_groups()
    return SequenceFlop(
        causal=sum(times * forward_flop(ops) for times, ops in groups),
        full=sum(times * full_flop(ops) for times, ops in groups),
        backward=sum(times * backward_flop(ops) for times, ops in groups),
        full_backward=sum(times * op.backward_full_flop for times, ops in groups for op in ops),
        rerun=sum(times * rerun_flop(op, rule) for times, ops in layers for op in ops),
        full_rerun=sum(times * _full_rerun_flop(op, rule) for times, ops in layers for op in ops),
    )


def _full_rerun_flop(op: Op, rule: Recompute) -> int:
    """The same without any mask; what recompute by operation repeats has no mask."""
    again = rerun_flop(op, rule)
    return again if again < op.flop or op.full_flop is None else op.full_flop


def padding_flop(ledger: Ledger, share: Fraction, global_batch: int) -> int:
    """FLOP of one optimizer step that kernels for variable lengths would not compute, rounded to a whole number here.

    Formula: B sum over the operations of F_train x (1 - share); share of core attention: pairs inside documents / pairs
    Args:
        share: trained tokens over computed tokens [1]
        global_batch: sequences in one step, B [1]
    Returns: FLOP of one step [FLOP]
    Source: definition

    >>> from service.estimator.samples import sample_workload
    >>> padding_flop(sample_workload().ledger, Fraction(1), 1)
    0
    """
    if share == 1:
        return 0
    spared = Fraction(0)
    for times, ops in ledger.groups():
        for op in ops:
            needed = share if op.document_flop is None else Fraction(op.document_flop, op.flop)
            spared += times * (op.flop + op.backward_flop) * (1 - needed)
    return round(spared * global_batch)


def per_token_flop(training_flop_of_sequence: int, tokens: float) -> float:
    """Training FLOP of one token, forward and backward.

    Formula: F_train / s,  F_train = 3 F_forward where everything is trained
    Args:
        training_flop_of_sequence: forward and backward FLOP of one sequence, F_train [FLOP]
        tokens: trained tokens of one sequence, s [token]
    Returns: FLOP of one token [FLOP]
    Source: Kaplan et al. 2020, arXiv:2001.08361, section 2.1

    >>> per_token_flop(3000, 10)
    300.0
    """
    return training_flop_of_sequence / tokens


def step_flop(flop_of_sequence: int, global_batch: int) -> int:
    """Model FLOP of one optimizer step: of all passes, or of the backward passes alone.

    Formula: F B
    Args:
        flop_of_sequence: FLOP of those passes of one sequence, F [FLOP]
        global_batch: sequences in one step, B [1]
    Returns: FLOP of one step [FLOP]
    Source: definition

    >>> step_flop(30, 4)
    120
    """
    return flop_of_sequence * global_batch


def run_flop(one_step_flop: int, steps: int) -> int:
    """Model FLOP of a whole run.

    Formula: F_step x steps
    Args:
        one_step_flop: model FLOP of one step, F_step [FLOP]
        steps: optimizer steps [1]
    Returns: FLOP of the run [FLOP]
    Source: definition

    >>> run_flop(120, 10)
    1200
    """
    return one_step_flop * steps


def recompute_flop(rerun_flop_of_sequence: int, global_batch: int, rerun_fraction: float) -> int:
    """FLOP of forward passes that one optimizer step runs a second time.

    Formula: round(F_rerun x share) B
    Args:
        rerun_flop_of_sequence: forward FLOP that recompute repeats for one sequence, F_rerun [FLOP]
        global_batch: sequences in one step, B [1]
        rerun_fraction: share of the layers that recompute reaches [1]
    Returns: FLOP of one step [FLOP]
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 5

    >>> recompute_flop(10, 4, 0.5)
    20
    """
    return round(rerun_flop_of_sequence * rerun_fraction) * global_batch


def hardware_flop(per_step_flop: int, recompute_per_step_flop: int) -> int:
    """FLOP of one optimizer step that the hardware runs: those of the model, and forward passes run a second time.

    Formula: model FLOP + recomputed FLOP
    Args:
        per_step_flop: model FLOP of one step [FLOP]
        recompute_per_step_flop: FLOP that recompute repeats [FLOP]
    Returns: FLOP of one step [FLOP]
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 6 (hardware FLOP)

    >>> hardware_flop(30, 10)
    40
    """
    return per_step_flop + recompute_per_step_flop


def recompute_fraction(rerun_flop: int, rerun_fraction: float, training_flop_of_sequence: int) -> float:
    """FLOP that recompute repeats over model FLOP.

    Formula: F_rerun x share / F_train
    Args:
        rerun_flop: forward FLOP that recompute repeats for one sequence, F_rerun [FLOP]
        rerun_fraction: share of the layers that recompute reaches [1]
        training_flop_of_sequence: forward and backward FLOP of one sequence, F_train [FLOP]
    Returns: share of model FLOP [1]
    Source: definition

    >>> recompute_fraction(10, 0.5, 30)
    0.16666666666666666
    """
    return rerun_flop * rerun_fraction / training_flop_of_sequence


def pflop_days(total_flop: int) -> float:
    """Model FLOP of a whole run in days of 1 PFLOP/s.

    Formula: F / 8.64e19
    Args:
        total_flop: model FLOP of the run, F [FLOP]
    Returns: days of 1 PFLOP/s [PFLOP-day]
    Source: PFLOP_DAY_FLOP

    >>> pflop_days(864 * 10**17)
    1.0
    """
    return total_flop / PFLOP_DAY_FLOP


def palm_flop(model: Model, parameters: int, tokens: int) -> float:
    """Training FLOP of one token as the PaLM paper counts it.

    Formula: 6 N + 12 L a d s, L only the layers that attend
    Args:
        parameters: parameters that one token uses, N [1]
        tokens: sequence length, s [token]
    Returns: FLOP of one token [FLOP]
    Source: Chowdhery et al. 2022, arXiv:2204.02311, appendix B

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> palm_flop(LLAMA_3_8B, 8030261248, 8192)
    61066469376.0
    """
    width = (model.query_width + model.value_width) / 2
    attending = sum(MIXERS[layer_type(model, layer)].attends for layer in range(model.num_hidden_layers))
    return 6.0 * parameters + 12.0 * attending * model.num_attention_heads * width * tokens


def six_n_flop(parameters: int) -> float:
    """Training FLOP of one token by the rule that every parameter costs six.

    Formula: 6 N
    Args:
        parameters: parameters that one token uses, N [1]
    Returns: FLOP of one token [FLOP]
    Source: Kaplan et al. 2020, arXiv:2001.08361, section 2.1

    >>> six_n_flop(7 * 10**9)
    42000000000.0
    """
    return 6.0 * parameters


def korthikanti_fraction(hidden_size: int, tokens: int) -> float:
    """Extra FLOP of selective recompute over model FLOP, by the paper that proposed it.

    It counts the attention of forward and backward once more; recomputing core attention really
    repeats only the forward products, a third of that.

    Formula: (s / 6h) / (1 + s / 6h) = s / (6 h + s)
    Args:
        hidden_size: width of the residual stream, h [1]
        tokens: sequence length, s [token]
    Returns: share of model FLOP [1]
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 5 (2.7 % for GPT-3 175B)

    >>> round(korthikanti_fraction(12288, 2048), 4)
    0.027
    """
    return tokens / (6 * hidden_size + tokens)
