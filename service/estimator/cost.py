"""What does the run take in GPU-hours, days, dollars and energy?"""

from math import ceil

HOST_SHARE = 10_200 / (8 * 700)
"""Rated power of a whole DGX H100 over that of its eight GPUs: hosts, network, fans.
Source: NVIDIA DGX H100 data sheet, 10.2 kW."""

LOAD_FRACTION = 0.76
"""Power of a busy node over its rating; the highest seen of an H100 node is 8.4 of 10.2 kW.
Source: typical share under heavy AI load of published H100 node measurements; a round figure, to be measured."""

POWER_USAGE_EFFECTIVENESS = 1.1
"""Data-centre overhead. Source: LLaMA, arXiv:2302.13971, table 15; Patterson et al. 2021, arXiv:2104.10350, table 4."""


def steps_of(training_tokens: float, global_batch: int, tokens: float) -> int:
    """Optimizer steps of a run.

    Formula:
        ceil(D / (B s))

    Args:
        training_tokens: tokens of the run, D [token]
        global_batch: sequences in one step, B [1]
        tokens: trained tokens of one sequence, s [token]

    Returns:
        steps [1]

    Source:
        definition

    >>> steps_of(1.4e12, 2048, 2048)
    333787
    """
    return ceil(training_tokens / (global_batch * tokens))


def gpu_hours(steps: int, step_seconds: float, gpus: int, goodput: float) -> float:
    """GPU-hours of a run.

    Formula:
        steps x t_step x GPUs / 3600 / goodput

    Args:
        steps: optimizer steps [1]
        step_seconds: seconds of one step [s]
        gpus: GPUs in all [1]
        goodput: useful share of the wall time [1]

    Returns:
        GPU-hours [h]

    Source:
        definition

    >>> gpu_hours(3600, 2.0, 8, 1.0)
    16.0
    """
    return steps * step_seconds * gpus / 3600 / goodput


def energy_kwh(gpu_hours_used: float, board_watts: float) -> float:
    """Energy of GPUs, their share of hosts and network, and the building.

    Formula:
        GPU-hours x board power x host share x load x PUE / 1000

    Args:
        gpu_hours_used: GPU-hours of the run [h]
        board_watts: rated power of one GPU [W]

    Returns:
        energy of the run [kWh]

    Source:
        NVIDIA DGX H100 data sheet (host share), LLaMA, arXiv:2302.13971 (PUE); LOAD_FRACTION

    >>> round(energy_kwh(1000.0, 700.0), 1)
    1065.9
    """
    watts = board_watts * HOST_SHARE * LOAD_FRACTION * POWER_USAGE_EFFECTIVENESS
    return gpu_hours_used * watts / 1000


def run_days(gpu_hours_used: float, gpus: int) -> float:
    """Wall time of a run.

    Formula:
        GPU-hours / (24 GPUs)

    Args:
        gpu_hours_used: GPU-hours of the run [h]
        gpus: GPUs in all [1]

    Returns:
        days [d]

    Source:
        definition

    >>> run_days(384.0, 8)
    2.0
    """
    return gpu_hours_used / (24 * gpus)


def cost_usd(gpu_hours_used: float, usd_per_gpu_hour: float) -> float:
    """Rent of the GPUs for a run.

    Formula:
        GPU-hours x price

    Args:
        gpu_hours_used: GPU-hours of the run [h]
        usd_per_gpu_hour: price of one GPU for one hour [USD/h]

    Returns:
        the rent [USD]

    Source:
        definition

    >>> cost_usd(1000.0, 2.5)
    2500.0
    """
    return gpu_hours_used * usd_per_gpu_hour


def at_peak_gpu_hours(flop: int, peak_flop_per_s: float) -> float:
    """GPU-hours of some FLOP if every one ran at a stated rate.

    Formula:
        F / R / 3600

    Args:
        flop: the FLOP, F [FLOP]
        peak_flop_per_s: the rate, R [FLOP/s]

    Returns:
        GPU-hours [h]

    Source:
        definition

    >>> at_peak_gpu_hours(36 * 10**17, 1e15)
    1.0
    """
    return flop / peak_flop_per_s / 3600
