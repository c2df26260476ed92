"""The durable, self-compacting context of an agent: record, view, reduction, counting. Values and decisions; no I/O.

*Compact* means to fold a transcript here, *memory* the agent's durable keys and values.
"""

from __future__ import annotations

from .record import ROOT, ContextKind, ContextState, Msg, SkillRef, Summary

__all__ = ["ROOT", "ContextKind", "ContextState", "Msg", "SkillRef", "Summary"]
