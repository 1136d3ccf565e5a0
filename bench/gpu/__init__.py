"""What `make gpu-check` measures on a GPU; what can be said without one is pure and unit-tested."""
