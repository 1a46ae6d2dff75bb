"""How many FLOP does training take, by whose count? Sums over the ledger, exact integers."""

from dataclasses import dataclass

from service.estimator.answer import Conventions, Flop
from service.estimator.filled import filled
from service.estimator.job import Job
from service.estimator.ledger import Ledger, Ops
from service.estimator.model import Model
from service.estimator.parameters import ParameterCounts
from service.estimator.question import Recompute
from service.estimator.recompute import is_rerun

PFLOP_DAY_FLOP = 10**15 * 24 * 3600
"""FLOP of one PFLOP/s for one day, 8.64e19. Source: definition (also lecture notes, compute units)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceFlop:
    """Forward FLOP of one sequence through the whole model."""

    causal: int
    """Over visible keys."""
    full: int
    """Without any mask."""
    rerun: int
    """Run a second time for recompute, over visible keys."""
    full_rerun: int
    """The same without any mask."""


def forward_flop(ops: Ops) -> int:
    """Forward FLOP of some operations on one sequence, over visible keys.

    Formula:
        sum of the operations' FLOP

    Args:
        ops: the operations

    Returns:
        FLOP of one sequence [FLOP]

    Source:
        the ledger

    >>> forward_flop(())
    0
    """
    return sum(op.flop for op in ops)


def full_flop(ops: Ops) -> int:
    """Forward FLOP of some operations on one sequence, without any attention mask.

    Formula:
        sum of the operations' FLOP, core attention over all s^2 pairs

    Args:
        ops: the operations

    Returns:
        FLOP of one sequence [FLOP]

    Source:
        the ledger

    >>> full_flop(())
    0
    """
    return sum(op.flop if op.full_flop is None else op.full_flop for op in ops)


def sequence_flop(ledger: Ledger, rule: Recompute) -> SequenceFlop:
    """Forward FLOP of one sequence through the whole model, and what recompute repeats of it.

    Args:
        ledger: the ledger
        rule: the recompute rule

    Returns:
        the sums [FLOP]
    """
    groups = ledger.groups()
    again = [(times, tuple(op for op in ops if is_rerun(op, rule))) for times, ops in ledger.layer_groups()]
    return SequenceFlop(
        causal=sum(times * forward_flop(ops) for times, ops in groups),
        full=sum(times * full_flop(ops) for times, ops in groups),
        rerun=sum(times * forward_flop(ops) for times, ops in again),
        full_rerun=sum(times * full_flop(ops) for times, ops in again),
    )


def palm_flop(model: Model, parameters: int, tokens: int) -> float:
    """Training FLOP of one token as the PaLM paper counts it.

    Formula:
        6 N + 12 L a d s

    Args:
        model: the model
        parameters: parameters that one token uses, N [1]
        tokens: sequence length, s [token]

    Returns:
        FLOP of one token [FLOP]

    Source:
        Chowdhery et al. 2022, arXiv:2204.02311, appendix B

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> palm_flop(LLAMA_3_8B, 8030261248, 8192)
    61066469376.0
    """
    width = (model.query_width + model.value_width) / 2
    return 6.0 * parameters + 12.0 * model.num_hidden_layers * model.num_attention_heads * width * tokens


def per_token_flop(forward_flop_of_sequence: int, tokens: int) -> float:
    """Training FLOP of one token, forward and backward.

    Formula:
        3 F / s

    Args:
        forward_flop_of_sequence: forward FLOP of one sequence, F [FLOP]
        tokens: sequence length, s [token]

    Returns:
        FLOP of one token [FLOP]

    Source:
        Kaplan et al. 2020, arXiv:2001.08361, section 2.1

    >>> per_token_flop(1000, 10)
    300.0
    """
    return 3 * forward_flop_of_sequence / tokens


def six_n_flop(parameters: int) -> float:
    """Training FLOP of one token by the rule that every parameter costs six.

    Formula:
        6 N

    Args:
        parameters: parameters that one token uses, N [1]

    Returns:
        FLOP of one token [FLOP]

    Source:
        Kaplan et al. 2020, arXiv:2001.08361, section 2.1

    >>> six_n_flop(7 * 10**9)
    42000000000.0
    """
    return 6.0 * parameters


def korthikanti_fraction(hidden_size: int, tokens: int) -> float:
    """Extra FLOP of selective recompute over model FLOP, by the paper that proposed it.

    It counts the attention of forward and backward once more; recomputing core attention really
    repeats only the forward products, a third of that.

    Formula:
        (s / 6h) / (1 + s / 6h) = s / (6 h + s)

    Args:
        hidden_size: width of the residual stream, h [1]
        tokens: sequence length, s [token]

    Returns:
        share of model FLOP [1]

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 5 (2.7 % for GPT-3 175B)

    >>> round(korthikanti_fraction(12288, 2048), 4)
    0.027
    """
    return tokens / (6 * hidden_size + tokens)


def step_flop(forward_flop_of_sequence: int, global_batch: int) -> int:
    """Model FLOP of one optimizer step: a backward pass costs twice a forward pass.

    Formula:
        3 F B

    Args:
        forward_flop_of_sequence: forward FLOP of one sequence, F [FLOP]
        global_batch: sequences in one step, B [1]

    Returns:
        FLOP of one step [FLOP]

    Source:
        Kaplan et al. 2020, arXiv:2001.08361, section 2.1 (C_forward = 2 P D, C_backward = 4 P D)

    >>> step_flop(10, 4)
    120
    """
    return 3 * forward_flop_of_sequence * global_batch


def run_flop(one_step_flop: int, steps: int) -> int:
    """Model FLOP of a whole run.

    Formula:
        F_step x steps

    Args:
        one_step_flop: model FLOP of one step, F_step [FLOP]
        steps: optimizer steps [1]

    Returns:
        FLOP of the run [FLOP]

    Source:
        definition

    >>> run_flop(120, 10)
    1200
    """
    return one_step_flop * steps


def recompute_flop(rerun_flop_of_sequence: int, global_batch: int, rerun_fraction: float) -> int:
    """FLOP of forward passes that one optimizer step runs a second time.

    Formula:
        round(F_rerun x share) B

    Args:
        rerun_flop_of_sequence: forward FLOP that recompute repeats for one sequence, F_rerun [FLOP]
        global_batch: sequences in one step, B [1]
        rerun_fraction: share of the layers that recompute reaches [1]

    Returns:
        FLOP of one step [FLOP]

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 5

    >>> recompute_flop(10, 4, 0.5)
    20
    """
    return round(rerun_flop_of_sequence * rerun_fraction) * global_batch


def flop_of(job: Job, counts: ParameterCounts, steps: int | None, rerun_fraction: float) -> Flop:
    """The FLOP part of the answer.

    Args:
        job: the job, its batch resolved
        counts: parameters of the model
        steps: optimizer steps of the run, None where no tokens are given [1]
        rerun_fraction: share of the layers that recompute reaches [1]

    Returns:
        FLOP of a token, a step and the run
    """
    one, tokens = sequence_flop(job.ledger, job.recompute), job.recipe.sequence_length
    batch = filled(job.recipe.global_batch)
    forward, model = one.causal * batch, step_flop(one.causal, batch)
    rerun = recompute_flop(one.rerun, batch, rerun_fraction)
    total = None if steps is None else run_flop(model, steps)
    return Flop(
        per_token_flop=per_token_flop(one.causal, tokens),
        forward_per_step_flop=forward,
        backward_per_step_flop=model - forward,
        per_step_flop=model,
        recompute_per_step_flop=rerun,
        hardware_per_step_flop=model + rerun,
        total_flop=total,
        total_pflop_days=None if total is None else total / PFLOP_DAY_FLOP,
        recompute_fraction=one.rerun * rerun_fraction / (3 * one.causal),
        recompute_full_fraction=one.full_rerun * rerun_fraction / (3 * one.full),
        recompute_korthikanti_fraction=korthikanti_fraction(job.model.hidden_size, tokens)
        if job.recompute.modules == ("core_attn",)
        else None,
        conventions=Conventions(
            causal=per_token_flop(one.causal, tokens),
            full=per_token_flop(one.full, tokens),
            palm=palm_flop(job.model, counts.active.total, tokens),
            six_n=six_n_flop(counts.active.total),
        ),
    )
