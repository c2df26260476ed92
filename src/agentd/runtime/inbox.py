"""Accepted work that is not finished: durable before its sender is told, taken up again after a crash, and never twice
under one message id. Touches the records that are handed in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from agentd.context.record import Part, TextPart, UserMsg
from agentd.context.rows import accepted, decode_msg, encode_msg
from agentd.records import ANY, Records, Remove, Row, Save, Write
from agentkit.core.contracts.errors import Conflict, Corrupt, FormatError, StoreError

from .principals import Principal, Role

SETTLED = frozenset({"completed", "failed", "canceled", "rejected"})
"""States of a task that has ended."""


class Busy(RuntimeError):
    """As much work as `limits.inbox` allows is waiting; try again later."""


class Draining(RuntimeError):
    """This instance is going down and takes no more work."""


class SameId(ValueError):
    """The message id was used before, for another message."""


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the sender of a message has of it. `state`: submitted, working, completed, failed, canceled or rejected;
    `end_state` and `reason` say how the turn ended, `output` what it answered; `span` the first and last entry of its
    turn, once it has ended; times in ms."""

    id: str
    context: str
    turn: str
    principal: str = ""
    message_id: str | None = None
    state: str = "submitted"
    end_state: str | None = None
    reason: str = ""
    output: Any = None
    exit: int | None = None
    usage: dict[str, Any] = {}
    version: int = 1
    created: int = 0
    updated: int = 0
    span: tuple[int, int] | None = None

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED

    @property
    def text(self) -> str:
        """The answer as text."""
        return self.output if isinstance(self.output, str) else msgspec.json.encode(self.output).decode()


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """One piece of accepted work, in order of `n`. `kind`: message or note; `body`: the message as it will stand in
    the log; `wakes`: whether a turn starts for it."""

    n: int
    context: str
    turn: str
    body: msgspec.Raw
    kind: str = "message"
    task: str | None = None
    principal: str = ""
    role: Role = "user"
    wakes: bool = True
    ts: int = 0

    @property
    def row_id(self) -> str:
        return f"{self.n:020d}"

    @property
    def message(self) -> Any:
        """The UserMsg or NoteMsg."""
        return decode_msg(bytes(self.body))

    @property
    def sender(self) -> Principal:
        return Principal(self.principal, self.role)


class Seen(msgspec.Struct, frozen=True):
    """A message that was accepted: its digest, its context and the task that its sender got."""

    digest: str
    context: str
    task: str


@dataclass(frozen=True)
class Accepted:
    """What the sender of a message is told. `item`: the work that waits now, None for a duplicate; `altered`: half
    surrogate pairs were replaced in it; `rows`: all that was committed."""

    task: Task
    item: Item | None = None
    altered: bool = False
    rows: tuple[Row, ...] = ()

    @property
    def is_duplicate(self) -> bool:
        return self.item is None


