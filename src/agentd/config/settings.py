"""The whole document as one frozen value: the one place that knows keys and defaults. Values only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field

from agentd.config.section import Section
from agentd.config.serving import A2a, Interface, Lifecycle, Mcp, Observability, Security, Store
from agentd.config.thinking import Agent, Context, Intelligence, Knowledge, Limits, Memory, Skills, Tools, Trigger
from agentkit.core.contracts.jsontext import canonical_json


class Settings(Section):
    """Configuration of one instance."""

    agent: Agent = Field(default_factory=lambda: Agent())
    intelligence: Intelligence
    context: Context = Context()
    memory: Memory = Memory()
    skills: Skills = Skills()
    knowledge: Knowledge = Knowledge()
    mcp: Mcp = Mcp()
    tools: Tools = Tools()
    triggers: tuple[Trigger, ...] = Field(default=(), description="work that comes up by itself")
    limits: Limits = Limits()
    store: Store = Store()
    lifecycle: Lifecycle = Lifecycle()
    a2a: A2a = A2a()
    interface: Interface = Interface()
    observability: Observability = Observability()
    security: Security = Security()

    @property
    def store_kind(self) -> Literal["sqlite", "memory", "postgres"]:
        """The store to open. One that nobody named is memory for a one-shot prompt, which then writes nothing."""
        is_served = self.a2a.listen is not None or self.interface.enabled or bool(self.triggers)
        is_one_shot = self.agent.prompt is not None and not is_served
        return "memory" if is_one_shot and "store" not in self.model_fields_set else self.store.kind

    def store_folder(self, environ: Mapping[str, str]) -> Path:
        """Folder of the store's files: as said, else one of the instance's own in the user's state folder (XDG)."""
        if self.store.path is not None:
            return Path(self.store.path).expanduser()
        state = environ.get("XDG_STATE_HOME", "")
        home = Path(state) if state.startswith("/") else Path(environ.get("HOME", "~")).expanduser() / ".local/state"
        # quote leaves dots alone, and a folder called .. would be somebody else's.
        return home / "agentd" / quote(self.agent.name, safe="").replace(".", "%2E")


def document(settings: Section) -> dict[str, Any]:
    """Settings as the document that gives them, every default written out, secrets as references."""
    dumped: dict[str, Any] = settings.model_dump(mode="json", exclude_none=True)
    return dumped


def digests(settings: Settings) -> dict[str, str]:
    """SHA-256 (hex) of each section, defaults included; of a secret only the reference counts."""
    sections = document(settings)
    return {name: hashlib.sha256(canonical_json(sections[name]).encode()).hexdigest() for name in sorted(sections)}


def digest(settings: Settings) -> str:
    """SHA-256 (hex) of the whole."""
    return hashlib.sha256(canonical_json(digests(settings)).encode()).hexdigest()


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a whole document. A null, which takes a key back to its default, is not in it."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Settings.model_json_schema()}
