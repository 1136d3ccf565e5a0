"""The `vllm` profile: what a vLLM server holds, for scoring the memory model on public logs."""

from pagefleet_memory.vllm.prediction import Prediction, predict
from pagefleet_memory.vllm.release import Release
from pagefleet_memory.vllm.run import Run

__all__ = ["Prediction", "Release", "Run", "predict"]
