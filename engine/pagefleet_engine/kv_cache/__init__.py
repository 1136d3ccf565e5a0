"""The paged KV cache: which blocks exist, who holds them, what they contain, and the tensors."""
