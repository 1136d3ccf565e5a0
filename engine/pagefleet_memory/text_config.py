"""Finding the text model inside a config.json that wraps it, under its own or a fork's names."""

from collections.abc import Mapping
from dataclasses import dataclass

from pagefleet_memory.config_fields import Config, read_mapping, read_str

_WRAPPED = ("thinker_config", "text_config")
# ChatGLM's names, and the common ones.
_CHATGLM = (
    ("num_layers", "num_hidden_layers"),
    ("ffn_hidden_size", "intermediate_size"),
    ("multi_query_group_num", "num_key_value_heads"),
    ("kv_channels", "head_dim"),
    ("seq_length", "max_position_embeddings"),
    ("padded_vocab_size", "vocab_size"),
    ("add_qkv_bias", "attention_bias"),
)


@dataclass(frozen=True, slots=True)
class TextConfig:
    """The text model's section, and the sections around it from the outside in."""

    config: Config
    model_type: str
    wrappers: tuple[Config, ...]

    @property
    def wrapper_type(self) -> str:
        """The outermost model type; empty where nothing wraps the text model."""
        return read_str(self.wrappers[0], "model_type", default="") if self.wrappers else ""

    def section(self, name: str) -> Mapping[str, object] | None:
        """A section beside the text model or in it: a tower's."""
        for config in (*reversed(self.wrappers), self.config):
            found = read_mapping(config, name)
            if found is not None:
                return found
        return None


def text_config(config: Config) -> TextConfig:
    """The innermost text section; a flat config is its own."""
    wrappers: list[Config] = []
    wrapper_type = "multimodal"
    for key in _WRAPPED:
        inner = read_mapping(config, key)
        if inner is not None:
            wrapper_type = read_str(config, "model_type", default=wrapper_type)
            wrappers.append(config)
            config = inner
    default = f"{wrapper_type}_text" if wrappers else ""
    model_type = read_str(config, "model_type", default=default)
    if model_type == "chatglm":
        config = _common_names(config)
    return TextConfig(config, model_type, tuple(wrappers))


def _common_names(config: Config) -> Config:
    renamed = {name: config[other] for other, name in _CHATGLM if other in config}
    return {**config, **renamed}
