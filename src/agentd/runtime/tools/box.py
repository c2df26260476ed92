"""All tools of an instance: which are offered to whom, and how a call is run. Awaits the tools themselves.

Whatever goes wrong with a call is a result that the model can read; only the end of the turn, and a record that is not
this process's any more, go through.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from agentd.config import Settings
from agentd.context.record import ToolMsg
from agentd.context.rows import accepted
from agentd.runtime.checking import Checker, UnusableSchema
from agentd.runtime.patterns import matches
from agentd.runtime.principals import Principal, Role
from agentkit.core.contracts.errors import Conflict, Fenced
from agentkit.core.contracts.offers import ToolSchema

from .base import Answer, Desk, EndsTurn, Invocation, Tool, ToolError
from .grants import is_granted
from .names import offered_names, wire_names

log = logging.getLogger("agentd")

OF_THE_RECORD = (Fenced, Conflict)
"""What is no result of a call of the daemon's own tools: it concerns the record that the turn writes. Other tools may
have stores of their own."""
GRACE = 5.0
"""Seconds that a tool has to end in once its time is up; after that it is left behind."""
LEAST = 1.0
"""Seconds between two looks at whether a tool's time is up, once it has asked people."""
MOST_OFFERED = 1_024
"""Senders whose offer is kept ready."""
_SHOWN = 2_000


@dataclass(frozen=True)
class Held:
    """A tool in the box, ready to be offered and called. `name`: as offered; `wire`: as the model calls it."""

    tool: Tool
    name: str
    wire: str
    schema: ToolSchema
    arguments: Checker
    result: Checker | None
    server: str | None = None


