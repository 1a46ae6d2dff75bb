"""Training software: stacks, implementations, number formats, optimizers and versions."""
