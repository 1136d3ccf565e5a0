"""Scoring of the memory model's `vllm` profile on observed runs."""
