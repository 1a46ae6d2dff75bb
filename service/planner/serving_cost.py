"""What does a token cost once the trained model is used, and how many operations may it take for that?"""

from dataclasses import dataclass

SERVING_MFU_FRACTION = 0.33
"""Share of its GPU's peak that a model in use keeps busy, where nobody says another.
Source: Pope et al. 2022, arXiv:2211.05102, table 2: 33 % while tokens are generated in batches of 512, 14 % where they
have to come soon, 76 % of prompts in large batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a trained model is used on."""

    usd_per_gpu_hour: float
    """What one of its GPUs costs."""
    flop_per_s: float
    """Dense peak of one of them."""
    mfu_fraction: float
    """Share of that peak that is kept busy."""


def inference_usd_per_million_tokens(inference_per_token_flop: float, server: Server) -> float:
    """What a million tokens cost once the model is used.

    Formula:
        1e6 c / (3600 R MFU) x price of a GPU-hour

    Args:
        inference_per_token_flop: operations of one token, c [FLOP]
        server: the GPU, of peak R

    Returns:
        dollars for a million tokens [USD]

    Source:
        definition; Pope et al. 2022, arXiv:2211.05102, section 4.4: cost is inverse to MFU

    >>> server = Server(usd_per_gpu_hour=3.6, flop_per_s=1e15, mfu_fraction=0.5)
    >>> round(inference_usd_per_million_tokens(16e9, server), 9)
    0.032
    """
    return 1e6 * inference_per_token_flop * _usd_per_flop(server)


def affordable_inference_flop(usd_per_million_tokens: float, server: Server) -> float:
    """Operations that one token may take for so many dollars a million.

    Formula:
        dollars / 1e6 x 3600 R MFU / price of a GPU-hour

    Args:
        usd_per_million_tokens: what a million tokens may cost [USD]
        server: the GPU, of peak R

    Returns:
        operations of one token [FLOP]

    Source:
        definition

    >>> server = Server(usd_per_gpu_hour=3.6, flop_per_s=1e15, mfu_fraction=0.5)
    >>> f"{affordable_inference_flop(0.032, server):.3g}"
    '1.6e+10'
    """
    return usd_per_million_tokens / (1e6 * _usd_per_flop(server))


def _usd_per_flop(server: Server) -> float:
    return server.usd_per_gpu_hour / (3600 * server.flop_per_s * server.mfu_fraction)
