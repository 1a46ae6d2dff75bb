"""How large may a batch be before more of it stops saving steps?"""

from math import pow as power

from service.planner.optimal_size import BESIROGLU, expected_loss_nats


def critical_batch_tokens(loss_nats: float) -> float:
    """Tokens in one step at which twice the least number of steps and twice the fewest tokens reach a loss.

    Formula:
        2e8 / loss^4.76

    Args:
        loss_nats: loss that is reached, for one token [nat]

    Returns:
        tokens [token]

    Source:
        Kaplan et al. 2020, arXiv:2001.08361, equation 1.4: B* = 2e8 tokens, alpha_B = 0.21

    >>> f"{critical_batch_tokens(2.0):.2e}"
    '7.37e+06'
    """
    return 2e8 / power(loss_nats, 1 / 0.21)


def best_batch_tokens(total_flop: float) -> float:
    """Tokens in one step that came out best in sweeps with so many FLOP.

    Formula:
        0.2920 C^0.3271

    Args:
        total_flop: C of the whole run [FLOP]

    Returns:
        tokens [token]

    Source:
        DeepSeek-AI 2024, arXiv:2401.02954, equation 1

    >>> f"{best_batch_tokens(1e20):.2e}"
    '1.02e+06'
    """
    return 0.2920 * power(total_flop, 0.3271)


def critical_warnings(batch_tokens: float, parameters: float, training_tokens: float | None) -> tuple[str, ...]:
    """What to look at in a batch of so many tokens, beside what every answer says of its batch.

    Args:
        batch_tokens: tokens in one step [token]
        parameters: parameters that a token uses [1]
        training_tokens: tokens of the run; None where it is not known [token]

    Returns:
        one sentence where it is more than twice the critical batch; none else
    """
    if training_tokens is None:
        return ()
    critical = critical_batch_tokens(expected_loss_nats(BESIROGLU, parameters, training_tokens))
    if batch_tokens <= 2 * critical:
        return ()
    return (
        f"a batch of {batch_tokens:.3g} tokens is more than twice the critical one, about {critical:.2g} at the end of "
        "the run and less before: more of it saves few steps and costs tokens",
    )
