"""Attention of one sequence in float64, written from its definition: the oracle of the oracles."""

import torch


def dense_attention(
    query: torch.Tensor,  # [query_len, num_heads, head_dim], the last tokens of the sequence
    key: torch.Tensor,  # [num_kv_heads, seq_len, head_dim]
    value: torch.Tensor,  # [num_kv_heads, seq_len, v_head_dim]
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
) -> torch.Tensor:
    """[query_len, num_heads, v_head_dim] float64: one token and one head after the other."""
    group = query.shape[1] // key.shape[0]
    known = key.shape[1] - query.shape[0]
    out = torch.zeros(*query.shape[:2], value.shape[2], dtype=torch.float64)
    for token, rows in enumerate(query.double()):
        position = known + token
        first = 0 if window is None else max(0, position - window + 1)
        for head, row in enumerate(rows):
            seen = slice(first, position + 1)
            scores = key[head // group, seen].double() @ row * scale
            if softcap is not None:
                scores = softcap * (scores / softcap).tanh()
            if alibi_slopes is not None:
                distance = position - torch.arange(first, position + 1)
                scores = scores - float(alibi_slopes[head]) * distance
            weights = scores.exp()
            total = weights.sum()
            if sinks is not None:
                total = total + sinks[head].double().exp()
            out[token, head] = weights @ value[head // group, seen].double() / total
    return out
