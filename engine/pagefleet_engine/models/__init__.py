"""The model layer: Transformers modules over a packed batch and a paged cache."""
