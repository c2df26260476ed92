"""Commands: what an operator, or the owner of a context, asks for without a model's turn. Each acts between two turns
of its context, or while one waits, and commits before it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from agentd.context.compact import Applied, Declined
from agentd.context.record import ROOT, Clear, Restore
from agentd.context.registry import NotYours, status_of
from agentd.context.resident import LOG, Context
from agentd.context.rows import decode_entry
from agentd.context.view import view

from .pinning import pins_of
from .principals import Principal
from .services import Services
from .writer import Writer

Run: TypeAlias = "Callable[[Writer, Mapping[str, Any]], Awaitable[Any]]"


class NotPermitted(PermissionError):
    """The role of this principal does not allow the command."""


@dataclass(frozen=True)
class CommandSpec:
    """`owner`: whether the owner of the context may give it, besides operators. `any_time`: whether it may come in the
    middle of a turn that waits; what takes its entries away may not."""

    run: Run
    owner: bool = True
    any_time: bool = True


async def prepared(
    services: Services, op: str, context: str, arguments: Mapping[str, Any], principal: Principal
) -> Callable[[Writer], Awaitable[Any]]:
    """A command to a context, ready to be run by its writer. Raises LookupError for an unknown one, NotPermitted,
    NotYours; ValueError, when run, for arguments that make no sense."""
    spec = COMMANDS.get(op)
    if spec is None:
        raise LookupError(f"there is no command {op!r}; known are {', '.join(sorted(COMMANDS))}")
    is_operator = principal.role in ("root", "operator")
    if not is_operator and not spec.owner:
        raise NotPermitted(f"{op} is for operators")
    if context == ROOT and not is_operator:
        raise NotYours(f"there is no context {context!r}")
    await services.residents.open(context, None if is_operator else principal.id, create=context == ROOT)
    return lambda writer: spec.run(writer, arguments)


async def _status(writer: Writer, arguments: Mapping[str, Any]) -> dict[str, Any]:
    services = writer.services
    told = await _get(writer, arguments)
    return {
        **told,
        "degraded": services.is_degraded,
        "servers": services.servers.status(),
        "at_work": services.at_work(writer.id),
        "triggers": services.triggers.status(),
    }


async def _get(writer: Writer, arguments: Mapping[str, Any]) -> dict[str, Any]:
    window = writer.services.requests.window(writer.services.settings)
    return asdict(status_of(writer.held.state, window.tokens, window.source))


async def _compact(writer: Writer, arguments: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("target_tokens", "keep_last"):
        given = arguments.get(name)
        if given is not None and (type(given) is not int or given < 0):
            raise ValueError(f"context.compact takes {name} as a whole number of at least 0")
    turn = writer.turn  # one that waits
    settings = writer.services.settings if turn is None else turn.settings
    sender = writer.owner if turn is None else turn.sender
    standing, closing = await writer.services.prompts.of(writer.held, sender, settings)
    made = await writer.reduce(
        None,
        writer.situation(turn, standing, closing),
        command=True,
        target=arguments.get("target_tokens"),
        keep_last=arguments.get("keep_last"),
    )
    await writer.commit()
    return told(made, writer.held)


def told(made: Applied | Declined, held: Context) -> dict[str, Any]:
    """What `context.compact` answers."""
    answer: dict[str, Any] = {"version": held.state.version, "est_tokens": held.state.est_tokens, "folded": 0}
    if not isinstance(made, Applied):
        return {**answer, "declined": made.reason, "detail": made.detail}
    folds = [entry.body.folded for entry in made.entries if entry.kind == "compaction"]
    answer["folded"] = sum(last - first + 1 for ranges in folds for first, last in ranges)
    return answer


async def _clear(writer: Writer, arguments: Mapping[str, Any]) -> dict[str, Any]:
    writer.held.append(Clear(writer.held.state.version + 1), now=writer.services.clock(), source="command")
    writer.held.forget()
    writer.held.update(anchor=None, est_tokens=0)
    await writer.commit()
    return {"version": writer.held.state.version}


async def _restore(writer: Writer, arguments: Mapping[str, Any]) -> dict[str, Any]:
    version = arguments.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise ValueError("context.restore needs a version, a whole number")
    log = [decode_entry(line) for line in await writer.services.records.entries(LOG, writer.id)]
    if version == writer.held.state.version:
        raise ValueError(f"version {version} is the current one")
    old = view(log, version)
    body = Restore(version, writer.held.state.version + 1)
    writer.held.restore(old, body, now=writer.services.clock())
    await writer.services.residents.load(writer.held)
    writer.held.forget()
    await writer.commit()
    return {"version": writer.held.state.version, "est_tokens": writer.held.state.est_tokens}


async def _pin(writer: Writer, arguments: Mapping[str, Any]) -> dict[str, Any]:
    given = arguments.get("entries", ())
    if not isinstance(given, (list, tuple)) or not all(type(n) is int for n in given):
        raise ValueError("context.pin needs entries, a list of entry numbers")
    window = writer.services.requests.window(writer.services.settings).tokens
    bodies = await pins_of(writer.services.records, writer.held, given, window=window)
    for body in bodies:
        writer.held.append(body, now=writer.services.clock(), source="command")
    await writer.commit()
    return {"pins": list(writer.held.state.pins)}


async def _report(writer: Writer, arguments: Mapping[str, Any]) -> Any:
    """How a background run ended whose work was done elsewhere."""
    id, state = arguments.get("id"), arguments.get("state", "completed")
    if not isinstance(id, str) or state not in ("completed", "failed"):
        raise ValueError("run.report takes the id of a run, state (completed or failed) and result")
    runs = writer.services.runs
    run = await runs.find(id)
    if run is None or run.context != writer.id:
        raise ValueError(f"there is no run {id!r:.120} in this conversation")
    if run.ended:
        raise ValueError(f"the run {id} has ended as {run.state}")
    return (await runs.report(run, state, arguments.get("result"))).told


async def _plan(writer: Writer, arguments: Mapping[str, Any]) -> Any:
    return {"plan": writer.held.state.plan}


COMMANDS: dict[str, CommandSpec] = {
    "status": CommandSpec(_status),
    "context.get": CommandSpec(_get),
    "context.compact": CommandSpec(_compact),
    "context.clear": CommandSpec(_clear, any_time=False),
    "context.restore": CommandSpec(_restore, any_time=False),
    "context.pin": CommandSpec(_pin),
    "plan.get": CommandSpec(_plan),
    "run.report": CommandSpec(_report),
}
