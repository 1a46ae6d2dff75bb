"""Which model size and how many tokens make the most of so many FLOP?

Three answers stand side by side, because they differ by a factor: a rule, a fit with a known flaw, and its refit.
"""

from dataclasses import dataclass
from math import floor, sqrt
from math import pow as power

from service.answers.solutions import OptimalSize, SizeByFit
from service.estimator.advice.advice import TOKENS_FOR_EACH_PARAMETER

FLOP_PER_PARAMETER_AND_TOKEN = 6.0
"""FLOP of training for each parameter and token.
Source: Hoffmann et al. 2022, arXiv:2203.15556, section 3.3: C = 6 N D."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossFit:
    """Coefficients of loss = irreducible + a / N^alpha + b / D^beta, in nats a token."""

    name: str
    irreducible: float
    a: float
    b: float
    alpha: float
    beta: float
    source: str
    caution: str | None = None
    """What is known to be wrong with it."""


BESIROGLU = LossFit(
    name="besiroglu-2024",
    irreducible=1.8172,
    a=482.01,
    b=2085.43,
    alpha=0.3478,
    beta=0.3658,
    source="Besiroglu et al. 2024, arXiv:2404.10102, abstract and table 1: refit of Hoffmann's third approach",
)
HOFFMANN = LossFit(
    name="hoffmann-2022",
    irreducible=1.69,
    a=406.4,
    b=410.7,
    alpha=0.34,
    beta=0.28,
    source="Hoffmann et al. 2022, arXiv:2203.15556, section 3.3, equation 10",
    caution="its coefficients are rounded in print, which biases it: too many tokens a parameter, and the more so "
    "the larger the budget (Besiroglu et al. 2024, arXiv:2404.10102)",
)
LOSS_FITS = (BESIROGLU, HOFFMANN)
"""Fits of the loss, the one that is answered by first."""

RULE = "20-tokens-per-parameter"
RULE_SOURCE = "Hoffmann et al. 2022, arXiv:2203.15556, table 3: 70e9 parameters, 1.4e12 tokens"


def expected_loss_nats(fit: LossFit, parameters: float, training_tokens: float) -> float:
    """Loss that a fit expects of a model after a run, for one token.

    Formula:
        E + A / N^alpha + B / D^beta

    Args:
        fit: the coefficients
        parameters: N [1]
        training_tokens: D [token]

    Returns:
        loss [nat]

    Source:
        Hoffmann et al. 2022, arXiv:2203.15556, equation 2

    >>> round(expected_loss_nats(HOFFMANN, 70e9, 1.4e12), 2)
    1.94
    """
    return fit.irreducible + fit.a / power(parameters, fit.alpha) + fit.b / power(training_tokens, fit.beta)


def optimal_parameters(fit: LossFit, total_flop: float) -> float:
    """Parameters with the least loss for so many FLOP, C.

    Formula:
        G (C / 6)^(beta / (alpha + beta)),  G = (alpha A / (beta B))^(1 / (alpha + beta))

    Args:
        fit: the coefficients
        total_flop: C [FLOP]

    Returns:
        N [1]

    Source:
        Hoffmann et al. 2022, arXiv:2203.15556, equation 4

    >>> f"{optimal_parameters(BESIROGLU, 5.76e23):.2e}"
    '7.22e+10'
    """
    exponents = fit.alpha + fit.beta
    scale = power(fit.alpha * fit.a / (fit.beta * fit.b), 1 / exponents)
    return scale * power(total_flop / FLOP_PER_PARAMETER_AND_TOKEN, fit.beta / exponents)


def affordable_tokens(parameters: float, total_flop: float) -> float:
    """Tokens that a model can be trained on with so many FLOP.

    Formula:
        C / (6 N)

    Args:
        parameters: N [1]
        total_flop: C [FLOP]

    Returns:
        D [token]

    Source:
        Hoffmann et al. 2022, arXiv:2203.15556, section 3.3

    >>> f"{affordable_tokens(70e9, 5.88e23):.1e}"
    '1.4e+12'
    """
    return total_flop / (FLOP_PER_PARAMETER_AND_TOKEN * parameters)


def rule_parameters(total_flop: float) -> float:
    """Parameters of a model that is trained on 20 tokens for each of them.

    Formula:
        sqrt(C / (6 x 20))

    Args:
        total_flop: C [FLOP]

    Returns:
        N [1]

    Source:
        Hoffmann et al. 2022, arXiv:2203.15556, table 3

    >>> f"{rule_parameters(5.88e23):.1e}"
    '7.0e+10'
    """
    return sqrt(total_flop / (FLOP_PER_PARAMETER_AND_TOKEN * TOKENS_FOR_EACH_PARAMETER))


def most_parameters_served(inference_per_token_flop: float) -> float:
    """Largest model whose use costs at most so many FLOP a token.

    Formula:
        cap / 2

    Args:
        inference_per_token_flop: FLOP that one token may take [FLOP]

    Returns:
        N [1]

    Source:
        Kaplan et al. 2020, arXiv:2001.08361, table 1: 2 N FLOP in a forward pass

    >>> most_parameters_served(16e9)
    8000000000.0
    """
    return inference_per_token_flop / 2


def optimal_size(total_flop: float, inference_per_token_flop: float | None = None) -> OptimalSize:
    """The model size and the tokens that make the most of so many FLOP, by each fit.

    Under a cap on the cost of use the model is no larger than the cap allows, and is trained on more tokens instead:
    with all FLOP spent, the loss falls as N rises up to its best value, so the cap itself is the best N below it.

    Args:
        total_flop: operations of the run [FLOP]
        inference_per_token_flop: what one token may take once the model is used [FLOP]; None for no cap

    Returns:
        the size
    """
    cap = None if inference_per_token_flop is None else most_parameters_served(inference_per_token_flop)
    free = [(optimal_parameters(fit, total_flop), fit) for fit in LOSS_FITS]
    sizes = [_sized(min(best, cap or best), total_flop, fit) for best, fit in free]
    by_rule = rule_parameters(total_flop)
    first = sizes[0]
    return OptimalSize(
        total_flop=total_flop,
        parameters=first.parameters,
        training_tokens=first.training_tokens,
        tokens_per_parameter=first.tokens_per_parameter,
        loss_nats=first.loss_nats,
        inference_per_token_flop=2.0 * first.parameters,
        is_capped=first.parameters < floor(free[0][0]),
        fits=(*sizes, _sized(min(by_rule, cap or by_rule), total_flop, None)),
    )


def _sized(best_parameters: float, total_flop: float, fit: LossFit | None) -> SizeByFit:
    parameters = max(1, floor(best_parameters))
    tokens = affordable_tokens(parameters, total_flop)
    return SizeByFit(
        fit=RULE if fit is None else fit.name,
        parameters=parameters,
        training_tokens=tokens,
        tokens_per_parameter=tokens / parameters,
        loss_nats=None if fit is None else expected_loss_nats(fit, parameters, tokens),
        caution=None if fit is None else fit.caution,
        source=RULE_SOURCE if fit is None else fit.source,
    )
