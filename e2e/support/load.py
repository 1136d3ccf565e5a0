"""A bounded load on one fleet, every request on its own connection, every failure kept."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from e2e.support.chat import post

PROMPT = "Tell me, in a few plain sentences, how a river finds its way from the hills to the sea. "


@dataclass(slots=True)
class Load:
    """Some workers that ask again as soon as they are answered, until stopped."""

    url: str
    model: str
    workers: int
    max_tokens: int
    prompt_repeats: int = 1
    most_requests: int = 2000
    finished: int = 0
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for number in range(self.workers):
            thread = threading.Thread(target=self._work, args=(number,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, *, timeout: float = 300) -> None:
        """Send no more requests and wait until the running ones are answered."""
        self._stop.set()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not any(t.is_alive() for t in self._threads), "requests never ended"

    def _work(self, number: int) -> None:
        count = 0
        while not self._stop.is_set() and self.finished < self.most_requests:
            count += 1
            self._ask(f"{number}.{count}: " + PROMPT * self.prompt_repeats)

    def _ask(self, prompt: str) -> None:
        try:
            answer = post(f"{self.url}/v1/completions", self._body(prompt), timeout=300)
            problem = "" if answer["usage"]["completion_tokens"] == self.max_tokens else str(answer)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            time.sleep(0.5)
        with self._lock:
            self.finished += 1
            if problem:
                self.failures.append(problem)

    def _body(self, prompt: str) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }


@contextmanager
def under_load(load: Load) -> Iterator[Load]:
    """Keep the load on inside the block; the caller judges its failures afterwards."""
    load.start()
    try:
        yield load
    finally:
        load.stop()
