"""Tokenizer: the model's own tokenizer and chat template, off the event loop."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagefleet_engine.errors import ModelLoadError, ParameterError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = Mapping[str, Any]


def keep_torch_out() -> None:
    """Make this process's transformers work without torch, whose import costs 0.6 GB here.

    For a process that only tokenizes; it must be called before transformers is imported.
    """
    sys.modules["torch"] = None  # type: ignore[assignment]  # to Python: it cannot be imported
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    """How a chat is rendered into a prompt."""

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    variables: Mapping[str, Any] | None = None


class Tokenizer:
    """Encodes in one worker thread, because a long prompt takes as long as many steps."""

    def __init__(self, inner: "PreTrainedTokenizerBase") -> None:
        self._inner = inner
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tokenizer")

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        if not path.is_dir():
            raise ModelLoadError(f"there is no model folder at {path}")
        from transformers import AutoTokenizer  # slow to import: the server listens before

        try:
            return cls(AutoTokenizer.from_pretrained(str(path), local_files_only=True))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelLoadError(f"cannot load the tokenizer in {path}: {error}") from error

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._encode, text, add_special_tokens)

    async def encode_chat(
        self, messages: Sequence[Message], options: TemplateOptions
    ) -> tuple[int, ...]:
        """Render the chat template and encode the result; the template brings its own specials."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._encode_chat, messages, options)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        # clean_up would rewrite spaces across pieces that were already sent.
        text = self._inner.decode(
            list(token_ids),
            skip_special_tokens=skip_special_tokens,
            clean_up_tokenization_spaces=False,
        )
        assert isinstance(text, str), "one list of ids decodes to one text"
        return text

    def _encode(self, text: str, add_special_tokens: bool) -> tuple[int, ...]:
        encoded = self._inner(
            text, add_special_tokens=add_special_tokens, truncation=False, verbose=False
        )
        return tuple(encoded["input_ids"])

    def _encode_chat(
        self, messages: Sequence[Message], options: TemplateOptions
    ) -> tuple[int, ...]:
        return self._encode(self._render(messages, options), False)

    def _render(self, messages: Sequence[Message], options: TemplateOptions) -> str:
        if self._inner.chat_template is None:
            raise ParameterError(
                "messages", "chat", "this model has no chat template; use /v1/completions"
            )
        try:
            rendered = self._inner.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=options.add_generation_prompt,
                continue_final_message=options.continue_final_message,
                **(options.variables or {}),
            )
        except Exception as error:  # templates raise what they like: jinja errors, TypeError, ...
            raise ParameterError("messages", "chat", f"the chat template says: {error}") from error
        assert isinstance(rendered, str), "tokenize=False renders text"
        return rendered
