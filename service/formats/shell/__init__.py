"""Shell scripts: their grammar, and the commands that they start, without running any."""
