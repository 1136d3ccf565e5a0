"""Replacements for single modules of a Transformers model."""
