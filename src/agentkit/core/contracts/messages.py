"""Messages and tool calls, the values that a transcript is made of. Touches only its arguments.

What follows from one message alone (its size, hash, digest) is computed once and kept in the instance's `__dict__`
under a name with a leading underscore: outside equality, repr, copies and pickle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import count
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

from .blocks import (
    BLOCK_TYPES,
    EMPTY,
    Block,
    CallMark,
    TextBlock,
    as_block,
    freeze_mapping,
    no_entries,
)
from .checks import require, settle_text
from .errors import FreezeError
from .frozen import MAX_WIRE_DEPTH, FrozenDict, deep_freeze
from .jsontext import json_text, parse_object, wire_json

T = TypeVar("T")

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
"""The roles that agentkit knows; others are kept and repaired in the view."""

_comparisons = count()
"""Advances whenever two Message objects are compared; `count` is atomic."""

MARKS = frozenset({"summary", "pinned", "pending", "synthetic", "late"})
"""The kinds that `mark` accepts."""


def derived(value: Any, name: str, make: Callable[[Any], T]) -> T:
    """`make(value)`, computed once and kept on the frozen `value` under `name`."""
    kept: dict[str, Any] = value.__dict__
    try:
        found: T = kept[name]
    except KeyError:
        found = kept[name] = make(value)
    return found


class FieldsOnly:
    """Pickle and deepcopy carry the fields; what was derived from them is derived anew."""

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}


@dataclass(frozen=True)
class ToolCall(FieldsOnly):
    """A model's request to run a tool.

    `arguments` is a mapping (deep-frozen here) or the provider's JSON text, which is then kept in `raw`. Text that is
    no JSON object becomes `{"_raw": text}` and `invalid` is True. Equality: id, name, arguments; hash: id, name.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=no_entries)
    raw: str | None = field(default=None, kw_only=True, compare=False)
    meta: Mapping[str, Any] = field(default_factory=no_entries, kw_only=True, compare=False)

    if TYPE_CHECKING:  # the fields hold one type, the constructor accepts several

        def __init__(
            self,
            id: str | None,
            name: str | None,
            arguments: Mapping[str, Any] | str | None = EMPTY,
            *,
            raw: str | None = None,
            meta: Mapping[str, Any] = EMPTY,
        ) -> None: ...

    def __post_init__(self) -> None:
        put = object.__setattr__
        for key in ("id", "name"):
            if getattr(self, key) is None:
                put(self, key, "")
        settle_text(self, "id", "name")
        if type(self.meta) is not FrozenDict:
            put(self, "meta", freeze_mapping(self.meta, "ToolCall.meta"))
        given: Any = self.arguments
        if isinstance(given, str):
            arguments, raw = _read_arguments(given), given
        elif given is None:
            arguments, raw = EMPTY, None
        elif isinstance(given, Mapping):
            arguments, raw = _freeze_arguments(given)
            if raw is None and self.raw is not None and _spells(self.raw, arguments):
                raw = self.raw  # handed on by `replace`: kept only while it still spells these arguments
        else:
            raw = json_text(given)
            arguments = FrozenDict({"_raw": raw})
        put(self, "arguments", arguments)
        put(self, "raw", raw)

    def __hash__(self) -> int:
        return hash((self.id, self.name))

    @classmethod
    def trusted(
        cls, id: str, name: str, arguments: FrozenDict[str, Any], raw: str | None, meta: FrozenDict[str, Any]
    ) -> ToolCall:
        """A call of fields that are already what the constructor would make of them; nothing is checked."""
        made = object.__new__(cls)
        made.__dict__.update(id=id, name=name, arguments=arguments, raw=raw, meta=meta)
        return made

    @property
    def invalid(self) -> bool:
        """Whether the provider's argument text was no JSON object (its text is then under `_raw`)."""
        return self.raw is not None and len(self.arguments) == 1 and self.arguments.get("_raw") == self.raw

    @property
    def wire_arguments(self) -> str:
        """The arguments as a valid JSON object: `raw` byte for byte when it is one, else the JSON of `arguments`."""
        if self.raw is not None and not self.invalid and self.raw.strip(" \t\r\n") not in ("", "null"):
            return self.raw
        return derived(self, "_wire", lambda call: wire_json(call.arguments))


def _spells(raw: str, arguments: FrozenDict[str, Any]) -> bool:
    # By their JSON, since equality takes 1 for True.
    return json_text(_read_arguments(raw)) == json_text(arguments)


def _read_arguments(text: str) -> FrozenDict[str, Any]:
    parsed = parse_object(text)
    frozen, too_deep = _freeze_arguments(parsed) if parsed is not None else (EMPTY, text)
    return FrozenDict({"_raw": text}) if too_deep is not None else frozen


