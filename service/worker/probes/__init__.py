"""Probes: one file each, with `run(parameters, context) -> ProbeResult`."""
