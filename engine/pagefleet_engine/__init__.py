"""The paged-KV inference engine: continuous batching behind an OpenAI-compatible server."""
