"""`WorkingContext`: what an agent knows right now (not `RunContext`, which is how a run is wired). Pure data
operations: nothing here calls a model, a retriever, a compactor or a store. Touches only its arguments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from agentkit.core.contracts.checks import check_size, require, require_int
from agentkit.core.contracts.counting import TokenCounter
from agentkit.core.contracts.errors import Conflict, MergeError, ScopeError
from agentkit.core.contracts.frozen import comparable_copy, deep_freeze, private_copy
from agentkit.core.contracts.messages import Message, marked, require_messages
from agentkit.core.contracts.offers import ToolSchema, canonical_tools
from agentkit.core.contracts.scope import Scope
from agentkit.core.contracts.tokens import OVERHEAD, measure
from agentkit.core.contracts.usage import Usage

from .anchor import Anchor, Calibration, Observation, TokenCount, anchored, unanchored
from .head import KnownHead, MessageView, fold_hash
from .journal import MutationJournal
from .layout import EMPTY_DIGEST, Layout, Segment, digest_frozen, digest_messages, fold_digest
from .lock import ContextLock, LockSlot
from .prefix import PrefixContext
from .scopes import ContextScope, PositionalScope, surviving_indices
from .snapshot import ContextDiff, FrozenContext, changed_keys, combined_hash, multiset_difference
from .tokens import AdditiveCounter, ApproxTokenCounter, additive

MERGE_MODES = ("concat", "union", "delta")
_DEFAULTS: dict[str, tuple[type, Callable[[], Any]]] = {
    "prefix": (PrefixContext, PrefixContext),
    "journal": (MutationJournal, MutationJournal),
    "token_counter": (TokenCounter, ApproxTokenCounter),
}
_PRIVATE = ("_lock", "_head", "_fork", "_identity", "_sent", "_schemas")


@dataclass(frozen=True)
class ForkPoint:
    """What a context shared with the one it was forked or sliced from, at that moment or at the last delta merge.

    `parent`: the other context's `_identity`. `journal`: how many entries were there.
    """

    parent: object
    messages: MessageView
    scratchpad: Mapping[str, Any]
    journal: int


@dataclass
class WorkingContext:
    """Four axes of what an agent knows: frozen prefix, transcript tail, scratchpad, journal.

    Mutators touch tail and scratchpad and never the prefix. `limit` is a declared ceiling in tokens that nothing here
    enforces. `shared` says that several coroutines use it; it locks nothing by itself. `scope` names the tenant.
    Equality is over the fields; unhashable.
    """

    prefix: PrefixContext = field(default_factory=PrefixContext)
    messages: list[Message] = field(default_factory=list)
    scratchpad: dict[str, Any] = field(default_factory=dict)
    journal: MutationJournal[Any] = field(default_factory=MutationJournal)
    token_counter: TokenCounter = field(default_factory=ApproxTokenCounter)
    limit: int | None = None
    shared: bool = False
    scope: Scope | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:  # any iterable of messages and any mapping are taken, and copied

        def __init__(
            self,
            prefix: PrefixContext | None = None,
            messages: Iterable[Message] | None = (),
            scratchpad: Mapping[str, Any] | None = None,
            journal: MutationJournal[Any] | None = None,
            token_counter: TokenCounter | None = None,
            limit: int | None = None,
            shared: bool = False,
            *,
            scope: Scope | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        given: dict[str, Any] = self.__dict__  # as the caller gave them, before the types below hold
        for name, (kind, default) in _DEFAULTS.items():
            if given[name] is None:
                given[name] = default()
            require(given[name], kind, name)
        self.messages = require_messages(() if given["messages"] is None else given["messages"], "messages")
        self.scratchpad = _checked_notes({} if given["scratchpad"] is None else given["scratchpad"])
        check_size(self, "limit")
        require(self.shared, bool, "shared")
        if self.scope is not None:
            require(self.scope, Scope, "scope")
        self._version = 0
        self._anchor: Anchor | None = None
        self._policies: dict[str, Any] = {}
        self._fresh()

    def _fresh(self) -> None:
        self._lock = LockSlot()
        self._head = KnownHead()
        self._fork: ForkPoint | None = None
        self._identity = object()
        self._sent: Layout | None = None
        self._schemas: tuple[tuple[str, ...], Message] | None = None

    # -- writing ---------------------------------------------------------------------------------------------------

    def append(self, *messages: Message) -> WorkingContext:
        """Add messages to the end of the tail. TypeError for anything that is no Message; nothing is added then."""
        self.messages.extend(require_messages(messages, "messages"))
        return self

    def extend(self, messages: Iterable[Message]) -> WorkingContext:
        """`append` for an iterable, which is read to its end first."""
        self.messages.extend(require_messages(messages, "messages"))
        return self

    def clear_messages(self) -> WorkingContext:
        """Drop the whole tail."""
        self.messages.clear()
        self._version += 1
        return self

    def note(self, key: str, value: Any) -> WorkingContext:
        """Keep `value` itself, not a copy, in the scratchpad."""
        self.scratchpad.update(_checked_notes({key: value}))
        return self

    def update_scratchpad(self, notes: Mapping[str, Any]) -> WorkingContext:
        """`note` for several keys: all or none."""
        self.scratchpad.update(_checked_notes(notes))
        return self

    def rewrite(self, head: int, new: Iterable[Message], *, version: int) -> WorkingContext:
        """Replace the first `head` tail messages by `new` and keep what follows, whatever arrived meanwhile included.

        The one door for compaction. Conflict if `version` is not the current one; ValueError for a `head` that is
        negative or longer than the tail.
        """
        replacement = require_messages(new, "new")
        require_int(head, "head")
        require_int(version, "version")
        if version != self._version:
            raise Conflict("the context", version, self._version)
        if not 0 <= head <= len(self.messages):
            raise ValueError(f"head must be between 0 and the tail's length {len(self.messages)}, not {head}")
        self.messages[:head] = replacement
        self._version += 1
        return self

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Counts rewrites of the tail from 0; an append does not change it."""
        return self._version

    @property
    def sent(self) -> Layout | None:
        """The layout of the last request that was recorded here or, in a fork, before it; what `breakpoints` takes as
        `previous`. Not kept by pickle and copies."""
        return self._sent

    @property
    def policies(self) -> dict[str, Any]:
        """Plain data that middleware keeps with this context, a breaker's state say: it is forked and dehydrated along,
        and no part of equality, snapshots or merges."""
        return self._policies

    def get(self, key: str, default: Any = None) -> Any:
        """A note of the scratchpad."""
        return self.scratchpad.get(key, default)

    def size(self) -> int:
        """How many messages the tail has."""
        return len(self.messages)

    def view(self) -> MessageView:
        """The tail as an immutable sequence that later writes do not reach, at no cost for its length."""
        return self._head.view(self.messages)

    def assembled(self) -> list[Message]:
        """What a provider is sent: the prefix as messages, then a copy of the tail."""
        return [*self.prefix.rendered, *self.messages]

    async def tokens(self) -> int:
        """The counter's plain estimate of `assembled()`; `count` is the one that knows what the provider reported."""
        if additive(self.token_counter) is not None:
            return self._measure_with_tail(self.prefix.rendered)
        return await self.token_counter.estimate(self.assembled())

    def count(
        self,
        calibration: Calibration | None = None,
        *,
        tools: Iterable[ToolSchema | Mapping[str, Any]] | None = None,
    ) -> TokenCount:
        """How large the next request is, from the last report that still holds and an estimate of what came after.

        Without such a report the whole is estimated, with the schemas of `tools`. A report on other tools than these
        holds no longer; None takes whatever they were. Counters that need I/O are replaced by the formula here.
        """
        calibration = calibration or Calibration()
        schemas = None if tools is None else canonical_tools(tools)
        anchor = self._anchor
        holds = anchor is not None and anchor.holds(
            version=self._version, prefix=self.prefix, messages=self.messages, tools=schemas
        )
        if anchor is None or not holds:
            estimate = self._measure_with_tail(self.prefix.rendered) + self._measure_schemas(schemas or ())
            return unanchored(estimate, calibration, slack=self._slack())
        new = self.messages[len(anchor.messages) :]
        exact, slack = bool(getattr(self.token_counter, "exact", False)), self._slack(new)
        return anchored(anchor, self._measure(new), calibration, exact=exact, slack=slack)

    def record_usage(self, usage: Usage, *, layout: Layout, model: str | None = None) -> Observation | None:
        """Keep what the provider reported for `layout`, which was built from this context, as the anchor of `count`.

        Usage without prompt tokens (a cache hit of our own) is passed over, and so is the report on a layout that this
        context no longer begins with. Returns what two successive reports on the same settings say about the estimate,
        for `Calibration.learn`; None when there is nothing to compare.
        """
        require(usage, Usage, "usage")
        require(layout, Layout, "layout")
        self._sent = layout
        volatile = self._measure(layout.segment("volatile").messages)
        anchor = Anchor.of(usage, layout, version=self._version, prefix=self.prefix, volatile=volatile, model=model)
        if anchor is None or not anchor.holds(version=self._version, prefix=self.prefix, messages=self.messages):
            return None
        before, self._anchor = self._anchor, anchor
        if (
            before is None
            or before.settings != anchor.settings
            or not before.holds(version=self._version, prefix=self.prefix, messages=anchor.messages)
        ):
            return None
        estimated = self._measure(anchor.messages[len(before.messages) :])
        return Observation(estimated, (anchor.tokens - anchor.volatile) - (before.tokens - before.volatile))

    def segments(
        self, *, tools: Iterable[ToolSchema | Mapping[str, Any]] = (), volatile: Iterable[Message] = ()
    ) -> Layout:
        """The next request by segment: frozen, summary, tail, volatile.

        `tools` count into the frozen segment, sorted by name. `volatile` is this request's closing block (plan
        progress, memory keys, the time); it is not stored and never in front of anything that a cache could keep.
        """
        schemas = canonical_tools(tools)
        covered = 0
        while covered < len(self.messages) and marked(self.messages[covered], "summary") is not None:
            covered += 1
        whole = tuple(self.messages)
        frozen, summary, tail = self.prefix.rendered, whole[:covered], whole[covered:]
        closing = tuple(require_messages(volatile, "volatile"))
        in_frozen = self._measure(frozen) + self._measure_schemas(schemas)
        in_summary = self._measure(summary)
        in_tail = max(self._measure_with_tail(()) - in_summary, 0)
        return Layout(
            (
                Segment("frozen", frozen, digest_frozen(frozen, schemas).hex(), in_frozen),
                Segment("summary", summary, digest_messages(summary).hex(), in_summary),
                Segment("tail", tail, self._tail_digest(covered).hex(), in_tail),
                Segment("volatile", closing, digest_messages(closing).hex(), self._measure(closing)),
            ),
            schemas,
        )

    # -- composition -----------------------------------------------------------------------------------------------

    def fork(self) -> WorkingContext:
        """An independent copy: own tail and scratchpad (deep-copied, thawed), journal seeded with these entries as
        committed, the same prefix object. The fork point is kept for `merge(mode="delta")`."""
        child = self._sibling(self.messages.copy())
        child.journal.mark_committed()
        child._version, child._anchor, child._head = self._version, self._anchor, self._head.copy()
        child._sent = self._sent
        child._fork = child._fork_point(self)
        return child

    def slice(self, scope: ContextScope | PositionalScope, *, shared: bool = False) -> WorkingContext:
        """A narrowed, independent view: the tail messages that `scope` keeps, everything else as it is here."""
        kept = sorted(surviving_indices(scope, self.messages))
        child = self._sibling([self.messages[i] for i in kept])
        child.shared = shared
        child._fork = child._fork_point(self)
        return child

    def merge(self, other: WorkingContext, mode: str = "concat") -> WorkingContext:
        """Take over what `other` has; the prefix stays. Returns self.

        `concat` appends its messages verbatim, `union` those not equal to one in self or earlier in `other` (a result
        comes along with its newly appended call). Both update the scratchpad, last write wins, and append all journal
        entries. `delta` takes only what `other` added, changed or deleted since it was forked or sliced from this
        context, then moves the fork point up. ValueError for another mode, ScopeError for two tenants, MergeError when
        there is no shared head; nothing has changed then.
        """
        require(other, WorkingContext, "other")
        if mode not in MERGE_MODES:
            raise ValueError(f"unknown merge mode {mode!r}; known are {', '.join(MERGE_MODES)}")
        if self.scope is not None and other.scope is not None and self.scope != other.scope:
            raise ScopeError(f"cannot merge a context of {other.scope.key()} into one of {self.scope.key()}")
        if mode == "delta":
            return self._merge_delta(other)
        incoming = list(other.messages) if mode == "concat" else _new_in(other.messages, self.messages)
        notes, entries = private_copy(other.scratchpad), other.journal.view()
        self.messages.extend(incoming)
        self.scratchpad.update(notes)
        self.journal.apply(entries)
        return self

    def _merge_delta(self, other: WorkingContext) -> WorkingContext:
        fork = other._fork
        if fork is None or fork.parent is not self._identity:
            raise MergeError("the other context was not forked or sliced from this one; use mode='union'")
        shared = len(fork.messages)
        if fork.messages != other.messages[:shared]:
            raise MergeError("the other context's shared head was cleared or rewritten, so its delta is unknown")
        for value in other.scratchpad.values():
            deep_freeze(value)  # refuses what cannot be compared
        notes = private_copy(changed_keys(other.scratchpad, fork.scratchpad))
        incoming, entries = other.messages[shared:], other.journal.since(fork.journal)
        moved_up = other._fork_point(self)
        for key in fork.scratchpad:
            if key not in other.scratchpad:
                self.scratchpad.pop(key, None)
        self.messages.extend(incoming)
        self.scratchpad.update(notes)
        self.journal.apply(entries)
        other._fork = moved_up
        return self

    def freeze(self) -> FrozenContext:
        """A snapshot as a value: later writes here never show in it."""
        snapshot = FrozenContext(self.prefix, tuple(self.messages), self.scratchpad, self.journal.view())
        messages_hash = self._head.fold(self.messages, "hash", 0, fold_hash)
        snapshot.__dict__["_hash"] = combined_hash(snapshot, messages_hash)
        return snapshot

    def diff(self, other: WorkingContext) -> ContextDiff:
        """self - other, for replay and debugging; the journal has a diff of its own."""
        require(other, WorkingContext, "other")
        added, removed = multiset_difference(self.messages, other.messages)
        changes = changed_keys(self.scratchpad, other.scratchpad)
        gone = {key: None for key in other.scratchpad if key not in self.scratchpad}
        return ContextDiff(tuple(added), tuple(removed), {**changes, **gone}, self.prefix != other.prefix)

    # -- sharing ---------------------------------------------------------------------------------------------------

    @property
    def lock(self) -> ContextLock:
        """Guards a sequence of writes with an await in between; the mutators themselves never take it."""
        return self._lock.current()

    async def apply_locked(self, fn: Callable[[WorkingContext], Awaitable[Any] | Any]) -> WorkingContext:
        """Call `fn(self)`, and await what it returns, with the lock held. Returns self."""
        async with self.lock:
            result = fn(self)
            if isawaitable(result):
                await result
        return self

    # -- inside ----------------------------------------------------------------------------------------------------

    def _sibling(self, messages: list[Message]) -> WorkingContext:
        # Not by the constructor: it would look at each message again, which this context has done before.
        child = object.__new__(type(self))
        child.__dict__.update(self.__dict__)
        child.messages, child.scratchpad, child.journal = messages, private_copy(self.scratchpad), self.journal.copy()
        child._version, child._anchor = 0, None
        child._policies = private_copy(self._policies)
        child._fresh()
        return child

    def _fork_point(self, parent: WorkingContext) -> ForkPoint:
        scratchpad = comparable_copy(self.scratchpad)
        return ForkPoint(parent._identity, self.view(), scratchpad, self.journal.size())

    def _measure(self, messages: Sequence[Message]) -> int:
        return measure(messages, self.token_counter)

    def _slack(self, messages: Sequence[Message] | None = None) -> int:
        """What messages, by default prefix and tail, may take beyond the counter's figure."""
        counter = self.token_counter
        if not isinstance(counter, AdditiveCounter) or type(counter).slack is AdditiveCounter.slack:
            return 0
        if messages is not None:
            return sum(map(counter.slack, messages))

        def step(total: int, message: Message) -> int:
            return total + counter.slack(message)

        return self._head.fold(self.messages, (type(counter), counter.key, "slack"), 0, step) + sum(
            map(counter.slack, self.prefix.rendered)
        )

    def _measure_with_tail(self, head: Sequence[Message]) -> int:
        """The counter's figure for `head` and the tail, of which only what was appended is looked at."""
        counter = additive(self.token_counter)
        if counter is None:
            return self._measure([*head, *self.messages])

        def step(sums: tuple[int, int], message: Message) -> tuple[int, int]:
            first, second = counter.weigh(message)
            return sums[0] + first, sums[1] + second

        sums = self._head.fold(self.messages, (type(counter), counter.key), (0, 0), step)
        return counter.settle(*reduce(step, head, sums))

    def _measure_schemas(self, schemas: tuple[str, ...]) -> int:
        """The counter's figure for the text of tool schemas, which no message holds."""
        if not schemas:
            return 0
        if self._schemas is None or self._schemas[0] != schemas:
            self._schemas = schemas, Message("system", "".join(schemas))
        return max(self._measure((self._schemas[1],)) - OVERHEAD, 0)

    def _tail_digest(self, covered: int) -> bytes:
        def step(state: tuple[int, bytes], message: Message) -> tuple[int, bytes]:
            at, digest = state
            return at + 1, digest if at < covered else fold_digest(digest, message)

        return self._head.fold(self.messages, ("digest", covered), (0, EMPTY_DIGEST), step)[1]

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _PRIVATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fresh()


def _checked_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    require(notes, Mapping, "the scratchpad's content")
    for key in notes:
        if not isinstance(key, str):
            raise TypeError(f"a scratchpad key must be a str, not {type(key).__name__}")
    return dict(notes)


def _new_in(incoming: Sequence[Message], known: Sequence[Message]) -> list[Message]:
    """Messages of `incoming` that are not in `known` nor earlier in `incoming`, and the results of calls that are new.

    Equal results can answer different calls, since ids repeat: each new call brings one result along.
    """
    seen = set(known)
    new: list[Message] = []
    owed: dict[str, int] = {}
    for message in list(incoming):
        is_new = message not in seen
        for call in message.tool_calls:
            owed[call.id] = owed.get(call.id, 0) + 1 if is_new else 0
        answers = message.tool_call_id or ""
        is_owed = message.role == "tool" and owed.get(answers, 0) > 0
        if is_owed:
            owed[answers] -= 1
        if is_new or is_owed:
            new.append(message)
            seen.add(message)
    return new
