"""Agents: the loop around a model, and what it sends."""

from __future__ import annotations

from .agent import Agent
from .cognition import AgentResult, Cognition, SingleCallCognition
from .request_builder import BuiltRequest, OutputAdapter, RequestBuilder

__all__ = [
    "Agent",
    "AgentResult",
    "BuiltRequest",
    "Cognition",
    "OutputAdapter",
    "RequestBuilder",
    "SingleCallCognition",
]
