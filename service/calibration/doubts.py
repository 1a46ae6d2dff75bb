"""What casts doubt on a measurement before anybody looks at its value? A device held back, shared or divided."""

from service.calibration.records import Environment

HELD_BACK = {
    "hw_slowdown": "the board lowered its clock",
    "hw_thermal_slowdown": "the board was too hot",
    "sw_thermal_slowdown": "the device was too hot",
    "hw_power_brake_slowdown": "the power supply asked for less",
}
"""Reasons of drivers for a lower clock that a run of weeks does not have, in words. A limit of power is none of them:
it holds for the run too. Source: NVML API reference, clocks event reasons."""


def doubt_of(environment: Environment) -> str | None:
    """Why nothing should be fitted on what was measured on a device.

    Args:
        environment: what was measured on

    Returns:
        the reason; None where there is none

    >>> from service.calibration.records import Environment
    >>> doubt_of(Environment(kind="cuda", device="H100", devices=8, memory_bytes=8e10, other_processes=1))
    'shared: 1 other process(es) used the device'
    """
    throttled = [HELD_BACK[reason] for reason in environment.throttle_reasons if reason in HELD_BACK]
    if throttled:
        return f"throttled: {', '.join(throttled)}"
    if environment.other_processes:
        return f"shared: {environment.other_processes} other process(es) used the device"
    return "divided: the device is a slice of a GPU" if environment.is_partition else None
