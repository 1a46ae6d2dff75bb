"""By which other rules do people count FLOP? Their formulas, under their names."""

from service.estimator.build import layer_type
from service.estimator.mixers import MIXERS
from service.estimator.model import Model


def palm_flop(model: Model, parameters: int, tokens: int) -> float:
    """Training FLOP of one token as the PaLM paper counts it.

    Formula:
        6 N + 12 L a d s, L only the layers that attend

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
    attending = sum(MIXERS[layer_type(model, layer)].attends for layer in range(model.num_hidden_layers))
    return 6.0 * parameters + 12.0 * attending * model.num_attention_heads * width * tokens


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
