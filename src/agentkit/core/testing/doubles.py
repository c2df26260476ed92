"""Small doubles: a clock that is moved by hand, a tool that notes its calls, a tracer that notes its spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from agentkit.core.contracts.messages import ToolCall
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.requests import ToolRequest


class FakeClock:
    """A `Clock` that stands still until it is moved; seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move on; ValueError for moving back, since that is `now = ...` and on purpose."""
        if seconds < 0:
            raise ValueError(f"a clock advances by 0 seconds or more, not {seconds}; set .now to put it back")
        self.now += seconds


class FakeTool:
    """A tool body that returns `result`, or what it makes of the arguments where it is callable (sync or async), and
    raises it where it is an exception. `.calls` holds the arguments of each call."""

    def __init__(self, name: str = "fake", result: Any = "ok", *, side_effecting: bool = False) -> None:
        self.name, self.side_effecting = name, side_effecting
        self.calls: list[Mapping[str, Any]] = []
        self._result = result

    def request(self, call_id: str = "call-1", /, **arguments: Any) -> ToolRequest:
        """A call of this tool, as an invoker takes it."""
        return ToolRequest(ToolCall(call_id, self.name, arguments), side_effecting=self.side_effecting)

    async def __call__(self, request: ToolRequest, ctx: Ctx) -> Any:
        self.calls.append(request.arguments)
        if isinstance(self._result, BaseException):
            raise self._result
        if not callable(self._result):
            return self._result
        made = self._result(request.arguments)
        return await made if isawaitable(made) else made


@dataclass
class RecordedSpan:
    """One span: its name and attributes, and how it ended. `error`: the exception's class name."""

    name: str
    attributes: Mapping[str, Any]
    ended: bool = False
    error: str | None = None


class RecordingTracer:
    """A `Tracer` that keeps its spans in order of their start."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    @contextmanager
    def span(self, name: str, /, **attributes: Any) -> Iterator[RecordedSpan]:
        recorded = RecordedSpan(name, attributes)
        self.spans.append(recorded)
        try:
            yield recorded
        except BaseException as error:
            recorded.error = type(error).__name__
            raise
        finally:
            recorded.ended = True
