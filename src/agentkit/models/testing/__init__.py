"""Models for tests, public: they follow a script and fail where a provider would."""

from __future__ import annotations

from .scripted import Fault, Received, Rule, Script, ScriptedLLM, Turn

__all__ = ["Fault", "Received", "Rule", "Script", "ScriptedLLM", "Turn"]
