"""An endpoint of the settings, as what opens it gets it. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from agentd.config import Settings
from agentd.config.secrets import SecretRef
from agentd.config.thinking import Endpoint
from agentkit.core.contracts.ports import LLM


@dataclass(frozen=True)
class Where:
    """An endpoint to open. `folder`: what a relative file name is relative to; None: where the process was started."""

    url: str
    folder: Path | None
    settings: Settings
    endpoint: Endpoint

    @property
    def file(self) -> Path:
        """The file that a URL such as `replay:chat.jsonl` names."""
        scheme, colon, rest = self.url.partition(":")
        name = rest if colon and scheme in ("replay", "fake") else self.url
        return (self.folder or Path()) / name

    @property
    def model(self) -> str:
        """What is asked for here."""
        return self.settings.intelligence.model_of(self.endpoint)

    @property
    def token(self) -> str | None:
        """The credential, revealed: for the client alone."""
        given = self.endpoint.token or self.settings.intelligence.token
        return None if given is None else given.reveal()

    @property
    def headers(self) -> Mapping[str, str]:
        """More headers of each request, secrets revealed: for the client alone."""
        given = self.settings.intelligence.headers
        return {name: value.reveal() if isinstance(value, SecretRef) else value for name, value in given.items()}

    @property
    def timeout(self) -> float:
        """Seconds of one call."""
        return self.settings.intelligence.timeout.total_seconds()

    @property
    def max_output(self) -> int:
        """Tokens of an answer."""
        return self.settings.intelligence.max_output


Opener: TypeAlias = Callable[[Where], LLM]
