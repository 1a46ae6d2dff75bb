"""What can be measured: one file a probe, each with `run(parameters, told) -> Found`."""