class ToolBox:
    """The tools of one instance. `sleep` waits for seconds; it times the calls.

    Raises ValueError for two own tools of one name, UnusableSchema for a tool whose schema is none.
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        settings: Settings | None = None,
        *,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self.settings = settings
        self._sleep = sleep
        self._own: dict[str, Tool] = {}
        self._servers: dict[str, tuple[Tool, ...]] = {}
        self._checkers: dict[tuple[str | None, str], tuple[Tool, Checker, Checker | None]] = {}
        self._held: dict[str, Held] = {}
        self._offered: dict[Principal, tuple[Settings | None, tuple[ToolSchema, ...]]] = {}
        self._names: dict[str, str] = {}
        self._granted: dict[tuple[Role, str], tuple[Settings, list[Held]]] = {}
        for tool in tools:
            if tool.name in self._own:
                raise ValueError(f"two tools are called {tool.name!r}; give one of them another name")
            self._own[tool.name] = tool
        self._arrange()

    # What there is

    def set_server(self, server: str, tools: Iterable[Tool]) -> list[str]:
        """Take over what a server offers now, in place of what it offered before. Returns what is wrong with those
        that are left out; the other tools stay."""
        faults, kept = [], {}
        for tool in tools:
            try:
                self.check(server, tool)
            except UnusableSchema as error:
                faults.append(str(error))
            else:
                if tool.name in kept:
                    faults.append(f"{server} has two tools called {tool.name!r}; the last one counts")
                kept[tool.name] = tool
        self._servers[server] = tuple(kept.values())
        self._arrange()
        return faults

    def remove_server(self, server: str) -> None:
        self._servers.pop(server, None)
        self._arrange()

    def _arrange(self) -> None:
        shown = offered_names(self._own, {server: [t.name for t in tools] for server, tools in self._servers.items()})
        internal = [name for name, tool in self._own.items() if tool.internal]
        wires = wire_names(internal, self._own, shown.values())
        found = [self._made(None, tool, name, wires[name]) for name, tool in self._own.items()]
        for server, tools in self._servers.items():
            found += [self._made(server, t, shown[server, t.name], wires[shown[server, t.name]]) for t in tools]
        self._held = {one.wire: one for one in sorted(found, key=lambda one: one.wire)}
        self._names = {one.name: one.wire for one in found}
        self._offered.clear()
        self._read_only = frozenset(one.wire for one in found if one.tool.read_only)
        self._granted.clear()
        self._checkers = {key: made for key, made in self._checkers.items() if key[0] in (None, *self._servers)}

    def _made(self, server: str | None, tool: Tool, name: str, wire: str) -> Held:
        before = self._held.get(wire)
        if before is not None and before.tool is tool and before.name == name:
            return before  # the same schema object, whose text is made once
        arguments, result = self.check(server, tool)
        schema = ToolSchema(wire, tool.description, tool.parameters)
        return Held(tool, name, wire, schema, arguments, result, server)

    def check(self, server: str | None, tool: Tool) -> tuple[Checker, Checker | None]:
        """What arguments and results of a tool are checked by, compiled once. Raises UnusableSchema."""
        known = self._checkers.get((server, tool.name))
        if known is not None and known[0] is tool:
            return known[1], known[2]
        called = tool.name if server is None else f"{server}.{tool.name}"
        arguments = Checker(tool.parameters, what=f"the input schema of {called}")
        result = None if tool.output is None else Checker(tool.output, what=f"the output schema of {called}")
        self._checkers[server, tool.name] = tool, arguments, result
        return arguments, result

    def find(self, name: str) -> Held | None:
        """A tool by its wire name, or by the name that it is offered as."""
        return self._held.get(name) or self._held.get(self._names.get(name, ""))

    # What is offered

    def granted(self, principal: Principal, settings: Settings | None = None) -> list[Held]:
        """The tools that a sender may use, in the order of their wire names. `settings`: in place of the box's own."""
        given = settings or self.settings
        if given is None:
            raise ValueError("a tool box without settings knows no grants: hand them in")
        whose = principal.role, principal.agent
        known = self._granted.get(whose)
        if known is None or known[0] is not given:  # once for each role and subagent, and again after a reload
            if len(self._granted) >= MOST_OFFERED:
                self._granted.clear()
            found = [held for held in self._held.values() if _may_use(given, principal, held)]
            known = self._granted[whose] = given, found
        return known[1]

    def definitions(self, principal: Principal, settings: Settings | None = None) -> tuple[ToolSchema, ...]:
        """What a request of this sender offers to the model, in canonical order: the same tuple while nothing that it
        follows from has changed, so that it is counted and rendered once."""
        given = settings or self.settings
        known = self._offered.get(principal)
        if known is None or known[0] is not given:
            if len(self._offered) >= MOST_OFFERED:
                self._offered.clear()
            known = self._offered[principal] = given, tuple(held.schema for held in self.granted(principal, given))
        return known[1]

    def told(self, principal: Principal, settings: Settings | None = None) -> list[tuple[str, str, str]]:
        """Name, description and wire name of each tool that a sender may use."""
        return [(held.name, held.tool.description, held.wire) for held in self.granted(principal, settings)]

    # What a tool is like

    def is_read_only(self, name: str) -> bool:
        """Whether a call changes nothing; False for a tool that there is none of."""
        held = self.find(name)
        return held is not None and held.tool.read_only

    def has_effects(self, name: str) -> bool:
        """Whether a call may change something outside, so that it has to be known that it was begun."""
        held = self.find(name)
        return held is not None and not held.tool.read_only and not held.tool.internal

    @property
    def read_only(self) -> frozenset[str]:
        """Wire names of the tools whose calls change nothing."""
        return self._read_only

    @property
    def repeatable(self) -> frozenset[str]:
        """Wire names of the tools whose calls may be run again after a crash. Those of the daemon itself are, since
        what they change is committed with their result: where there is no result, nothing was changed."""
        return frozenset(
            wire
            for wire, held in self._held.items()
            if held.tool.read_only or held.tool.idempotent or held.tool.internal
        )

    # A call

    def holding(self, name: str, desk: Desk) -> AbstractAsyncContextManager[Any]:
        """What a call of this tool holds until what it changes is committed: `async with` it around both."""
        held = self.find(name)
        return nullcontext() if held is None or held.tool.holds is None else held.tool.holds(desk)

    async def dispatch(self, asked: Invocation, *, seconds: float | None = None) -> Answer:
        """Run one call, within `seconds` (default `limits.tool_timeout`). Never raises for what is wrong with it, or
        with its tool."""
        settings = asked.desk.settings
        if (refused := self.refusal(asked.tool, asked.arguments, asked.principal, settings)) is not None:
            return refused
        held = self._held_as(asked.tool)
        limit = settings.limits.tool_timeout.total_seconds() if seconds is None else seconds
        run = held.tool.run(replace(asked, tool=held.tool.name))
        try:
            answer = await (run if held.tool.waits else self._within(limit, run, asked.desk))
            return _acceptable(held, answer)
        except EndsTurn:
            raise
        except ToolError as error:
            return failed(_clipped(str(error) or type(error).__name__))
        except _TimeIsUp:
            which = " (limits.tool_timeout)" if seconds is None else ""
            return failed(f"{held.wire} did not end within {limit:g} s{which} and was stopped")
        except Exception as error:  # a tool is code of others, and its failure is a result like any other
            if held.tool.internal and isinstance(error, OF_THE_RECORD):
                raise
            log.warning("the tool %s failed: %s", held.name, type(error).__name__)
            return failed(_clipped(f"{held.wire} failed: {type(error).__name__}: {error}"))

    def refusal(
        self, tool: str, arguments: Mapping[str, Any], principal: Principal, settings: Settings
    ) -> Answer | None:
        """Why a call is not made: there is no such tool for this sender, or the arguments do not fit. None for one that
        may be made."""
        held = self.find(tool)
        if held is None or not _may_use(settings, principal, held):
            # One text for both: what is not granted is not there.
            return failed(f"there is no tool {_clipped(tool, 80)!r}; {self._have(principal, settings)}")
        if (fault := _argument_fault(held, arguments)) is not None:
            return failed(f"{held.wire} was not run. {fault}")
        return None

    def needs_approval(self, name: str, settings: Settings) -> bool:
        """Whether a person has to approve a call of this tool (`agent.approval`)."""
        held = self.find(name)
        if held is None or not settings.agent.approval:
            return False
        called = {held.name, held.wire, held.tool.name}
        if held.server is not None:
            called.add(f"{held.server}.{held.tool.name}")
        return any(matches(one, settings.agent.approval) for one in called)

    def _held_as(self, name: str) -> Held:
        held = self.find(name)
        if held is None:
            raise LookupError(f"there is no tool {name!r}")
        return held

    def _have(self, principal: Principal, settings: Settings) -> str:
        names = [held.wire for held in self.granted(principal, settings)]
        return f"there are {', '.join(names)}" if names else "there are none"

    async def _within(self, seconds: float, run: Awaitable[Answer], desk: Desk) -> Any:
        job = asyncio.ensure_future(run)
        timer = asyncio.ensure_future(self._time(seconds, desk))
        try:
            await asyncio.wait({job, timer}, return_when=asyncio.FIRST_COMPLETED)
            if job.cancelled():
                raise RuntimeError("it was cancelled from within")
            if not job.done():
                await self._stop(job)
                if not job.done() or job.cancelled():
                    raise _TimeIsUp
            return job.result()
        except asyncio.CancelledError:
            await self._stop(job)
            if not job.done() or job.cancelled() or job.exception() is not None:
                raise
            return job.result()  # a result that is there wins
        finally:
            timer.cancel()
            job.add_done_callback(_look_at)

    async def _time(self, seconds: float, desk: Desk) -> None:
        """The time that a tool has: what people take whom it asks is none of it."""
        before, slept, left = desk.waited, 0.0, seconds
        while left > 0:
            await self._sleep(left)
            slept += left
            left = seconds + desk.waited - before - slept
            if left > 0:
                left = max(left, LEAST)

    async def _stop(self, job: asyncio.Future[Answer]) -> None:
        """Stop a tool. A result that came all the same is there then."""
        if not job.cancel():
            return
        grace = asyncio.ensure_future(self._sleep(GRACE))
        try:
            await asyncio.wait({job, grace}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            grace.cancel()


class _TimeIsUp(Exception):
    pass


def _look_at(job: asyncio.Future[Answer]) -> None:
    """Of a call that nobody waits for any more: its failure is told of nowhere else."""
    if not job.cancelled() and job.exception() is not None:
        log.debug("a tool that was stopped ended with %s", type(job.exception()).__name__)


def failed(text: str) -> Answer:
    """A result that says what went wrong."""
    return Answer(text, is_error=True)


def _may_use(settings: Settings, principal: Principal, held: Held) -> bool:
    tool = held.tool
    if held.server is None:
        return is_granted(settings, principal.role, held.name, internal=tool.internal)
    return is_granted(settings, principal.role, held.name, server=held.server, tool=tool.name)


def _argument_fault(held: Held, arguments: Mapping[str, Any]) -> str | None:
    raw = arguments.get("_raw")
    if len(arguments) == 1 and isinstance(raw, str) and "_raw" not in held.tool.parameters.get("properties", {}):
        return f"Its arguments are no JSON object: {_json_fault(raw)}. Send one object, such as {{}}."
    fault = held.arguments.fault(dict(arguments), of="the arguments")
    return None if fault is None else f"Its arguments are not right: {fault}"


def _json_fault(raw: str) -> str:
    try:
        found = json.loads(raw)
    except json.JSONDecodeError as error:
        near = raw[max(error.pos - 20, 0) : error.pos + 20]
        return f"{error.msg} at character {error.pos}, near {_clipped(near, 60)!r}"
    except (ValueError, RecursionError) as error:
        return _clipped(str(error), 200)
    return (
        f"they are {_clipped(raw, 60)}" if not isinstance(found, dict) else "they hold a value that JSON does not have"
    )


def _acceptable(held: Held, given: Any) -> Answer:
    """The answer with a result that can be stored, or what is wrong with it."""
    if not isinstance(given, Answer):
        return failed(f"{held.wire} was run, but gave a {type(given).__name__} in place of an answer")
    answer: Answer = given
    if not held.tool.internal:
        try:
            msg: Any = accepted(ToolMsg(content=answer.content))[0]
            clean = msgspec.json.decode(msgspec.json.encode(msg.content))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return failed(f"{held.wire} was run, but its result is no JSON: {_clipped(str(error), 300)}")
        answer = replace(answer, content=clean)
    if held.result is not None and not answer.is_error:
        fault = held.result.fault(answer.content, of="the result")
        if fault is not None:
            return failed(f"{held.wire} was run, but its result is not what it promises: {fault}")
    return answer


def _clipped(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
