"""The durable record of a context: its state row, the entries of its log, and the messages in them. Touches only its
arguments.

A *context* is what an agent knows of one conversation. An entry is written once and never edited; what the model is
shown is derived from the entries (`view`). Every field has a default on read, so rows of an earlier form parse; what a
row has beyond the known fields is kept beside it, and a row of a newer form is refused.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

from agentkit.state.compaction import Ranges
from agentkit.state.compaction import Summary as Summary

ROOT = "root"
"""The id of the context that always exists: the root agent's own, rather than any caller's conversation."""

RECORD_VERSION = 1
"""The form of rows written here. A reader takes this one and all before it."""


class ContextKind(StrEnum):
    """Whose a context is: the root agent's, or a conversation's (a caller's or a subagent's)."""

    ROOT = "root"
    CONVERSATION = "conversation"


class Struct(msgspec.Struct, frozen=True, omit_defaults=True):
    """What rows are made of: a value whose defaults are not written."""


# Parts of messages


class TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    text: str = ""


class DataPart(Struct, frozen=True, tag_field="type", tag="data"):
    """Any JSON."""

    data: Any = None


class FilePart(Struct, frozen=True, tag_field="type", tag="file"):
    """A file by reference: `uri`, or `artifact`, the SHA-256 of bytes in the store. `size` in bytes."""

    name: str | None = None
    media_type: str | None = None
    uri: str | None = None
    artifact: str | None = None
    size: int | None = None


Part: TypeAlias = TextPart | DataPart | FilePart | msgspec.Raw
"""A part of an unknown type stays the JSON text it came as."""


class Call(Struct, frozen=True):
    """A tool call. `arguments`: a JSON object, or the provider's own text. `original`: the provider's id, where it had
    to be changed to be the only one in its log. `meta`: what else came with it and goes back with it, such as a
    signature."""

    id: str = ""
    name: str = ""
    arguments: Any = None
    original: str | None = None
    meta: dict[str, Any] | None = None


# Messages. `ts` is wall-clock milliseconds and orders nothing.


class SystemMsg(Struct, frozen=True, tag_field="role", tag="system"):
    """Text of the operator that came during the conversation."""

    text: str = ""
    ts: int = 0


class UserMsg(Struct, frozen=True, tag_field="role", tag="user"):
    """What a person or peer sent. `message_id`: the sender's own id of it."""

    parts: tuple[Part, ...] = ()
    principal: str | None = None
    message_id: str | None = None
    ts: int = 0


class Reported(Struct, frozen=True):
    """What a provider reported for an answer, in tokens. `fresh`, `read` from its cache and `written` to it are
    disjoint; `long` is a part of `written`, and `reasoning` of `output`. `usd`: its price."""

    fresh: int = 0
    read: int = 0
    written: int = 0
    long: int = 0
    output: int = 0
    reasoning: int = 0
    usd: float = 0.0


class AssistantMsg(Struct, frozen=True, tag_field="role", tag="assistant"):
    """A model's answer. `opaque`: all its blocks as `Message.to_dict` has them, where some are the provider's own.
    `usage`: None where nothing was reported, or an earlier release wrote it."""

    text: str = ""
    tool_calls: tuple[Call, ...] = ()
    opaque: tuple[dict[str, Any], ...] = ()
    ts: int = 0
    usage: Reported | None = None


class ToolMsg(Struct, frozen=True, tag_field="role", tag="tool"):
    """The result of call `id`: any JSON. `state` is `pending` for an interim one, `unknown` where the call was started
    and no end is recorded, `not_run` where it was not started."""

    id: str = ""
    name: str = ""
    content: Any = None
    is_error: bool = False
    state: str = ""
    parts: tuple[Part, ...] = ()
    ts: int = 0


class NoteMsg(Struct, frozen=True, tag_field="role", tag="note"):
    """Text of the runtime. `about`: the run, task, timer or skill that it tells of."""

    text: str = ""
    about: str | None = None
    ts: int = 0


Msg: TypeAlias = SystemMsg | UserMsg | AssistantMsg | ToolMsg | NoteMsg

# What a log has besides messages. Entries are named by number; `version` is the one that the change leads to.

How: TypeAlias = Literal["clamped", "masked", "superseded"]


class Mark(Struct, frozen=True):
    """How an entry is shown shortened. `value`: characters left of each part (clamped), tokens hidden (masked), the
    newer entry (superseded)."""

    how: How = "masked"
    value: int = 0


class Compaction(Struct, frozen=True):
    """A fold. `folded`: entries that left the view; `back`: entries that came back for a pin; `summary`: what this fold
    adds; `handled`: the last entry handled by then; `evicted`: skills whose text left. `before` and `after` in tokens
    of a request."""

    version: int = 1
    tier: int = 4
    folded: Ranges = ()
    back: Ranges = ()
    summary: Summary = Summary()
    degraded: bool = False
    before: int = 0
    after: int = 0
    handled: int | None = None
    evicted: tuple[str, ...] = ()
    usage: dict[str, Any] = {}


class Masking(Struct, frozen=True):
    """Entries shown shortened from now on, each with the `value` of its mark."""

    version: int = 1
    tier: int = 3
    how: How = "masked"
    entries: dict[int, int] = {}
    before: int = 0
    after: int = 0


class Clear(Struct, frozen=True):
    version: int = 1


