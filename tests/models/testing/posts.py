"""Requests made by hand, for bodies that no client library would send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any

from agentkit.models.testing.provider import FakeProvider

HEADERS = {
    "content-type": "application/json",
    "x-api-key": "k",
    "authorization": "Bearer k",
    "x-goog-api-key": "k",
    "anthropic-version": "2023-06-01",
}


def post(
    provider: FakeProvider, path: str, body: Any, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Status and JSON of the answer. `body`: bytes as they are, or what JSON holds; an empty header is left out."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {name: value for name, value in {**HEADERS, **(headers or {})}.items() if value}
    connection = HTTPConnection("127.0.0.1", int(provider.url.rpartition(":")[2]), timeout=20)
    try:
        connection.request("POST", path, raw, sent)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
