"""From adjusted logits to token ids: what a request asks for, and who draws."""
