"""A client of the HTTP API that hides nothing: status, headers and the JSON of each answer."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.wire.conftest import START_SECONDS, RunningBroker


@dataclass(frozen=True)
class Answered:
    """One answer; ``body`` is None where there is none."""

    status: int
    headers: dict[str, str]
    body: Any

    @property
    def error(self) -> str:
        """The reason of a refusal."""
        return str(self.body["error"])


class Api:
    """Requests to one broker, each on a connection of its own, from an address of this machine."""

    def __init__(self, broker: RunningBroker, prefix: str = "/api/v1", source: str = "127.0.0.1") -> None:
        self.port = broker.http_port
        self._prefix = prefix
        self._source = source

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answered:
        """Any request; a body goes as JSON unless it is ``raw``."""
        content = json.dumps(body).encode() if raw is None and body is not None else raw
        kind = {} if content is None else {"Content-Type": "application/json"}
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=START_SECONDS, source_address=(self._source, 0)
        )
        try:
            connection.request(method, self._prefix + path, content, kind | (headers or {}))
            response = connection.getresponse()
            data = response.read()
            found = {name.lower(): value for name, value in response.getheaders()}
            is_json = found.get("content-type") == "application/json"
            return Answered(response.status, found, json.loads(data) if is_json else data or None)
        finally:
            connection.close()

    def get(self, path: str, status: int = 200) -> Any:
        """The body of an answer that has that status."""
        return self._expect(self.call("GET", path), status)

    def post(self, path: str, body: object, status: int = 200) -> Any:
        """The same for POST."""
        return self._expect(self.call("POST", path, body), status)

    def patch(self, path: str, body: object, status: int = 200) -> Any:
        """The same for PATCH."""
        return self._expect(self.call("PATCH", path, body), status)

    def put(self, path: str, body: object, status: int = 200) -> Any:
        """The same for PUT."""
        return self._expect(self.call("PUT", path, body), status)

    def delete(self, path: str, body: object = None, status: int = 204) -> Any:
        """The same for DELETE."""
        return self._expect(self.call("DELETE", path, body), status)

    @staticmethod
    def _expect(answered: Answered, status: int) -> Any:
        assert answered.status == status, answered
        return answered.body


def quoted(name: str) -> str:
    """A name as a path holds it."""
    return quote(name, safe="")