class Restore(Struct, frozen=True):
    """The view of version `restored` is the current one again."""

    restored: int = 1
    version: int = 1


class Pin(Struct, frozen=True):
    entry: int = 0


class Unpin(Struct, frozen=True):
    entry: int = 0


class PlanChange(Struct, frozen=True):
    """`result`: the plan after it, None when there is none any more."""

    op: str = ""
    result: Any = None


class SkillChange(Struct, frozen=True):
    """`op`: load, change, unload; `old` and `new`: hashes of the skill's text."""

    op: str = "load"
    name: str = ""
    old: str | None = None
    new: str | None = None
    args: dict[str, Any] | None = None


class Preflight(Struct, frozen=True):
    verdict: Any = None


class Effect(Struct, frozen=True):
    """`state`: started or completed."""

    call: str = ""
    state: str = "started"


class Outcome(Struct, frozen=True):
    """How a turn, run, task or subagent ended."""

    of: str = ""
    state: str = ""
    text: str = ""


Control: TypeAlias = (
    Compaction | Masking | Clear | Restore | Pin | Unpin | PlanChange | SkillChange | Preflight | Effect | Outcome
)
KINDS: dict[str, type] = {
    "system": SystemMsg, "user": UserMsg, "assistant": AssistantMsg, "tool": ToolMsg, "note": NoteMsg,
    "compaction": Compaction, "mask": Masking, "clear": Clear, "restore": Restore, "pin": Pin, "unpin": Unpin,
    "plan": PlanChange, "skill": SkillChange, "preflight": Preflight, "effect": Effect, "outcome": Outcome,
}  # fmt: skip
"""What the body of each kind of entry is."""
MESSAGE_KINDS = frozenset({"system", "user", "assistant", "tool", "note"})
KIND_OF = {body: kind for kind, body in KINDS.items()}


class Entry(Struct, frozen=True):
    """One line of a log, number `n` from 1 on. `turn`, `round`: the piece of work and the model call it belongs to;
    `source`: where it came from; `est`: estimated tokens. A body of an unknown kind stays the JSON text it is."""

    n: int
    ts: int = 0
    kind: str = ""
    body: Any = None
    turn: str | None = None
    round: int | None = None
    source: str | None = None
    est: int = 0

    @property
    def is_message(self) -> bool:
        return self.kind in MESSAGE_KINDS


def entry_of(
    n: int,
    body: Msg | Control,
    *,
    ts: int = 0,
    turn: str | None = None,
    round: int | None = None,
    source: str | None = None,
    est: int = 0,
) -> Entry:
    """The entry of a message or control body, its kind following from the body."""
    return Entry(n, ts, KIND_OF[type(body)], body, turn, round, source, est)


# The state row


class SkillRef(Struct, frozen=True):
    """A loaded skill and the hash of the text that was loaded, so that an edited one is noticed. `entry`: where it was
    loaded; `status`: "" while its text is shown, `evicted`, or `unloaded` until the next fold."""

    name: str = ""
    hash: str = ""
    args: dict[str, Any] | None = None
    entry: int = 0
    status: str = ""


class Visible(Struct, frozen=True):
    """Which entries are shown: `ranges`, and all from `tail` on (None: no more). `marks`: those shown shortened."""

    ranges: Ranges = ()
    tail: int | None = 1
    marks: dict[int, Mark] = {}


class Anchor(Struct, frozen=True):
    """What a provider last reported: `input_tokens` of the request whose last entry was `entry`, of which `volatile`
    were estimated for the part that is not kept. Means nothing under another version."""

    version: int = 0
    entry: int = 0
    input_tokens: int = 0
    volatile: int = 0


class Told(Struct, frozen=True):
    """What the rendered summary says of itself: as of its fold, since it may not change between folds."""

    version: int = 1
    handled: int | None = None


class Breaker(Struct, frozen=True):
    """Stops summaries that fail. `failures` in a row; `opened`: when, in ms, None while closed; `retry`: the turn from
    which one more try is made; `window`: the window it opened at; `openings` in a row."""

    failures: int = 0
    opened: int | None = None
    retry: int = 0
    window: int = 0
    openings: int = 0


class Parent(Struct, frozen=True):
    """Who started a subagent's context."""

    context: str = ""
    turn: str = ""
    handle: str = ""


class ContextState(Struct, frozen=True):
    """The state row of a context. `version` rises with each reduction, clear or restore, `seq` with each durable write;
    `next`: number of the next entry; `handled`: the last user entry whose turn ended. `unknown`: what a row had beyond
    these."""

    id: str = ""
    kind: ContextKind = ContextKind.ROOT
    parent: Parent | None = None
    version: int = 1
    seq: int = 0
    fence: int = 0
    next: int = 1
    view: Visible = Visible()
    told: Told = Told()
    summary: Summary = Summary()
    plan: Any = None
    preflight: Any = None
    skills: tuple[SkillRef, ...] = ()
    pins: tuple[int, ...] = ()
    est_tokens: int = 0
    anchor: Anchor | None = None
    model_window: int = 0
    breaker: Breaker = Breaker()
    principal: str | None = None
    handled: int | None = None
    turns: int = 0
    created: int = 0
    updated: int = 0
    status: str = "open"
    unknown: dict[str, Any] = {}


APART = ("summary", "plan", "preflight")
"""Fields stored apart from the row and rewritten only when they changed, so that the row stays small."""
