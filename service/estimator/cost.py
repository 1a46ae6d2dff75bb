"""What does the run take in steps, GPU-hours and days?"""

from math import ceil


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


def ideal_days(days: float, goodput: float) -> float:
    """Wall time of a run if nothing were lost to interruptions and checkpoints.

    Formula:
        days x goodput

    Args:
        days: wall time [d]
        goodput: useful share of the wall time [1]

    Returns:
        days [d]

    Source:
        definition

    >>> ideal_days(60.0, 0.9)
    54.0
    """
    return days * goodput


def spare_gpus(gpus: int, gpus_per_node: int, spare_fraction: float) -> int:
    """GPUs that wait, whole nodes of them, to stand in for failed ones.

    Formula:
        ceil(GPUs x share / GPUs of a node) x GPUs of a node

    Args:
        gpus: GPUs of the job [1]
        gpus_per_node: GPUs of one node [1]
        spare_fraction: spare GPUs over GPUs of the job [1]

    Returns:
        spare GPUs [1]

    Source:
        definition; a node is replaced as a whole (Llama 3, arXiv:2407.21783, section 3.3.4)

    >>> spare_gpus(1024, 8, 0.05)
    56
    """
    return ceil(gpus * spare_fraction / gpus_per_node) * gpus_per_node


def spare_gpu_hours(days: float, spares: int) -> float:
    """GPU-hours of spares during a run.

    Formula:
        24 x days x spare GPUs

    Args:
        days: wall time [d]
        spares: spare GPUs [1]

    Returns:
        GPU-hours [h]

    Source:
        definition

    >>> spare_gpu_hours(2.0, 8)
    384.0
    """
    return 24 * days * spares


def billed_gpu_hours(gpu_hours_used: float, spare_gpu_hours: float) -> float:
    """GPU-hours that are paid for: those of the job and those of its spares.

    Formula:
        GPU-hours of the job + GPU-hours of the spares

    Args:
        gpu_hours_used: GPU-hours of the job [h]
        spare_gpu_hours: GPU-hours of the spares [h]

    Returns:
        GPU-hours [h]

    Source:
        definition

    >>> billed_gpu_hours(1000.0, 50.0)
    1050.0
    """
    return gpu_hours_used + spare_gpu_hours


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
