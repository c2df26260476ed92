"""Agents: the loop around a model, and what it sends."""

from __future__ import annotations

from .agent import Agent
from .cognition import Cognition, SingleCallCognition
from .delegation import AgentTool
from .hooks import Compaction, Hooks
from .late import deliver_result
from .output import OutputAdapter, TypeOutput
from .react import ReActCognition
from .records import store_checkpointer
from .request_builder import BuiltRequest, RequestBuilder
from .results import AgentResult, Suspended
from .stop import MaxCost, MaxTokens, Step, StopCondition, TextMatches, ToolCalled
from .tools import FunctionTool, Tool, ToolResult, tool

__all__ = [
    "Agent",
    "AgentResult",
    "AgentTool",
    "BuiltRequest",
    "Cognition",
    "Compaction",
    "FunctionTool",
    "Hooks",
    "MaxCost",
    "MaxTokens",
    "OutputAdapter",
    "ReActCognition",
    "RequestBuilder",
    "SingleCallCognition",
    "Step",
    "StopCondition",
    "Suspended",
    "TextMatches",
    "Tool",
    "ToolCalled",
    "ToolResult",
    "TypeOutput",
    "deliver_result",
    "store_checkpointer",
    "tool",
]
