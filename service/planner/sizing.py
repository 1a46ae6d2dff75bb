"""Sizes for a budget: parameters and tokens for so many FLOP, critical batches, and the cost of serving.

Three answers stand side by side, because they differ by a factor: a rule, a fit with a known flaw, and its refit.
"""

from dataclasses import dataclass
from math import floor, sqrt
from math import pow as power

from service.answers.plans import OptimalSize, SizeByFit
from service.estimator.advice import TOKENS_FOR_EACH_PARAMETER

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
    """Known flaws."""


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

    Formula: E + A / N^alpha + B / D^beta
    Args:
        parameters: N [1]
        training_tokens: D [token]
    Returns: loss [nat]
    Source: Hoffmann et al. 2022, arXiv:2203.15556, equation 2

    >>> round(expected_loss_nats(HOFFMANN, 70e9, 1.4e12), 2)
    1.94
    """
    return fit.irreducible + fit.a / power(parameters, fit.alpha) + fit.b / power(training_tokens, fit.beta)


def optimal_parameters(fit: LossFit, total_flop: float) -> float:
    """Parameters with the least loss for so many FLOP, C.

    Formula: G (C / 6)^(beta / (alpha + beta)),  G = (alpha A / (beta B))^(1 / (alpha + beta))
    Args:
        total_flop: C [FLOP]
    Returns: N [1]
    Source: Hoffmann et al. 2022, arXiv:2203.15556, equation 4

    >>> f"{optimal_parameters(BESIROGLU, 5.76e23):.2e}"
    '7.22e+10'
    """
    exponents = fit.alpha + fit.beta
    scale = power(fit.alpha * fit.a / (fit.beta * fit.b), 1 / exponents)
    return scale * power(total_flop / FLOP_PER_PARAMETER_AND_TOKEN, fit.beta / exponents)


def affordable_tokens(parameters: float, total_flop: float) -> float:
    """Tokens that a model can be trained on with so many FLOP.

    Formula: C / (6 N)
    Args:
        parameters: N [1]
        total_flop: C [FLOP]
    Returns: D [token]
    Source: Hoffmann et al. 2022, arXiv:2203.15556, section 3.3

    >>> f"{affordable_tokens(70e9, 5.88e23):.1e}"
    '1.4e+12'
    """
    return total_flop / (FLOP_PER_PARAMETER_AND_TOKEN * parameters)


def rule_parameters(total_flop: float) -> float:
    """Parameters of a model that is trained on 20 tokens for each of them.

    Formula: sqrt(C / (6 x 20))
    Args:
        total_flop: C [FLOP]
    Returns: N [1]
    Source: Hoffmann et al. 2022, arXiv:2203.15556, table 3

    >>> f"{rule_parameters(5.88e23):.1e}"
    '7.0e+10'
    """
    return sqrt(total_flop / (FLOP_PER_PARAMETER_AND_TOKEN * TOKENS_FOR_EACH_PARAMETER))


def most_parameters_served(inference_per_token_flop: float) -> float:
    """Largest model whose use costs at most so many FLOP a token.

    Formula: cap / 2
    Args:
        inference_per_token_flop: FLOP that one token may take [FLOP]
    Returns: N [1]
    Source: Kaplan et al. 2020, arXiv:2001.08361, table 1: 2 N FLOP in a forward pass

    >>> most_parameters_served(16e9)
    8000000000.0
    """
    return inference_per_token_flop / 2


def optimal_size(total_flop: float, inference_per_token_flop: float | None = None) -> OptimalSize:
    """The model size and the tokens that make the most of so many FLOP, by each fit.

    The loss falls as N rises up to its best value, so a cap on the cost of use is the best N below.
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


SERVING_MFU_FRACTION = 0.33
"""Share of its GPU's peak that a model in use keeps busy, where you give no other.
Source: Pope et al. 2022, arXiv:2211.05102, table 2: 33 % while tokens are generated in batches of 512, 14 % where they
have to come soon, 76 % of prompts in large batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The GPU that serves a trained model."""

    usd_per_gpu_hour: float
    flop_per_s: float
    """Dense peak of one of them."""
    mfu_fraction: float
    """Share of that peak that is kept busy."""


def inference_usd_per_million_tokens(inference_per_token_flop: float, server: Server) -> float:
    """What a million tokens cost once the model is used.

    Formula: 1e6 c / (3600 R MFU) x price of a GPU-hour
    Args:
        inference_per_token_flop: operations of one token, c [FLOP]
        server: the GPU, of peak R
    Returns: dollars for a million tokens [USD]
    Source: definition; Pope et al. 2022, arXiv:2211.05102, section 4.4: cost is inverse to MFU

    >>> server = Server(usd_per_gpu_hour=3.6, flop_per_s=1e15, mfu_fraction=0.5)
    >>> round(inference_usd_per_million_tokens(16e9, server), 9)
    0.032
    """
    return 1e6 * inference_per_token_flop * _usd_per_flop(server)


def affordable_inference_flop(usd_per_million_tokens: float, server: Server) -> float:
    """Operations that one token may take for so many dollars a million.

    Formula: dollars / 1e6 x 3600 R MFU / price of a GPU-hour
    Args:
        usd_per_million_tokens: what a million tokens may cost [USD]
        server: the GPU, of peak R
    Returns: operations of one token [FLOP]
    Source: definition

    >>> server = Server(usd_per_gpu_hour=3.6, flop_per_s=1e15, mfu_fraction=0.5)
    >>> f"{affordable_inference_flop(0.032, server):.3g}"
    '1.6e+10'
    """
    return usd_per_million_tokens / (1e6 * _usd_per_flop(server))


def _usd_per_flop(server: Server) -> float:
    return server.usd_per_gpu_hour / (3600 * server.flop_per_s * server.mfu_fraction)


def critical_batch_tokens(loss_nats: float) -> float:
    """Tokens in one step at which twice the least number of steps and twice the fewest tokens reach a loss.

    Formula: 2e8 / loss^4.76
    Args:
        loss_nats: loss that is reached, for one token [nat]
    Returns: tokens [token]
    Source: Kaplan et al. 2020, arXiv:2001.08361, equation 1.4: B* = 2e8 tokens, alpha_B = 0.21

    >>> f"{critical_batch_tokens(2.0):.2e}"
    '7.37e+06'
    """
    return 2e8 / power(loss_nats, 1 / 0.21)


def best_batch_tokens(total_flop: float) -> float:
    """Tokens in one step that came out best in sweeps with so many FLOP.

    Formula: 0.2920 C^0.3271
    Args:
        total_flop: C of the whole run [FLOP]
    Returns: tokens [token]
    Source: DeepSeek-AI 2024, arXiv:2401.02954, equation 1

    >>> f"{best_batch_tokens(1e20):.2e}"
    '1.02e+06'
    """
    return 0.2920 * power(total_flop, 0.3271)


def critical_warnings(batch_tokens: float, parameters: float, training_tokens: float | None) -> tuple[str, ...]:
    """Warnings about a batch of so many tokens, beside those of every answer."""
    if training_tokens is None:
        return ()
    critical = critical_batch_tokens(expected_loss_nats(BESIROGLU, parameters, training_tokens))
    if batch_tokens <= 2 * critical:
        return ()
    return (
        f"a batch of {batch_tokens:.3g} tokens is more than twice the critical one, about {critical:.2g} at the end of "
        "the run and less before: more of it saves few steps and costs tokens",
    )
