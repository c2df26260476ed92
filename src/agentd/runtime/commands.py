"""Commands: what an operator, or the owner of a context, asks for without a model's turn. Each acts between two turns of
its context, and commits before it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from agentd.context.compact import Applied, Declined
from agentd.context.pins import pin
from agentd.context.record import Clear, Restore
from agentd.context.registry import NotYours, status_of
from agentd.context.resident import LOG, Context
from agentd.context.rows import decode_entry
from agentd.context.view import view

from .principals import Principal

if TYPE_CHECKING:
    from .actor import Actor
    from .daemon import Daemon

Run: TypeAlias = "Callable[[Actor, Mapping[str, Any]], Awaitable[Any]]"


class NotPermitted(PermissionError):
    """The role of this principal does not allow the command."""


@dataclass(frozen=True)
class CommandSpec:
    """`owner`: whether the owner of the context may give it, besides operators."""

    run: Run
    owner: bool = True


async def run_command(agent: Daemon, op: str, context: str, arguments: Mapping[str, Any], principal: Principal) -> Any:
    """Give a command to a context. Raises LookupError for an unknown one, NotPermitted, NotYours, ValueError for
    arguments that make no sense."""
    spec = COMMANDS.get(op)
    if spec is None:
        raise LookupError(f"there is no command {op!r}; known are {', '.join(sorted(COMMANDS))}")
    is_operator = principal.role in ("root", "operator")
    if not is_operator and not spec.owner:
        raise NotPermitted(f"{op} is for operators")
    if not is_operator:
        if context == "root":
            raise NotYours(f"there is no context {context!r}")
        await agent.services.residents.open(context, principal.id)
    else:
        await agent.services.residents.open(context)
    return await agent.actors.command(context, lambda actor: spec.run(actor, arguments))


async def _status(actor: Actor, arguments: Mapping[str, Any]) -> dict[str, Any]:
    window = actor.services.requests.window(actor.services.settings)
    return asdict(status_of(actor.held.state, window.tokens, window.source))


async def _compact(actor: Actor, arguments: Mapping[str, Any]) -> dict[str, Any]:
    standing, closing = await actor.services.prompts.of(
        actor.held, actor.actors.owner_of(actor.held), actor.services.settings
    )
    made = await actor.reduce(
        None,
        actor.situation(None, standing, closing),
        command=True,
        target=arguments.get("target_tokens"),
        keep_last=arguments.get("keep_last"),
    )
    await actor.commit()
    return told(made, actor.held)


def told(made: Applied | Declined, held: Context) -> dict[str, Any]:
    """What `context.compact` answers."""
    answer: dict[str, Any] = {"version": held.state.version, "est_tokens": held.state.est_tokens, "folded": 0}
    if not isinstance(made, Applied):
        return {**answer, "declined": made.reason, "detail": made.detail}
    folds = [entry.body.folded for entry in made.entries if entry.kind == "compaction"]
    answer["folded"] = sum(last - first + 1 for ranges in folds for first, last in ranges)
    return answer


async def _clear(actor: Actor, arguments: Mapping[str, Any]) -> dict[str, Any]:
    actor.held.append(Clear(actor.held.state.version + 1), now=actor.services.clock(), source="command")
    actor.held.forget()
    actor.held.update(anchor=None, est_tokens=0)
    await actor.commit()
    return {"version": actor.held.state.version}


async def _restore(actor: Actor, arguments: Mapping[str, Any]) -> dict[str, Any]:
    version = arguments.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise ValueError("context.restore needs a version, a whole number")
    log = [decode_entry(line) for line in await actor.services.records.entries(LOG, actor.id)]
    if version == actor.held.state.version:
        raise ValueError(f"version {version} is the current one")
    old = view(log, version)
    body = Restore(version, actor.held.state.version + 1)
    actor.held.restore(old, body, now=actor.services.clock())
    await actor.services.residents.load(actor.held)
    actor.held.forget()
    await actor.commit()
    return {"version": actor.held.state.version, "est_tokens": actor.held.state.est_tokens}


async def _pin(actor: Actor, arguments: Mapping[str, Any]) -> dict[str, Any]:
    window = actor.services.requests.window(actor.services.settings).tokens
    bodies = pin(actor.held, arguments.get("entries", ()), window=window)
    for body in bodies:
        actor.held.append(body, now=actor.services.clock(), source="command")
    await actor.commit()
    return {"pins": list(actor.held.state.pins)}


async def _plan(actor: Actor, arguments: Mapping[str, Any]) -> Any:
    return {"plan": actor.held.state.plan}


COMMANDS: dict[str, CommandSpec] = {
    "status": CommandSpec(_status),
    "context.get": CommandSpec(_status),
    "context.compact": CommandSpec(_compact),
    "context.clear": CommandSpec(_clear),
    "context.restore": CommandSpec(_restore),
    "context.pin": CommandSpec(_pin),
    "plan.get": CommandSpec(_plan),
}
