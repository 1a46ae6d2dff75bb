"""How fast does a step train, and how well does it use the GPUs?"""

from collections.abc import Callable

from service.estimator.interval import Interval


def tokens_per_s_per_gpu(batch_tokens: float, gpus: int, step_seconds: float) -> float:
    """Trained tokens a second on one GPU.

    Formula:
        B s / (t_step GPUs)

    Args:
        batch_tokens: trained tokens of one step, B s [token]
        gpus: GPUs in all [1]
        step_seconds: seconds of one step, t_step [s]

    Returns:
        tokens a second on one GPU [token/s]

    Source:
        definition

    >>> tokens_per_s_per_gpu(80_000, 8, 2.0)
    5000.0
    """
    return batch_tokens / gpus / step_seconds


def utilisation_fraction(flop: int, gpus: int, peak_flop_per_s: float, step_seconds: float) -> float:
    """FLOP of one step over what the GPUs could do in its time: MFU of model FLOP, HFU of hardware FLOP.

    Formula:
        F / (t_step GPUs R_peak)

    Args:
        flop: FLOP of one step, F [FLOP]
        gpus: GPUs in all [1]
        peak_flop_per_s: dense peak of one GPU, R_peak [FLOP/s]
        step_seconds: seconds of one step, t_step [s]

    Returns:
        share of the peak [1]

    Source:
        Chowdhery et al. 2022, arXiv:2204.02311, appendix B

    >>> utilisation_fraction(4 * 10**15, 8, 1e15, 1.0)
    0.5
    """
    return flop / (peak_flop_per_s * gpus) / step_seconds


def falling(seconds: Interval, quantity: Callable[[float], float]) -> Interval:
    """The interval of a quantity that falls as time grows: the ends change places.

    Args:
        seconds: the time
        quantity: the quantity at a time

    Returns:
        the quantity's interval
    """
    return Interval(quantity(seconds.high), quantity(seconds.value), quantity(seconds.low), seconds.basis)


def rising(seconds: Interval, quantity: Callable[[float], float]) -> Interval:
    """The interval of a quantity that grows with time.

    Args:
        seconds: the time
        quantity: the quantity at a time

    Returns:
        the quantity's interval
    """
    return Interval(quantity(seconds.low), quantity(seconds.value), quantity(seconds.high), seconds.basis)
