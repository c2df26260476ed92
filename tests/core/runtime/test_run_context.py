"""The wiring of one run: tenant, depth, billing, and observers that cannot harm it."""

import logging
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import pytest

from agentkit.core.contracts.errors import MeterExceeded, ScopeError
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.types import ChatRequest, Message, Scope, Usage
from agentkit.core.runtime import Budget, NullCtx, RunContext, RunEvent, ScopedStore, Services, UnscopedStore
from agentkit.core.testing import FakeTool, RecordingTracer
from agentkit.state.stores import InMemoryStore


class LimitedMeter:
    """Allows some calls of each tenant."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self.billed: list[tuple[Scope, Usage]] = []

    def guard(self, scope: Scope, /) -> None:
        if len(self.billed) >= self.allowed:
            raise MeterExceeded("used up")

    def charge(self, scope: Scope, usage: Usage, /) -> None:
        self.billed.append((scope, usage))
        if len(self.billed) > self.allowed:
            raise MeterExceeded("too many")


def test_scope_is_required() -> None:
    """T2."""
    make: Any = RunContext
    with pytest.raises(TypeError):
        make("run-1")
    with pytest.raises(TypeError, match="scope must be a Scope, not NoneType"):
        make("run-1", None)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"correlation_id": ""}, ValueError),
        ({"correlation_id": 5}, TypeError),
        ({"budget": None}, TypeError),
        ({"services": {}}, TypeError),
        ({"autonomy": "full"}, ValueError),
    ],
)
def test_bad_fields_are_named(fields: dict[str, Any], error: type[Exception]) -> None:
    make: Any = RunContext
    with pytest.raises(error, match=next(iter(fields))):
        make(**{"correlation_id": "run-1", "scope": Scope(1), **fields})


def test_child_is_deeper_and_shares() -> None:
    run = RunContext("run-1", Scope(1), Budget(max_depth=2))
    child = run.child()
    assert (child.depth, child.budget, child.services, child.scope) == (1, run.budget, run.services, run.scope)
    with pytest.raises(MeterExceeded, match="depth 3 is beyond the allowed 2"):
        child.child().child()


def test_store_is_the_tenants_part() -> None:
    raw = InMemoryStore()
    run = RunContext("run-1", Scope(1), services=Services(store=raw))
    assert isinstance(run.store, ScopedStore)
    assert (run.store.prefix, run.store.inner, run.store) == ("org1:domNone/", raw, run.store)
    shared = UnscopedStore(raw)
    assert RunContext("run-1", Scope(1), services=Services(store=shared)).store is shared
    assert RunContext("run-1", Scope(1)).store is None


def test_other_tenants_store_is_refused() -> None:
    """T1."""
    services = Services(store=ScopedStore(InMemoryStore(), Scope(1)))
    assert RunContext("run-1", Scope(1), services=services).store is services.store
    with pytest.raises(ScopeError):
        RunContext("run-1", Scope(2), services=services)


def test_events_carry_the_run() -> None:
    events: list[RunEvent] = []
    run = RunContext("run-1", Scope(1), services=Services(observer=events.append))
    run.child().emit("cache.hit", name="m")
    assert events == [RunEvent("cache.hit", "run-1", Scope(1), 1, {"name": "m"})]


def test_failing_observer_is_harmless(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: RunEvent) -> NoReturn:
        raise RuntimeError("sink is gone")

    run = RunContext("run-1", Scope(1), services=Services(observer=fail))
    with caplog.at_level(logging.WARNING):
        run.emit("cache.hit")
    assert "an observer failed on cache.hit" in caplog.text


def test_spans_see_the_failure() -> None:
    tracer = RecordingTracer()
    run = RunContext("run-1", Scope(1), services=Services(trace=tracer))
    with run.span("work", size=3):
        pass
    with pytest.raises(ZeroDivisionError), run.span("broken"):
        1 / 0  # noqa: B018
    assert [(s.name, s.attributes, s.ended, s.error) for s in tracer.spans] == [
        ("work", {"size": 3}, True, None),
        ("broken", {}, True, "ZeroDivisionError"),
    ]


class BrokenSpan(AbstractContextManager[None]):
    def __exit__(self, *exc: object) -> None:
        raise RuntimeError("tracer is gone")


class BrokenTracer:
    def __init__(self, *, at_open: bool) -> None:
        self.at_open = at_open

    def span(self, name: str, /, **attributes: Any) -> AbstractContextManager[None]:
        if self.at_open:
            raise RuntimeError("no tracer")
        return BrokenSpan()


@pytest.mark.parametrize("at_open", [True, False])
def test_failing_tracer_is_harmless(at_open: bool, caplog: pytest.LogCaptureFixture) -> None:
    run = RunContext("run-1", Scope(1), services=Services(trace=BrokenTracer(at_open=at_open)))
    done = False
    with run.span("work"):
        done = True
    assert done
    with pytest.raises(KeyError), run.span("work"):
        raise KeyError("own")
    assert "a tracer failed" in caplog.text


def test_all_accounts_are_billed_first() -> None:
    meters = LimitedMeter(0), LimitedMeter(9)
    run = RunContext("run-1", Scope(1), Budget(max_calls=5), meters=meters)
    with pytest.raises(MeterExceeded, match="too many"):
        run.charge(Usage(1, 1))
    assert [len(m.billed) for m in meters] == [1, 1]
    assert run.budget.calls == 1
    assert meters[1].billed == [(Scope(1), Usage(1, 1))]
    with pytest.raises(MeterExceeded, match="used up"):
        run.guard()


@pytest.mark.anyio
async def test_null_ctx_says_what_is_missing() -> None:
    ctx: Ctx = NullCtx()
    ctx.emit("anything", a=1)
    ctx.guard()
    ctx.charge(Usage(1))
    assert (ctx.store, ctx.cancel) == (None, None)
    request = ChatRequest((Message("user", "hi"),))
    with pytest.raises(RuntimeError, match=r"no invoker to call a model with.*Invoker\(llm\)"):
        await ctx.invoker.chat(request, ctx)
    with pytest.raises(RuntimeError, match="no invoker"):
        ctx.invoker.stream(request, ctx)
    tool = FakeTool()
    with pytest.raises(RuntimeError, match="no invoker to call a tool with"):
        await ctx.invoker.invoke_tool(tool.request(), ctx, tool)


def test_run_context_is_a_ctx() -> None:
    ctx: Ctx = RunContext("run-1", Scope(1))
    assert ctx.correlation_id == "run-1"


def test_path_tells_runs_of_one_request_apart() -> None:
    top = RunContext("run", Scope(1))
    assert (top.path, top.child().path, top.at("2.0").child("critic").path) == ("", "/1", "/2.0/critic")
