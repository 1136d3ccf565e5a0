"""Small tensors from the host to the device, without waiting for it."""

import torch


def to_device(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type != "cuda":
        return host
    return host.pin_memory().to(device, non_blocking=True)