class Inbox:
    """The accepted work of one instance, and the tasks that its senders hold."""

    def __init__(
        self, records: Records, *, clock: Callable[[], int], ids: Callable[[], str], limit: Callable[[], int]
    ) -> None:
        self._records, self._clock, self._ids, self._limit = records, clock, ids, limit
        self._next = 1
        self._waiting: dict[int, Item] = {}
        # Rows as they were last written, of what waits: so a turn's end need not read them again.
        self._rows: dict[int, Row] = {}
        self._tasks: dict[str, Row] = {}
        # Messages whose commit failed while the store could not say whether it is there, by task; the sender was told
        # of a fault, and asks again.
        self._doubtful: dict[str, Item] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> list[Item]:
        """Everything accepted and not finished, in order."""
        return [self._waiting[n] for n in sorted(self._waiting)]

    async def load(self, lost: Callable[[Exception], None]) -> list[Item]:
        """What an earlier life left, in order of acceptance. `lost` is told of rows that cannot be read; they are left
        as they are, and their numbers are not used again."""
        ids = await self._records.ids("inbox")
        for id in ids:
            try:
                row = await self._records.get("inbox", id)
                if row is not None:
                    item = _item_of(row)
                    self._waiting[item.n] = item
                    self._rows[item.n] = row
            except (Corrupt, FormatError) as error:
                lost(error)
        self._next = max((int(id) for id in ids if id.isdecimal()), default=0) + 1
        return self.waiting

    async def seen(self, sender: Principal, message_id: str, parts: Sequence[Part]) -> Task | None:
        """The task of a message that was accepted before. SameId when another message had this id."""
        row = await self._records.get("seen", seen_id(sender.id, message_id))
        if row is None:
            return None
        found = msgspec.json.decode(row.state, type=Seen)
        if found.digest != _digest(parts):
            raise SameId(f"message id {message_id!r} was used before, for another message")
        return await self.task(found.task)

    def known_by(self, sender: Principal, message_id: str, parts: Sequence[Part], task: Task) -> Save:
        """What makes a message known that belongs to a task which there is already."""
        return _save("seen", seen_id(sender.id, message_id), Seen(_digest(parts), task.context, task.id))

    async def accept(
        self,
        context: str,
        parts: Sequence[Part],
        sender: Principal,
        *,
        message_id: str | None = None,
        owner: str | None = None,
        extra: Callable[[Task], Write] | None = None,
        always: bool = False,
    ) -> Accepted:
        """Take in a message: durable when this returns. The same message id again gives the same task and adds nothing.

        `owner`: whose task it is, if not the sender's; `extra`: a row that is committed along; `always`: however much
        waits already. Raises Busy, SameId, ValueError for a message without content.
        """
        if message_id is not None and (known := await self.seen(sender, message_id, parts)) is not None:
            return Accepted(known)
        if not parts or all(isinstance(part, TextPart) and not part.text.strip() for part in parts):
            raise ValueError("a message needs content: text that is not blank, data or a file")
        if not always:
            self._require_room()
        now = self._clock()
        message, altered = accepted(UserMsg(tuple(parts), sender.id, message_id, now))
        whose = sender.id if owner is None else owner
        task = Task(self._ids(), context, self._ids(), whose, message_id, created=now, updated=now)
        item = self._item(context, task.turn, encode_msg(message), sender, now, task=task.id)
        writes: list[Write] = [_save("inbox", item.row_id, item), _save("task", task.id, task)]
        if message_id is not None:
            writes.append(self.known_by(sender, message_id, parts, task))
        if extra is not None:
            writes.append(extra(task))
        try:
            rows = await self._records.commit(writes)
        except Conflict:
            # Two at once with one message id: the other one was first.
            if message_id is None or (known := await self.seen(sender, message_id, parts)) is None:
                raise
            return Accepted(known)
        except (StoreError, OSError):
            if message_id is not None and len(self._doubtful) < self._limit():
                self._doubtful[task.id] = item
            raise
        self._waiting[item.n] = item
        self._rows[item.n], self._tasks[task.id] = rows[0], rows[1]
        return Accepted(task, item, altered, rows)

    async def accept_note(
        self,
        context: str,
        note: Any,
        sender: Principal,
        *,
        wakes: bool,
        extra: Sequence[Write] = (),
        always: bool = False,
    ) -> tuple[Item, tuple[Row, ...]]:
        """Take in a note of the runtime. `wakes`: a turn starts for it; `extra` is committed along; `always`: however
        much waits already. The item, and all rows."""
        if not always:
            self._require_room()
        now = self._clock()
        message, _ = accepted(msgspec.structs.replace(note, ts=now))
        item = self._item(context, self._ids(), encode_msg(message), sender, now, kind="note", wakes=wakes)
        rows = await self._records.commit([_save("inbox", item.row_id, item), *extra])
        self._waiting[item.n], self._rows[item.n] = item, rows[0]
        return item, rows

    async def found_again(self, task: Task) -> Item | None:
        """The item of a message that came again, where it was stored by a commit that was taken for failed: nobody
        works on it yet. None for all others."""
        item = self._doubtful.pop(task.id, None)
        if item is None:
            return None
        try:
            row = await self._records.get("inbox", item.row_id)
        except (StoreError, OSError):
            self._doubtful[task.id] = item
            raise
        if row is None:
            return None
        self._waiting[item.n], self._rows[item.n] = item, row
        return item

    def task_of(self, turn: str) -> str | None:
        """The task that an unfinished turn works on; None for one that has ended, and for the turn of a note."""
        return next((item.task for item in self._waiting.values() if item.turn == turn), None)

    def has_turn(self, turn: str) -> bool:
        """Whether a turn is still to be finished."""
        return any(item.turn == turn for item in self._waiting.values())

    def is_waiting(self, task: str) -> bool:
        """Whether a task is still to be finished."""
        return any(item.task == task for item in self._waiting.values())

    def of_context(self, context: str) -> list[Item]:
        """What waits for one context, in order."""
        return [item for item in self.waiting if item.context == context]

    def finish(self, item: Item) -> list[Write]:
        """What takes an item out of the inbox; `finished` once it is written."""
        return [Remove("inbox", item.row_id, self._rows.get(item.n, ANY))]

    def finished(self, item: Item) -> None:
        """An item is out of the inbox, and its task, if it has one, has ended."""
        self._waiting.pop(item.n, None)
        self._rows.pop(item.n, None)
        self._tasks.pop(item.task or "", None)

    async def task(self, id: str) -> Task:
        """A task. LookupError for an unknown one."""
        row = self._tasks.get(id) or await self._records.get("task", id)
        if row is None:
            raise LookupError(f"there is no task {id!r}")
        return msgspec.json.decode(row.state, type=Task)

    async def stored_task(self, id: str) -> Task:
        """A task as it is stored, whatever is known of it here. LookupError for an unknown one."""
        row = await self._records.get("task", id)
        if row is None:
            raise LookupError(f"there is no task {id!r}")
        return msgspec.json.decode(row.state, type=Task)

    def save_task(self, task: Task) -> Write:
        """What stores a task that has ended; its turn alone writes it."""
        return Save("task", task.id, msgspec.json.encode(task), self._tasks.get(task.id, ANY))

    def _item(
        self,
        context: str,
        turn: str,
        body: bytes,
        sender: Principal,
        now: int,
        *,
        kind: str = "message",
        task: str | None = None,
        wakes: bool = True,
    ) -> Item:
        n = self._next
        self._next += 1
        return Item(n, context, turn, msgspec.Raw(body), kind, task, sender.id, sender.role, wakes, now)

    def _require_room(self) -> None:
        if len(self._waiting) >= self._limit():
            raise Busy(f"{len(self._waiting)} pieces of work are waiting (limits.inbox); try again later")


def seen_id(principal: str, message_id: str) -> str:
    """The id under which a message of a principal is remembered: both, kept apart whatever they hold; a digest where
    that would be too long."""
    made = f"{quote(principal, safe='')}/{quote(message_id, safe='')}"
    if len(made) <= 200:
        return made
    both = f"{len(principal)}:{principal}{message_id}".encode("utf-8", "surrogatepass")
    return f"sha256:{hashlib.sha256(both).hexdigest()}"


def _item_of(row: Row) -> Item:
    try:
        return msgspec.json.decode(row.state, type=Item)
    except msgspec.DecodeError as error:
        raise Corrupt(f"the work accepted as {row.id!r} cannot be read: {error}", key=f"inbox/{row.id}") from error


def _digest(parts: Sequence[Part]) -> str:
    clean, _ = accepted(UserMsg(tuple(parts)))
    return hashlib.sha256(encode_msg(clean)).hexdigest()


def _save(kind: str, id: str, value: Any) -> Save:
    return Save(kind, id, msgspec.json.encode(value))
