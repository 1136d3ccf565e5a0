"""The HTTP API: OpenAI's endpoints and those that Kubernetes and the operator use."""
