"""Where a model lies and what its headers say: sources, the inspection pod, its program."""
