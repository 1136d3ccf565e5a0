"""The paged-KV inference engine: continuous batching behind an OpenAI-compatible server."""

import os

# Compute threads that spin while they wait keep the front end, and each other, off the processor:
# on two busy cores a step takes three times as long. OpenMP reads this once, when torch loads it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
