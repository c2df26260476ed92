"""What the tools of a turn do with work beside it: background runs, subagents, waiting for either. Works through the
turn's writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from agentd.config.values import parse_duration
from agentd.context.record import Parent
from agentkit.agents.loop import Loop

from .background import Run
from .child import Child, first_message, require_schema
from .effects import key_of
from .gates import Gates, place_of
from .seeds import seeds
from .tools.base import Invocation, ToolError
from .waits import Wait
from .writer import Running, Writer

T = TypeVar("T")


class Working(Running, Protocol):
    """A turn, as far as work beside it has to know it."""

    @property
    def loop(self) -> Loop: ...

    @property
    def deadline(self) -> float: ...


class Beside:
    """The work beside one turn."""

    def __init__(self, writer: Writer, turn: Working, gates: Gates) -> None:
        self._writer, self._turn, self._gates = writer, turn, gates
        self._services, self._held = writer.services, writer.held
        self._do: Mapping[str, Callable[[Invocation, Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "run.start": self._start_run,
            "run.status": self._run_status,
            "run.await": self._await_run,
            "run.cancel": self._cancel_run,
            "subagent.run": self._run_subagent,
            "subagent.send": self._send,
            "subagent.status": self._subagent_status,
            "subagent.await": self._await_subagent,
            "subagent.kill": self._kill,
            "subagent.list": self._list,
            "await": self._await,
        }

    async def do(self, op: str, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the tool `op` answers. Raises ToolError."""
        return await self._do[op](call, given)

    # Runs

    async def _start_run(self, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        runs, box, place = self._services.runs, self._services.box, place_of(call, "run")
        if (known := await runs.find(place)) is not None:
            return known.told
        held = box.find(given["tool"])
        if held is not None and held.tool.internal:
            raise ToolError(f"{held.name} is one of the agent's own tools: call it directly")
        arguments = dict(given.get("arguments", {}))
        refused = box.refusal(given["tool"], arguments, self._turn.sender, self._turn.settings)
        if refused is not None or held is None:
            raise ToolError(str(refused.content) if refused is not None else "there is no such tool")
        if box.needs_approval(held.wire, self._turn.settings):
            inner = replace(call, tool=held.wire, arguments=arguments)
            if (denied := await self._gates.approve(inner)) is not None:
                raise ToolError(str(denied.content))
        most = self._turn.settings.limits.run.deadline.total_seconds()
        seconds = min(_seconds(given.get("deadline")) or most, most)
        run = Run(
            id=place, context=call.context, turn=call.turn, tool=held.wire, arguments=arguments,
            key=key_of(call.context, call.turn, call.round, call.index), principal=self._turn.sender.id,
            role=self._turn.sender.role, seconds=seconds,
        )  # fmt: skip
        return (await runs.start(run)).told

    async def _run(self, id: str) -> Run:
        run = await self._services.runs.find(id)
        if run is None or not self._reaches(run.context):
            raise ToolError(f"there is no run {id!r:.120}")
        return run

    async def _run_status(self, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        return (await self._run(given["id"])).told

    async def _await_run(self, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        run = await self._run(given["id"])
        await self._until(call, given, partial(self._services.runs.until_ended, run.id))
        return (await self._run(run.id)).told

    async def _cancel_run(self, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        run = await self._run(given["id"])
        return (run if run.ended else await self._services.runs.cancel(run, "cancelled by who started it")).told

    # Subagents

    async def _run_subagent(self, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        subagents, settings = self._services.subagents, self._turn.settings
        child = await subagents.find(place_of(call, "subagent"))
        if child is None:
            skills, schema = given.get("skills", ()), given.get("output_schema")
            require_schema(schema)
            text = first_message(given["instruction"], schema, skills, settings.skills.reference_prefix)
            seed = partial(self._seed, given.get("context", "none"), call)
            child = await subagents.start(self._made(call, given), text, settings, seed)
        if child.mode == "sync" and not child.ended:
            child = await self._writer.parked(partial(subagents.until_ended, child.id))
        return child.told

    def _made(self, call: Invocation, given: Mapping[str, Any]) -> Child:
        """The subagent that the call describes: nothing of it wider than what its parent has."""
        turn, limits, asked = self._turn, self._turn.settings.limits.run, given.get("limits", {})
        granted = [held.name for held in self._services.box.granted(turn.sender, turn.settings)]
        wires = {held.wire: held.name for held in self._services.box.granted(turn.sender, turn.settings)}
        tools = [wires.get(name, name) for name in given.get("tools", granted)]
        if unknown := [name for name in tools if name not in granted]:
            raise ToolError(f"you have no tool {unknown[0]!r:.80} to hand on; there are {', '.join(granted)}")
        rest = {
            "steps": limits.steps - turn.loop.steps,
            "tokens": self._services.subagents.shares.left(turn.id),
            "seconds": turn.deadline - self._services.clock() / 1000,
        }
        wanted = {
            "steps": asked.get("steps"),
            "tokens": asked.get("tokens"),
            "seconds": _seconds(asked.get("deadline")),
        }
        chosen = {name: min(left, wanted[name] or left) for name, left in rest.items()}
        if short := [name for name, left in chosen.items() if left <= 0]:
            raise ToolError(f"no {short[0]} are left for a subagent")
        return Child(
            id=place_of(call, "subagent"), context=call.context, turn=call.turn, task="", root=call.context, depth=1,
            mode=given.get("mode", "sync"), principal=turn.sender.id, role=turn.sender.role, tools=tuple(tools),
            steps=int(chosen["steps"]), tokens=int(chosen["tokens"]), seconds=float(chosen["seconds"]),
            schema=given.get("output_schema"),
        )  # fmt: skip

    async def _seed(self, how: str, call: Invocation, writer: Writer) -> None:
        """What the conversation of a subagent begins with. Nothing is added to what an earlier life has written."""
        if writer.held.state.parent is None:
            writer.held.update(parent=Parent(call.context, call.turn, place_of(call, "subagent")))
            for body in seeds(how, self._held, call.call, self._turn.settings.context.summary.max_tokens):
                writer.held.append(body, now=self._services.clock(), source="runtime")
            writer.held.recount()
        await writer.commit()

    async def _child(self, handle: str) -> Child:
        child = await self._services.subagents.find(handle)
        if child is None or not self._reaches(child.context):
            raise ToolError(f"there is no subagent {handle!r:.120}")
        return child

    def _reaches(self, context: str) -> bool:
        """Whether the turn may reach the runs and subagents of a conversation: its own, and operators' turns all."""
        sender = self._turn.sender
        return context == self._held.id or (sender.role in ("root", "operator") and not sender.agent)

    async def _send(self, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        child = await self._child(given["handle"])
        if child.turn != self._turn.id:
            raise ToolError("the turn that it worked for has ended; start another one")
        key = key_of(call.context, call.turn, call.round, call.index)
        return (await self._services.subagents.say(child, given["text"], f"subagent:{key}")).told

    async def _subagent_status(self, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        return (await self._child(given["handle"])).told

    async def _await_subagent(self, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        child = await self._child(given["handle"])
        await self._until(call, given, partial(self._services.subagents.until_ended, child.id))
        return (await self._child(child.id)).told

    async def _kill(self, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        child = await self._child(given["handle"])
        if not child.ended:
            self._services.subagents.kill(child, "killed by who started it")
            child = await self._writer.parked(partial(self._services.subagents.until_ended, child.id))
        return child.told

    async def _list(self, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        mine = self._services.subagents.of_turn(self._turn.id)
        return {"handles": [{"handle": one.id, "state": one.state} for one in mine]}

    # Waiting

    async def _await(self, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        if ("any" in given) == ("all" in given):
            raise ToolError("give either any or all, with the ids of runs and subagents")
        ids = list(dict.fromkeys(given.get("any", given.get("all"))))
        work = {id: await self._ending(id) for id in ids}
        how = asyncio.FIRST_COMPLETED if "any" in given else asyncio.ALL_COMPLETED
        await self._until(call, given, partial(_first, work.values(), how))
        ended = [told for id in ids if (told := await self._told(id))["state"] != "working"]
        is_over = bool(ended) if "any" in given else len(ended) == len(ids)
        return {"woken_by": "work" if is_over else "time", "ended": ended}

    async def _ending(self, id: str) -> Callable[[], Coroutine[Any, Any, Any]]:
        child = await self._services.subagents.find(id)
        if child is not None and self._reaches(child.context):
            return partial(self._services.subagents.until_ended, id)
        return partial(self._services.runs.until_ended, (await self._run(id)).id)

    async def _told(self, id: str) -> dict[str, Any]:
        child = await self._services.subagents.find(id)
        return (await self._run(id)).told if child is None else child.told

    async def _until(
        self, call: Invocation, given: Mapping[str, Any], work: Callable[[], Coroutine[Any, Any, Any]]
    ) -> None:
        """Wait for work without a slot, or until the time is over that the first life has begun."""
        seconds = _seconds(given.get("timeout"))
        if seconds is None:
            await self._writer.parked(work)
            return
        now = self._services.clock()
        wait = await self._writer.begin_wait(
            Wait(
                id=place_of(call, "work"),
                kind="work",
                context=call.context,
                turn=call.turn,
                task=self._turn.task,
                opened=now,
                until=now + round(seconds * 1000),
            )
        )
        over = partial(self._services.waits.until_closed, wait)
        await self._writer.parked(partial(_first, (work, over), asyncio.FIRST_COMPLETED))


async def _first(work: Iterable[Callable[[], Coroutine[Any, Any, Any]]], how: str) -> None:
    """Wait for the first, or all, of several; what has not ended then goes on by itself, unwatched."""
    jobs = [asyncio.ensure_future(one()) for one in work]
    try:
        await asyncio.wait(jobs, return_when=how)
        for job in jobs:
            if job.done():
                job.result()
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)


def _seconds(text: Any) -> float | None:
    if text is None:
        return None
    found = parse_duration(text)
    if found is None or not found:
        raise ToolError(f"a time is a duration above 0 such as 90s, 5m or 2h, not {text!r:.60}")
    return found.total_seconds()


__all__ = ["Beside"]
