"""Electricity of a run, and the carbon that comes with it."""


def gpu_watts(
    board_watts: float, limit_watts: float, host_power_fraction: float, power_fraction: float, pue: float
) -> float:
    """Power at the meter of one GPU with its share of host, network and building.

    Formula:
        (min(limit, load x board power) + load x host share x board power) x PUE

    Args:
        board_watts: rated power of one GPU board [W]
        limit_watts: what the board may draw, its rated power where nothing limits it [W]
        host_power_fraction: rated power of hosts and network over that of the boards [1]
        power_fraction: power of the node over its rated power [1]
        pue: energy of the building over that of its machines [1]

    Returns:
        power at the meter [W]

    Source:
        Patterson et al. 2021, arXiv:2104.10350, section 2.5, rated power split into boards and hosts

    >>> gpu_watts(500.0, 500.0, 0.5, 0.8, 1.25), gpu_watts(500.0, 300.0, 0.5, 0.8, 1.25)
    (750.0, 625.0)
    """
    load_watts = power_fraction * board_watts
    return (min(limit_watts, load_watts) + load_watts * host_power_fraction) * pue


def energy_kwh(busy_gpu_hours: float, busy_watts: float, idle_gpu_hours: float, idle_watts: float) -> float:
    """Energy of a run: GPUs at work and GPUs that wait, each with its share of hosts and building.

    Formula:
        (busy GPU-hours x busy power + idle GPU-hours x idle power) / 1000

    Args:
        busy_gpu_hours: GPU-hours in which steps and checkpoints run [h]
        busy_watts: power at the meter of one GPU at work [W]
        idle_gpu_hours: GPU-hours of spares, and of restarts [h]
        idle_watts: power at the meter of one GPU that waits [W]

    Returns:
        energy of the run [kWh]

    Source:
        definition

    >>> energy_kwh(1000.0, 700.0, 100.0, 200.0)
    720.0
    """
    return (busy_gpu_hours * busy_watts + idle_gpu_hours * idle_watts) / 1000


def carbon_kg_co2e(used_kwh: float, grid_kg_co2e_per_kwh: float) -> float:
    """Greenhouse gases of the electricity of a run; making the hardware is not counted.

    Formula:
        energy x carbon intensity of the grid

    Args:
        used_kwh: energy of the run [kWh]
        grid_kg_co2e_per_kwh: carbon intensity of its electricity [kgCO2e/kWh]

    Returns:
        carbon dioxide equivalent of the run [kgCO2e]

    Source:
        Patterson et al. 2021, arXiv:2104.10350, section 2.5

    >>> carbon_kg_co2e(1000.0, 0.25)
    250.0
    """
    return used_kwh * grid_kg_co2e_per_kwh