def _freeze_arguments(given: Mapping[str, Any]) -> tuple[FrozenDict[str, Any], str | None]:
    """The frozen arguments, and their JSON text when they were nested too deeply to be kept in any other form."""
    if type(given) is FrozenDict:
        return given, None
    try:
        return deep_freeze(dict(given), max_depth=MAX_WIRE_DEPTH), None
    except FreezeError as error:
        if error.cycle:
            raise
        text = json_text(given)
        return FrozenDict({"_raw": text}), text


class _Unset(str):
    """Tells a content that was not given from one given as ''."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "''"


_UNSET = _Unset()


@dataclass(frozen=True)
class Message(FieldsOnly):
    """One message: a turn of a user or model, a tool's result, or standing text.

    `content` is the text; `None` becomes "". A sequence in its place, or `blocks`, is the ordered content when there is
    more than one text: block values, texts, or wire dicts (see `as_block`). `content` is then the texts of the
    TextBlocks, joined with nothing between. `tool_calls` may be ToolCalls or mappings in OpenAI, Anthropic or plain
    `{id, name, arguments}` shape. `is_error`: this result reports a failure. `meta`: what the provider or importer said
    about the message; never counted, never compared, never sent but by the adapter that owns `meta[provider]`.

    Raises TypeError for a field of a wrong type, ValueError when `content` differs from the blocks' text.
    """

    role: str
    content: str = _UNSET
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    blocks: tuple[Block, ...] = field(default=(), kw_only=True)
    is_error: bool = field(default=False, kw_only=True)
    meta: Mapping[str, Any] = field(default_factory=no_entries, kw_only=True, compare=False)

    if TYPE_CHECKING:  # the fields hold one type, the constructor accepts several

        def __init__(
            self,
            role: str,
            content: str | Sequence[Block | ToolCall | Mapping[str, Any] | str] | None = "",
            name: str | None = None,
            tool_call_id: str | None = None,
            tool_calls: Iterable[ToolCall | Mapping[str, Any]] | None = (),
            *,
            blocks: Iterable[Block | ToolCall | Mapping[str, Any] | str] | None = (),
            is_error: bool = False,
            meta: Mapping[str, Any] = EMPTY,
        ) -> None: ...

    def __post_init__(self) -> None:
        put = object.__setattr__
        settle_text(self, "role")
        settle_text(self, "name", "tool_call_id", optional=True)
        require(self.is_error, bool, "Message.is_error")
        if type(self.meta) is not FrozenDict:
            put(self, "meta", freeze_mapping(self.meta, "Message.meta"))
        if self.tool_calls != ():
            put(self, "tool_calls", _as_calls(self.tool_calls))
        content: Any = self.content
        if type(content) is str and self.blocks == ():
            put(self, "blocks", ())
            return
        given: Any = self.blocks
        if content is None or content is _UNSET:
            content = None
        elif isinstance(content, str):
            content = str.__str__(content)
        elif isinstance(content, (list, tuple)):
            if given:
                raise ValueError("a Message takes its blocks as `content` or as `blocks`, not as both")
            content, given = None, content
        else:
            raise TypeError(f"Message.content must be a str or a sequence of blocks, not {type(content).__name__}")
        blocks, calls = _as_blocks(() if given is None else given, self.tool_calls)
        put(self, "tool_calls", calls)
        text = "".join([b.text for b in blocks if type(b) is TextBlock])
        if blocks and content is not None and content != text:
            raise ValueError(
                "Message.content differs from the text of its blocks; change the text of a message that has blocks "
                "with message.with_text(...)"
            )
        blocks = _without_natural_marks(blocks, len(calls))
        put(self, "content", text if blocks or content is None else content)
        put(self, "blocks", () if len(blocks) == 1 and _is_plain(blocks[0]) else blocks)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        next(_comparisons)
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Message)
        return (
            self.role == other.role
            and self.content == other.content
            and self.name == other.name
            and self.tool_call_id == other.tool_call_id
            and self.tool_calls == other.tool_calls
            and self.blocks == other.blocks
            and self.is_error == other.is_error
        )

    def __hash__(self) -> int:
        return derived(self, "_hash", _hash_of)

    @classmethod
    def trusted(
        cls,
        role: str,
        content: str,
        name: str | None,
        tool_call_id: str | None,
        tool_calls: tuple[ToolCall, ...],
        blocks: tuple[Block, ...],
        is_error: bool,
        meta: FrozenDict[str, Any],
    ) -> Message:
        """A message of fields that are already what the constructor would make of them; nothing is checked."""
        made = object.__new__(cls)
        made.__dict__.update(
            role=role,
            content=content,
            name=name,
            tool_call_id=tool_call_id,
            tool_calls=tool_calls,
            blocks=blocks,
            is_error=is_error,
            meta=meta,
        )
        return made

    @property
    def digest(self) -> bytes:
        """SHA-256 of what a model would be sent of this message: equal in every process, `meta` left out."""
        return derived(self, "_digest", _digest_of)

    @property
    def ordered(self) -> tuple[Block | ToolCall, ...]:
        """All content in the order it is sent: blocks with each CallMark replaced by its call, unmarked calls last."""
        return derived(self, "_ordered", _ordered_of)

    def with_text(self, text: str) -> Message:
        """A copy whose text is `text`: one TextBlock in the place of the first, all other blocks kept.

        Where there was no text, it goes before the first call, else last. An empty text leaves no TextBlock.
        """
        require(text, str, "text")
        if not self.blocks:
            return replace(self, content=text)
        at = next((i for i, b in enumerate(self.blocks) if type(b) is TextBlock), None)
        if at is None:
            at = next((i for i, b in enumerate(self.blocks) if type(b) is CallMark), len(self.blocks))
        head = [b for b in self.blocks[:at] if type(b) is not TextBlock]
        tail = [b for b in self.blocks[at:] if type(b) is not TextBlock]
        middle = [TextBlock(text)] if text else []
        return replace(self, content=text, blocks=(*head, *middle, *tail))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data from which `from_dict` makes an equal message, `meta` included; defaults are left out.

        Bytes are base64 text. Other values that JSON has no form for (dates, sets) are tagged as the codec does it;
        those that the codec does not know raise CodecError.
        """
        from .plain import described  # here, since few who import a message write it down

        return described(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """The message that `to_dict` described; keys it does not know land in `meta`."""
        from .plain import from_mapping

        return from_mapping(cls, data)


def same_objects(left: Sequence[Message], right: Sequence[Message]) -> bool:
    """Whether two lists, or two tuples, hold the very same messages in the same order; costs pointer comparisons.

    Equal messages may still differ in meta and in what is sent: `1`, `1.0` and `True` in arguments are equal to Python.
    """
    # Sequences compare their items by identity before they ask for equality, all in C and ten times faster than a loop
    # over `is`. So when no two messages have been compared meanwhile, in any thread, all items were the same.
    before = next(_comparisons)
    try:
        return left == right and (next(_comparisons) == before + 1 or all(map(is_, left, right)))
    except Exception:  # an argument's own __eq__ runs here; arrays refuse to be a truth value
        return False


def begins_with(messages: tuple[Message, ...], head: tuple[Message, ...]) -> bool:
    """Whether `messages` begins with the very objects of `head`: as `same_objects`, and without copying anything."""
    # Tuples are ordered by their first two items that differ, which messages refuse, or else by their lengths.
    before = next(_comparisons)
    try:
        return messages >= head and (next(_comparisons) == before + 1 or all(map(is_, head, messages)))
    except Exception:  # as in same_objects
        return False


def require_messages(given: Iterable[Any], what: str) -> list[Message]:
    """A list of `given`; TypeError naming `what` and the place for anything that is no Message."""
    messages = list(given)
    for at, message in enumerate(messages):
        if not isinstance(message, Message):
            raise TypeError(
                f"{what}[{at}] must be a Message, not {type(message).__name__}; Message.from_dict reads a mapping"
            )
    return messages


def mark(message: Message, kind: str, /, **info: Any) -> Message:
    """A copy of `message` with `meta["agentkit"][kind] = info`.

    Kinds: `summary` (covers = how many messages it stands for), `pinned`, `pending` (interim result, the call stays
    open), `synthetic` (stand-in made by code), `late` (result of a call already answered in what was sent).
    """
    if kind not in MARKS:
        raise ValueError(f"unknown mark {kind!r}; known are {', '.join(sorted(MARKS))}")
    own = message.meta.get("agentkit")
    marks = {**own} if isinstance(own, Mapping) else {}
    return replace(message, meta={**message.meta, "agentkit": {**marks, kind: info}})


def unmark(message: Message, kind: str, /) -> Message:
    """A copy without that mark; the same object where it has none."""
    own = message.meta.get("agentkit")
    if not isinstance(own, Mapping) or kind not in own:
        return message
    marks = {k: v for k, v in own.items() if k != kind}
    meta = {k: v for k, v in message.meta.items() if k != "agentkit"}
    return replace(message, meta={**meta, "agentkit": marks} if marks else meta)


def marked(message: Message, kind: str, /) -> Mapping[str, Any] | None:
    """What `mark` noted under `kind`, or None."""
    own = message.meta.get("agentkit")
    found = own.get(kind) if isinstance(own, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _hash_of(m: Message) -> int:
    return hash((m.role, m.content, m.name, m.tool_call_id, m.tool_calls))


def _digest_of(m: Message) -> bytes:
    shape: list[Any] = [m.role, m.content, m.name, m.tool_call_id, m.is_error]
    shape.append([[c.id, c.name, c.wire_arguments] for c in m.tool_calls])
    blocks = [[type(b).__name__, *[_digestible(getattr(b, f.name)) for f in fields(b)]] for b in m.blocks]
    shape.append([] if len(blocks) == 1 and blocks[0][0] == "TextBlock" and not blocks[0][2] else blocks)
    return hashlib.sha256(wire_json(shape).encode("utf-8", "surrogatepass")).digest()


def _digestible(value: Any) -> Any:
    if isinstance(value, bytes):
        return "sha256:" + hashlib.sha256(value).hexdigest()
    if isinstance(value, dict) and "cache_control" in value:  # never sent: only the plan sets marks
        return {k: v for k, v in value.items() if k != "cache_control"}
    return value


def _ordered_of(m: Message) -> tuple[Block | ToolCall, ...]:
    if not m.blocks:
        return (*((TextBlock(m.content),) if m.content else ()), *m.tool_calls)
    placed = {b.index for b in m.blocks if type(b) is CallMark}
    inline = [m.tool_calls[b.index] if type(b) is CallMark else b for b in m.blocks]
    return (*inline, *[c for i, c in enumerate(m.tool_calls) if i not in placed])


def _as_calls(given: Any) -> tuple[ToolCall, ...]:
    if given is None:
        return ()
    if isinstance(given, (str, bytes, Mapping)):
        raise TypeError(f"Message.tool_calls must be a sequence of calls, not {type(given).__name__}")
    return tuple([entry if type(entry) is ToolCall else as_call(entry) for entry in given])


def as_call(entry: Any) -> ToolCall:
    """The ToolCall in a mapping of OpenAI, Anthropic or plain `{id, name, arguments}` shape; else TypeError.

    A missing id or name becomes "". Keys beside the known ones are kept in the call's `meta`.
    """
    if isinstance(entry, ToolCall):
        return entry
    if not isinstance(entry, Mapping):
        raise TypeError(f"a tool call must be a ToolCall or a mapping, not {type(entry).__name__}")
    inner = entry.get("function")
    rest = {k: v for k, v in entry.items() if k not in ("id", "type", "function", "name", "input", "args", "arguments")}
    source = inner if isinstance(inner, Mapping) else entry
    name = source.get("name") if source is not entry or not isinstance(inner, str) else inner
    arguments = next((source[k] for k in ("arguments", "input", "args") if k in source), EMPTY)
    try:
        return ToolCall(entry.get("id"), name, arguments, meta=rest)
    except FreezeError as error:
        if error.cycle:
            raise
        return ToolCall(entry.get("id"), name, arguments, meta={"_raw": json_text(rest)})


def _as_blocks(given: Any, calls: tuple[ToolCall, ...]) -> tuple[tuple[Block, ...], tuple[ToolCall, ...]]:
    if isinstance(given, (str, bytes, Mapping)):
        raise TypeError(f"Message.blocks must be a sequence of blocks, not {type(given).__name__}")
    blocks: list[Block] = []
    found = list(calls)
    for entry in given:
        if isinstance(entry, BLOCK_TYPES):
            blocks.append(entry)
        elif isinstance(entry, str):
            blocks.append(TextBlock(entry))
        elif isinstance(entry, ToolCall) or (isinstance(entry, Mapping) and entry.get("type") == "tool_use"):
            blocks.append(CallMark(len(found)))
            found.append(as_call(entry))
        else:
            blocks.append(as_block(entry))
    marks = [b.index for b in blocks if type(b) is CallMark]
    if len(set(marks)) != len(marks) or any(not 0 <= i < len(found) for i in marks):
        raise ValueError(f"each CallMark must name one of the {len(found)} tool calls, and each only once: {marks}")
    return tuple(blocks), tuple(found)


def _without_natural_marks(blocks: tuple[Block, ...], calls: int) -> tuple[Block, ...]:
    # Calls without a mark follow the last block, so closing marks that say the same are left out: one spelling.
    end = len(blocks)
    while end and type(blocks[end - 1]) is CallMark:
        end -= 1
    closing = [b.index for b in blocks[end:] if type(b) is CallMark]
    placed = {b.index for b in blocks if type(b) is CallMark}
    natural = closing + [i for i in range(calls) if i not in placed]
    return blocks[:end] if natural == sorted(natural) else blocks


def _is_plain(block: Block) -> bool:
    return type(block) is TextBlock and not block.extra
