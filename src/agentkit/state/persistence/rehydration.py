"""A working context as frozen plain data, and back. Touches only its arguments.

What is saved is a record and stays frozen; what comes out of it is live again and writable at every depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.core.contracts.codec import register
from agentkit.core.contracts.counting import TokenCounter
from agentkit.core.contracts.errors import FormatError
from agentkit.core.contracts.frozen import FrozenDict, deep_freeze, thaw
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.scope import Scope
from agentkit.core.contracts.usage import Usage
from agentkit.state.context import MessageView, MutationJournal, PrefixContext, WorkingContext

register(MessageView, "messages", tuple, tuple)

FORMAT = 1
"""Raised by a change that an older release would misread; a new optional key is none."""

_REQUIRED_USAGE = {"input": "input_tokens", "output": "output_tokens", "cost": "cost_usd"}
_OPTIONAL_USAGE = {
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "cache_write_long": "cache_write_long_tokens",
    "reasoning": "reasoning_tokens",
}


def dehydrate(ctx: WorkingContext, usage: Usage, iteration: int, repaired: int = 0) -> FrozenDict[str, Any]:
    """What `rehydrate` makes an equal context of: frozen plain data, with messages as values.

    `iteration` is the one just finished, counted as the caller likes. Messages and journal entries are taken over by
    pointer (neither is ever rewritten), the scratchpad is deep-frozen: FreezeError for a cycle or nesting beyond 100.
    Token counter, fork point, usage anchor and lock are not kept.
    """
    if not isinstance(ctx, WorkingContext):
        raise TypeError(f"ctx must be a WorkingContext, not {type(ctx).__name__}")
    if not isinstance(usage, Usage):
        raise TypeError(f"usage must be a Usage, not {type(usage).__name__}")
    for name, count in (("iteration", iteration), ("repaired", repaired)):
        if type(count) is not int:
            raise TypeError(f"{name} must be an int, not {type(count).__name__}")
    prefix, scope = ctx.prefix, ctx.scope
    return FrozenDict(
        format=FORMAT,
        prefix=FrozenDict(
            system_prompt=prefix.system_prompt, grounding=prefix.grounding, schema_block=prefix.schema_block
        ),
        messages=ctx.view(),
        scratchpad=deep_freeze(dict(ctx.scratchpad)),
        journal=FrozenDict(entries=ctx.journal.view(), committed_index=ctx.journal.committed_index),
        limit=ctx.limit,
        shared=ctx.shared,
        scope=None if scope is None else FrozenDict(org_id=scope.org_id, domain_id=scope.domain_id),
        version=ctx.version,
        policies=deep_freeze(dict(ctx.policies)),
        usage=FrozenDict({k: getattr(usage, f) for k, f in {**_REQUIRED_USAGE, **_OPTIONAL_USAGE}.items()}),
        iteration=iteration,
        repaired=repaired,
    )


def rehydrate(
    saved: Mapping[str, Any], *, token_counter: TokenCounter | None = None
) -> tuple[WorkingContext, Usage, int, int]:
    """(context, usage, next iteration, repaired) of what `dehydrate` or another hand saved.

    Required: messages (values or dicts), usage {input, output, cost}, iteration; KeyError names the missing one.
    Unknown keys are ignored; FormatError for a newer format. The next iteration is the saved one plus 1. Nothing
    written to the context reaches `saved`.
    """
    if not isinstance(saved, Mapping):
        raise TypeError(f"saved must be a mapping, not {type(saved).__name__}")
    written = saved.get("format", FORMAT)
    if type(written) is not int or written > FORMAT:
        raise FormatError(f"the saved context has format {written!r}; this release reads up to {FORMAT}")
    messages = [_message(item) for item in _required(saved, "messages")]
    usage = _usage(_required(saved, "usage"))
    iteration = _required(saved, "iteration")
    if type(iteration) is not int:
        raise TypeError(f"iteration must be an int, not {type(iteration).__name__}")
    ctx = WorkingContext(
        _prefix(saved.get("prefix")),
        messages,
        thaw(dict(saved.get("scratchpad") or {})),
        _journal(saved.get("journal")),
        token_counter,
        saved.get("limit"),
        bool(saved.get("shared", False)),
        scope=_scope(saved.get("scope")),
    )
    ctx.policies.update(thaw(dict(saved.get("policies") or {})))
    ctx._version = int(saved.get("version", 0))  # a saved context goes on counting its rewrites
    return ctx, usage, iteration + 1, int(saved.get("repaired", 0))


def _required(saved: Mapping[str, Any], name: str, within: str = "") -> Any:
    if name not in saved:
        raise KeyError(f"{within}{name}")
    return saved[name]


def _message(item: Any) -> Message:
    return item if isinstance(item, Message) else Message.from_dict(item)


def _usage(saved: Any) -> Usage:
    if isinstance(saved, Usage):
        return saved
    figures = {field: _required(saved, key, "usage.") for key, field in _REQUIRED_USAGE.items()}
    figures |= {field: saved[key] for key, field in _OPTIONAL_USAGE.items() if key in saved}
    return Usage(**figures)


def _prefix(saved: Any) -> PrefixContext | None:
    if saved is None or isinstance(saved, PrefixContext):
        return saved
    grounding = [_message(item) for item in saved.get("grounding") or ()]
    return PrefixContext(saved.get("system_prompt", ""), grounding, saved.get("schema_block"))


def _journal(saved: Any) -> MutationJournal[Any]:
    """Entries with their watermark, or a bare sequence of entries, which are all committed then."""
    if saved is None:
        return MutationJournal()
    if not isinstance(saved, Mapping):
        return MutationJournal(thaw(list(saved)))
    entries = thaw(list(saved.get("entries") or ()))
    return MutationJournal.restore(entries, saved.get("committed_index", len(entries)))


def _scope(saved: Any) -> Scope | None:
    if saved is None or isinstance(saved, Scope):
        return saved
    return Scope(saved.get("org_id"), saved.get("domain_id"))
