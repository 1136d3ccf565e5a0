"""What a quantized KV cache costs: over a text, and on keys with channels that stand out."""
