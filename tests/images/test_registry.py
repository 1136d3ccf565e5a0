"""Asking for a tag and giving a second one, against a small registry over real HTTP."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from e2e.images.registry import MANIFEST, Registry


class Manifests(BaseHTTPRequestHandler):
    """Keeps manifests by path, as the registry's API does."""

    stored: dict[str, bytes] = {}

    def do_HEAD(self) -> None:
        self._answer(200 if self.path in self.stored else 404, b"")

    def do_GET(self) -> None:
        self._answer(200, self.stored[self.path])

    def do_PUT(self) -> None:
        assert self.headers["Content-Type"] == MANIFEST
        self.stored[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(201, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    Manifests.stored = {"/v2/pagefleet/engine/manifests/abc": b'{"layers": []}'}
    with ThreadingHTTPServer(("127.0.0.1", 0), Manifests) as server:
        Thread(target=server.serve_forever).start()
        yield Registry(f"127.0.0.1:{server.server_port}")
        server.shutdown()


def test_a_tag_is_there_or_not(registry: Registry) -> None:
    assert registry.has("pagefleet/engine", "abc")
    assert not registry.has("pagefleet/engine", "other")


def test_a_second_tag_names_the_same_manifest(registry: Registry) -> None:
    registry.alias("pagefleet/engine", "abc", second="dev")
    assert Manifests.stored["/v2/pagefleet/engine/manifests/dev"] == b'{"layers": []}'
