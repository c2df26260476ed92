"""What opens an endpoint of the settings: one opener per dialect. Touches the files that an endpoint names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentd.config.document import MAX_BYTES, read_text
from agentd.config.merge import plain
from agentkit.core.contracts.errors import FormatError
from agentkit.core.contracts.ports import LLM
from agentkit.models.adapters.replay import ReplayLLM
from agentkit.models.testing import Received, Script, ScriptedLLM
from agentkit.transcripts import load

from .endpoints import Opener, Where
from .providers import open_anthropic, open_gemini, open_openai


def open_replay(where: Where) -> LLM:
    """A recording in any format that agentkit imports, every conversation of it. FormatError if it cannot be read."""
    return ReplayLLM(*(transcript.history for transcript in load(where.file)))


def open_fake(where: Where) -> LLM:
    """A script in YAML or JSON, as `agentkit.models.testing.scripted` has it. FormatError if it cannot be read."""
    path = where.file
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_BYTES:
        raise FormatError(f"{path} has {len(data)} bytes; a script has at most {MAX_BYTES}")
    try:
        node, faults = read_text(data.decode("utf-8-sig"), str(path), lines=True)
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not UTF-8: {error}") from error
    if faults or node is None:
        raise FormatError("\n".join(map(str, faults)))
    script = Script.read(plain(node), str(path))
    writer = None if script.log is None else RequestLog(path.parent / script.log)
    return ScriptedLLM(script, on_request=writer)


class RequestLog:
    """Writes a line of JSON for each request that came: its outcome, its size, digests of its segments, no content."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, received: Received) -> None:
        request = received.request
        told: dict[str, Any] = {
            "outcome": received.outcome,
            "model": request.model,
            "messages": len(request.messages),
            "structured": request.response_format is not None,
            "digests": dict(received.digests),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


DIALECTS: Mapping[str, Opener] = {
    "anthropic": open_anthropic,
    "gemini": open_gemini,
    "openai": open_openai,
    "replay": open_replay,
    "fake": open_fake,
}
