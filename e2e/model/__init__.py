"""The demo's model: SmolLM2-135M-Instruct as an ordinary Hugging Face folder."""

from e2e.model.folder import ModelError, built_model_folder, model_folder

__all__ = ["ModelError", "built_model_folder", "model_folder"]
