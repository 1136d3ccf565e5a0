"""The memory model: how a model's weights, workspace and KV cache fill an accelerator."""
