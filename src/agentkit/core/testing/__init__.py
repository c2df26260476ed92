"""Public doubles for tests, and the suites that implementations of the ports must pass."""

from __future__ import annotations

from .doubles import FakeClock, FakeTool, RecordedSpan, RecordingTracer
from .fake_llm import FakeLLM
from .fake_memory import FakeMemory
from .faults import FaultyStore
from .run import make_test_ctx
from .store_suite import StoreSuite

__all__ = [
    "FakeClock",
    "FakeLLM",
    "FakeMemory",
    "FakeTool",
    "FaultyStore",
    "RecordedSpan",
    "RecordingTracer",
    "StoreSuite",
    "make_test_ctx",
]
