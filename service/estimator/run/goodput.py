"""Share of the wall time that is useful once GPUs fail and checkpoints are written."""

from math import sqrt


def interruption_seconds(
    gpus: int, failures_per_gpu_hour: float, instances: int, preemptions_per_instance_hour: float
) -> float:
    """Mean time between interruptions of one job: failures of its GPUs, and machines that are taken back.

    Formula:
        M = 3600 / (GPUs x failures + machines x preemptions)

    Args:
        gpus: GPUs of the job [1]
        failures_per_gpu_hour: interruptions for each GPU-hour [1/GPU-h]
        instances: machines of the job [1]
        preemptions_per_instance_hour: how often one machine is taken back [1/instance-h]

    Returns:
        mean time between interruptions, M [s]

    Source:
        independent failures: rates add

    >>> interruption_seconds(1000, 1e-5, 125, 8e-5)
    180000.0
    """
    per_hour = gpus * failures_per_gpu_hour + instances * preemptions_per_instance_hour
    return 3600 / per_hour


def young_interval_seconds(checkpoint_seconds: float, failure_seconds: float) -> float:
    """Time between checkpoints that wastes least for one job, to first order.

    Formula:
        sqrt(2 delta M)

    Args:
        checkpoint_seconds: stall of one checkpoint, delta [s]
        failure_seconds: mean time between the job's interruptions, M [s]

    Returns:
        the interval [s]

    Source:
        Young 1974, doi:10.1145/361147.361115

    >>> young_interval_seconds(30.0, 15_000.0)
    948.6832980505138
    """
    return sqrt(2 * checkpoint_seconds * failure_seconds)


def daly_interval_seconds(checkpoint_seconds: float, failure_seconds: float) -> float:
    """Time between checkpoints that wastes least for one job, where stalls are not much shorter than failures are rare.

    Formula:
        sqrt(2 delta M) (1 + sqrt(delta / 2 M) / 3 + delta / 18 M) - delta where delta < 2 M, else M

    Args:
        checkpoint_seconds: stall of one checkpoint, delta [s]
        failure_seconds: mean time between the job's interruptions, M [s]

    Returns:
        the interval [s]

    Source:
        Daly 2006, doi:10.1016/j.future.2004.11.016, equation 37

    >>> round(daly_interval_seconds(200.0, 10_000.0), 1)
    1868.9
    """
    if checkpoint_seconds >= 2 * failure_seconds:
        return failure_seconds
    half = checkpoint_seconds / (2 * failure_seconds)
    return young_interval_seconds(checkpoint_seconds, failure_seconds) * (1 + sqrt(half) / 3 + half / 9) - (
        checkpoint_seconds
    )


def snapshot_seconds(written_bytes: float, gpus: int, host_bytes_per_s: float) -> float:
    """Stall of an asynchronous checkpoint: every GPU copies its share of the state to host memory.

    Formula:
        checkpoint bytes / (GPUs x host link)

    Args:
        written_bytes: a checkpoint of the whole job [byte]
        gpus: GPUs of the job [1]
        host_bytes_per_s: rate from one GPU to its host [byte/s]

    Returns:
        the stall [s]

    Source:
        definition; every tensor is copied once, by one of the ranks that hold it (torch.distributed.checkpoint)

    >>> snapshot_seconds(112e9, 8, 56e9)
    0.25
    """
    return written_bytes / (gpus * host_bytes_per_s)


def write_seconds(written_bytes: float, write_bytes_per_s: float) -> float:
    """Time to write one checkpoint to storage.

    Formula:
        checkpoint bytes / rate of the storage

    Args:
        written_bytes: a checkpoint of the whole job [byte]
        write_bytes_per_s: rate at which the whole job writes [byte/s]

    Returns:
        the time [s]

    Source:
        definition

    >>> write_seconds(112e9, 2e9)
    56.0
    """
    return written_bytes / write_bytes_per_s


def checkpoint_waste_fraction(checkpoint_seconds: float, interval_seconds: float) -> float:
    """Time that checkpoints take over the time of the steps between them.

    Formula:
        delta / tau

    Args:
        checkpoint_seconds: stall of one checkpoint, delta [s]
        interval_seconds: time between checkpoints, tau [s]

    Returns:
        share of the useful time [1]

    Source:
        Daly 2006, doi:10.1016/j.future.2004.11.016

    >>> checkpoint_waste_fraction(30.0, 600.0)
    0.05
    """
    return checkpoint_seconds / interval_seconds


def lost_work_fraction(interval_seconds: float, failure_seconds: float) -> float:
    """Work done again after interruptions, half an interval each, over the useful time.

    Formula:
        (tau / 2) / M

    Args:
        interval_seconds: time between checkpoints, tau [s]
        failure_seconds: mean time between the job's interruptions, M [s]

    Returns:
        share of the useful time [1]

    Source:
        Daly 2006, doi:10.1016/j.future.2004.11.016, first order

    >>> lost_work_fraction(600.0, 15_000.0)
    0.02
    """
    return interval_seconds / 2 / failure_seconds


def restart_fraction(restart_seconds: float, failure_seconds: float) -> float:
    """Time without steps after interruptions over the useful time.

    Formula:
        R / M

    Args:
        restart_seconds: time from an interruption to the first new step, R [s]
        failure_seconds: mean time between the job's interruptions, M [s]

    Returns:
        share of the useful time [1]

    Source:
        Daly 2006, doi:10.1016/j.future.2004.11.016

    >>> restart_fraction(600.0, 15_000.0)
    0.04
    """
    return restart_seconds / failure_seconds


def goodput_fraction(checkpoints_fraction: float, lost_work_fraction: float, restarts_fraction: float) -> float:
    """Useful share of the wall time of one job.

    Formula:
        1 / (1 + delta / tau + (tau / 2 + R) / M)

    Args:
        checkpoints_fraction: time of checkpoints over useful time, delta / tau [1]
        lost_work_fraction: time of work done again over useful time, tau / 2 M [1]
        restarts_fraction: time of restarts over useful time, R / M [1]

    Returns:
        share of the wall time [1]

    Source:
        Daly 2006, doi:10.1016/j.future.2004.11.016, first order

    >>> goodput_fraction(0.05, 0.15, 0.05)
    0.8
    """
    return 1 / (1 + checkpoints_fraction + lost_work_fraction + restarts_fraction)


def lost_days(ideal_days: float, waste_fraction: float) -> float:
    """Wall time of a run that one kind of waste takes.

    Formula:
        ideal days x waste

    Args:
        ideal_days: wall time if nothing were lost [d]
        waste_fraction: time of the waste over useful time [1]

    Returns:
        days [d]

    Source:
        definition

    >>> lost_days(40.0, 0.05)
    2.0
    """
    return ideal_days * waste_fraction
