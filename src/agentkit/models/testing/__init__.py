"""Models for tests, public: they follow a script and fail where a provider would; and a switch that keeps a process on
loopback. `agentkit.models.testing.provider` is a whole provider behind a socket."""

from __future__ import annotations

from .loopback import ForeignHostError, loopback_only, loopback_required, require_loopback
from .scripted import Fault, Received, Rule, Script, ScriptedLLM, Turn

__all__ = [
    "Fault",
    "ForeignHostError",
    "Received",
    "Rule",
    "Script",
    "ScriptedLLM",
    "Turn",
    "loopback_only",
    "loopback_required",
    "require_loopback",
]
