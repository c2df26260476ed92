"""Laws of `check` and `repair` over random transcripts, against rules written down a second time."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.core.contracts.messages import derived
from agentkit.core.contracts.surrogates import replace_surrogates
from agentkit.core.contracts.types import (
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    mark,
)
from agentkit.core.contracts.validity import (
    ANTHROPIC,
    CODES,
    GEMINI,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    STRICT,
    Rules,
    Spelling,
    check,
    open_calls,
    repair,
)
from tests.strategies import messages, transcripts, valid_transcripts

VARIANTS = (
    replace(ANTHROPIC, name="anthropic-late-system", late_system=True),
    replace(GEMINI, name="gemini-3", media_in_results=True, media_in_errors=True),
    replace(OPENAI_CHAT, name="short-ids", ids=Spelling("a-zA-Z0-9", 16, filler="0")),
)
ALL = (STRICT, ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, GEMINI, *VARIANTS)
every_rules = st.sampled_from(ALL)
often = settings(max_examples=2 * settings().max_examples)

Item = Block | ToolCall


# What each provider accepts, written down apart from the library's own rules.

IDS = {
    "strict": r"[A-Za-z0-9_-]{1,40}", "anthropic": r"[A-Za-z0-9_-]{1,64}",
    "anthropic-late-system": r"[A-Za-z0-9_-]{1,64}",
    "openai-chat": r"(?s:.{1,40})", "openai-responses": r"(?s:.{1,64})", "gemini": r"(?s:.+)", "gemini-3": r"(?s:.+)",
    "short-ids": r"[A-Za-z0-9]{1,16}",
}  # fmt: skip
_PLAIN, _GEMINI_NAME = r"[A-Za-z0-9_-]{1,64}", r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}"
TOOL_NAMES = {
    "strict": r"[A-Za-z_][A-Za-z0-9_-]{0,63}", "anthropic": r"[A-Za-z0-9_-]{1,128}",
    "anthropic-late-system": r"[A-Za-z0-9_-]{1,128}", "openai-chat": _PLAIN, "openai-responses": _PLAIN,
    "gemini": _GEMINI_NAME, "gemini-3": _GEMINI_NAME, "short-ids": _PLAIN,
}  # fmt: skip
SPEAKERS = {"strict": _PLAIN, "openai-chat": _PLAIN, "short-ids": _PLAIN}
PROVIDER = {
    "strict": None, "anthropic": "anthropic", "anthropic-late-system": "anthropic", "openai-chat": "openai",
    "short-ids": "openai", "openai-responses": "openai", "gemini": "gemini", "gemini-3": "gemini",
}  # fmt: skip
LATE_SYSTEM = {"openai-chat", "short-ids", "openai-responses", "anthropic-late-system"}
NEIGHBOURS = {"openai-chat", "short-ids", "openai-responses"}
MEDIA_IN_RESULTS = {"anthropic", "anthropic-late-system", "openai-responses", "gemini-3"}
MEDIA_IN_ERRORS = {"openai-responses", "gemini-3"}
MEDIA_IN_REPLIES = {"gemini", "gemini-3"}
SIGNED = {"strict", "anthropic", "anthropic-late-system"}
CHAT_PARTS = {"file", "input_audio", "refusal"}


def refusals(view: Sequence[Message], rules: Rules) -> list[str]:
    """Why a provider would refuse `view`; empty if it would not."""
    return [
        *_structure(view, rules.name),
        *(f"{i}: {w}" for i, m in enumerate(view) for w in _one(m, i, view, rules.name)),
    ]


def _structure(view: Sequence[Message], provider: str) -> Iterator[str]:
    rest = list(view)
    while rest and rest[0].role in ("system", "developer"):
        rest.pop(0)
    if rest and rest[0].role != "user":
        yield f"begins with {rest[0].role}"
    if provider not in LATE_SYSTEM and any(m.role in ("system", "developer") for m in rest):
        yield "late system text"
    if any(m.role not in ("system", "developer", "user", "assistant", "tool") for m in view):
        yield "unknown role"
    for before, after in pairwise(rest):
        if before.role == after.role == "assistant" or (
            before.role == after.role == "user" and provider not in NEIGHBOURS
        ):
            yield f"two {after.role} messages"
    every = [call.id for m in view for call in m.tool_calls]
    if len(set(every)) != len(every):
        yield "ids repeat"
    at = 0
    while at < len(view):
        expected = sorted(call.id for call in view[at].tool_calls)
        at += 1
        answered = []
        while at < len(view) and view[at].role == "tool":
            answered.append(view[at].tool_call_id or "")
            at += 1
        if sorted(answered) != expected:
            yield f"calls {expected}, results {answered}"


def _one(message: Message, at: int, view: Sequence[Message], provider: str) -> Iterator[str]:
    role, items = message.role, message.ordered
    if not items:
        yield "nothing in it"
    if message.name is not None:
        pattern = TOOL_NAMES[provider] if role == "tool" else SPEAKERS.get(provider, "(?s:.*)")
        if not re.fullmatch(pattern, message.name):
            yield "name"
    if any(has_halves(text) for text in texts_of([message.name, message.tool_call_id, *items], skip_provider=True)):
        yield "no UTF-8"
    for item in items:
        yield from _item(item, message, provider)
    if role == "assistant":
        yield from _assistant(items, at == len(view) - 1, provider)
    elif any(isinstance(item, (ToolCall, ThinkingBlock, RedactedThinkingBlock)) for item in items):
        yield "calls or thinking"


def _item(item: Item, message: Message, provider: str) -> Iterator[str]:
    role = message.role
    if isinstance(item, TextBlock):
        if not item.text.strip():
            yield "blank text"
        if {"cache_control", "prompt_cache_breakpoint"} & set(item.extra):
            yield "cache mark"
    elif isinstance(item, ToolCall):
        if not re.fullmatch(IDS[provider], item.id):
            yield "id"
        if not re.fullmatch(TOOL_NAMES[provider], item.name):
            yield "tool name"
        if item.invalid or not isinstance(json.loads(item.wire_arguments), dict):
            yield "arguments"
    elif isinstance(item, NativeBlock):
        yield from _native(item, message, provider)
    elif isinstance(item, (ImageBlock, DocumentBlock)):
        allowed = {
            "user": True,
            "assistant": provider in MEDIA_IN_REPLIES,
            "tool": provider in (MEDIA_IN_ERRORS if message.is_error else MEDIA_IN_RESULTS),
        }
        if not item.source or not allowed.get(role, False):
            yield "media"


def _native(item: NativeBlock, message: Message, provider: str) -> Iterator[str]:
    kind = item.payload.get("type") if isinstance(item.payload, Mapping) else None
    if kind == "tool_result":
        yield "native tool result"
    if marks_in(item.payload):
        yield "cache mark"
    if PROVIDER[provider] is None:
        return
    if item.provider != PROVIDER[provider]:
        yield "foreign"
    if PROVIDER[provider] == "openai" and provider != "openai-responses" and kind not in CHAT_PARTS:
        yield "foreign part"
    if message.role == "tool" and provider not in (MEDIA_IN_ERRORS if message.is_error else MEDIA_IN_RESULTS):
        yield "native block in a result"
    if message.role in ("system", "developer"):
        yield "native block in system text"
    lone = kind == "reasoning" or (kind == "thinking" and provider in SIGNED)
    if lone and message.role != "assistant":
        yield f"{kind} elsewhere"
    if kind == "thinking" and provider in SIGNED and not item.payload.get("signature"):
        yield "unsigned"


def _assistant(items: Sequence[Item], is_last: bool, provider: str) -> Iterator[str]:
    signed = provider in SIGNED
    for item in items:
        if signed and isinstance(item, ThinkingBlock) and not (item.signature or "").strip():
            yield "unsigned"
        if signed and isinstance(item, RedactedThinkingBlock) and not item.data.strip():
            yield "unsigned"
    kinds = [_kind(item, provider) for item in items]
    if set(kinds) <= {"thinking", "reasoning"}:
        yield "thinking only"
    if (signed and kinds[-1] == "thinking") or kinds[-1] == "reasoning":
        yield f"ends with {kinds[-1]}"
    without_thoughts = [kind for kind in kinds if kind != "thinking"]
    if without_thoughts[-1:] == ["reasoning"]:
        yield "reasoning leads nowhere"
    if not provider.startswith("anthropic"):
        return
    waiting: list[Any] = []
    seen_ids: list[Any] = []
    running = 0
    for item, kind in zip(items, kinds, strict=True):
        if kind == "server call" and isinstance(item, NativeBlock):
            waiting.append(item.payload.get("id"))
            seen_ids.append(item.payload.get("id"))
            running += 1
        elif kind == "server result" and isinstance(item, NativeBlock):
            if item.payload.get("tool_use_id") not in waiting:
                yield "server result without call"
            else:
                waiting.remove(item.payload.get("tool_use_id"))
            running = 0
        else:
            running = 0
    if waiting and not (is_last and running >= len(waiting)):
        yield "server call without result"


def _kind(item: Item, provider: str) -> str:
    if isinstance(item, (ThinkingBlock, RedactedThinkingBlock)):
        return "thinking"
    if not isinstance(item, NativeBlock) or PROVIDER[provider] is None or not isinstance(item.payload, Mapping):
        return "solid"
    kind = item.payload.get("type")
    if kind in ("thinking", "redacted_thinking"):
        return "thinking"
    if kind == "reasoning" and provider == "openai-responses":
        return "reasoning"
    if kind in ("server_tool_use", "mcp_tool_use"):
        return "server call"
    return "server result" if str(kind).endswith("_tool_result") else "solid"


def has_halves(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def marks_in(payload: Any) -> bool:
    if isinstance(payload, (list, tuple)):
        return any(map(marks_in, payload))
    if not isinstance(payload, Mapping):
        return False
    inner = [payload[key] for key in ("content", "source", "output") if key in payload]
    return not {"cache_control", "prompt_cache_breakpoint"}.isdisjoint(payload) or any(map(marks_in, inner))


def texts_of(value: Any, skip_provider: bool = False) -> Iterator[str]:
    """Every text inside `value`, keys too; of calls what is rendered. A native block's provider is never sent."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, ToolCall):
        yield from texts_of([value.id, value.name, value.wire_arguments, json.loads(value.wire_arguments)])
    elif isinstance(value, Mapping):
        yield from texts_of(list(value.items()))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            yield from texts_of(part, skip_provider)
    elif isinstance(value, NativeBlock) and skip_provider:
        yield from texts_of(value.payload)
    elif hasattr(value, "__dataclass_fields__"):
        yield from texts_of([getattr(value, name) for name in value.__dataclass_fields__])


def sent(view: Sequence[Message]) -> list[tuple[Any, ...]]:
    """What goes over the wire, item by item, without the borders between messages of one role."""
    found: list[tuple[Any, ...]] = []
    for m in view:
        about = (m.role, m.name, m.tool_call_id, m.is_error) if m.role == "tool" else (m.role, m.name)
        for item in m.ordered:
            if m.role in ("user", "assistant") and len(about) == 2:
                about = (m.role, m.name)
            found.append((about, item))
    return found


# The laws


@often
@given(every_rules, transcripts(), st.none() | st.integers(0, 3))
def test_repaired_view_is_accepted(rules: Rules, given_messages: list[Message], prefix: int | None) -> None:
    """G5: by the rules above, by `check`, and a second repair finds nothing (G4)."""
    view = repair(given_messages, rules, prefix=prefix)
    assert refusals(view.messages, rules) == []
    assert check(view.messages, rules) == ()
    again = repair(view.messages, rules)
    assert again.messages is view.messages
    assert again.changes == ()


@often
@given(every_rules, transcripts())
def test_no_refusal_goes_unseen(rules: Rules, given_messages: list[Message]) -> None:
    """G3: whatever a provider would refuse is a problem, and every problem has a known code and place."""
    problems = check(given_messages, rules)
    assert problems or not refusals(given_messages, rules)
    for problem in problems:
        assert problem.code in CODES
        assert 0 <= problem.index < len(given_messages)
        assert problem.detail
    assert [p.index for p in problems] == sorted(p.index for p in problems)


@often
@given(every_rules, transcripts())
def test_untouched_messages_are_the_same(rules: Rules, given_messages: list[Message]) -> None:
    """A message of the view is one of the input's, or some change is reported at it or for it."""
    given_tuple = tuple(given_messages)
    view = repair(given_tuple, rules)
    if not view.changes:
        assert view.messages is given_tuple
    named = {problem.index for problem in view.changes}
    kept = {id(message) for message in view.messages}
    joined = {p.index for p in view.changes if p.code == "same-role"}
    for index, message in enumerate(given_tuple):
        if id(message) not in kept and index not in named:
            # The first of several that were joined changes by what the others report.
            assert joined


@often
@given(st.sampled_from(ALL[:-1]), valid_transcripts())
def test_valid_transcript_passes(rules: Rules, given_messages: list[Message]) -> None:
    given_tuple = tuple(given_messages)
    assert refusals(given_tuple, rules) == []
    assert check(given_tuple, rules) == ()
    assert repair(given_tuple, rules).messages is given_tuple
    assert repair(given_messages, rules).messages == given_tuple


@often
@given(every_rules, transcripts())
def test_strict_view_is_valid_everywhere(rules: Rules, given_messages: list[Message]) -> None:
    """But for native blocks, which the strict rules do not judge."""
    view = repair(given_messages).messages
    if rules.name != "short-ids" and not any(isinstance(b, NativeBlock) for m in view for b in m.blocks):
        assert check(view, rules) == ()


@often
@given(every_rules, transcripts())
def test_record_is_left_alone(rules: Rules, given_messages: list[Message]) -> None:
    """G2: neither the list nor a message changes, in whatever way one looks at it."""
    before = [(id(m), repr(m), m.digest) for m in given_messages]
    first = repair(given_messages, rules)
    assert [(id(m), repr(m), _fresh_digest(m)) for m in given_messages] == before
    second = repair([_copy(m) for m in given_messages], rules)
    assert second == first  # G4: nothing kept on the messages decides
    assert repair(given_messages, rules) == first


def _copy(message: Message) -> Message:
    return replace(message)


def _fresh_digest(message: Message) -> bytes:
    return replace(message).digest


@st.composite
def grown(draw: st.DrawFn) -> tuple[list[Message], list[Message]]:
    """x and y as in the law of byte stability; results in y are marked late where they could answer a call in x."""
    head = draw(transcripts(8))
    while head and head[-1].role == "assistant":
        head.append(draw(messages(st.sampled_from(["user", "tool", "system", "function", "critic"]))))
    tail = [draw(messages(st.just("assistant"))), *draw(transcripts(8))]
    earlier = {call.id for message in head for call in message.tool_calls}
    return head, [mark(m, "late") if answers(m) & earlier else m for m in tail]


def answers(message: Message) -> set[str]:
    """The ids of the results in a message."""
    payloads = [b.payload for b in message.blocks if isinstance(b, NativeBlock) and isinstance(b.payload, Mapping)]
    found = {str(p.get("tool_use_id")) for p in payloads if p.get("type") == "tool_result"}
    return found | ({message.tool_call_id or ""} if message.role in ("tool", "function") else set())


@often
@given(every_rules, grown())
def test_sent_bytes_stay(rules: Rules, parts: tuple[list[Message], list[Message]]) -> None:
    """K4: what was sent for x is what is sent first for x + y; and every place in x stays where it was."""
    head, tail = parts
    before, after = repair(head, rules), repair(head + tail, rules)
    assert sent(after.messages)[: len(sent(before.messages))] == sent(before.messages)
    assert after.places[: len(head) + 1] == before.places


@often
@given(every_rules, grown(), st.lists(messages(st.sampled_from(["user", "developer"])), min_size=1, max_size=2))
def test_volatile_text_changes_nothing(
    rules: Rules, parts: tuple[list[Message], list[Message]], volatile: list[Message]
) -> None:
    """K4, K5: text put behind a request, with no results in it, leaves what is in front as it was."""
    head, _ = parts
    volatile = [m for m in volatile if not answers(m)]
    before, after = repair(head, rules), repair(head + volatile, rules)
    if any(m.role in ("user", "tool", "function", "critic") for m in head):
        assert sent(after.messages)[: len(sent(before.messages))] == sent(before.messages)


@often
@given(every_rules, transcripts())
def test_nothing_vanishes(rules: Rules, given_messages: list[Message]) -> None:
    """G6: user and assistant text stays, every call stays, and every result is shown, told or reported."""
    # A tool's message that only carries native results is none itself.
    given_messages = [m for m in given_messages if m.role not in ("tool", "function") or results_in(m) == 1]
    view = repair(given_messages, rules)
    assert texts_by(view.messages, "user") >= texts_by(given_messages, "user")
    assert texts_by(view.messages, "assistant") == texts_by(given_messages, "assistant")
    calls = [call for m in given_messages if m.role == "assistant" for call in m.tool_calls]
    assert sum(len(m.tool_calls) for m in view.messages) == len(calls)
    count = Counter((p.code, p.detail.startswith("told")) for p in view.changes)
    shown = sum(m.role == "tool" for m in view.messages) - count["unanswered", False]
    lost = count["orphan", False] + count["duplicate", False]
    assert shown + count["late", True] + lost == sum(map(results_in, given_messages))


def texts_by(transcript: Sequence[Message], role: str) -> Counter[str]:
    """The texts of that role's messages, as they may be sent."""
    blocks = [b for m in transcript if m.role == role for b in m.ordered if isinstance(b, TextBlock)]
    return Counter(replace_surrogates(b.text) for b in blocks if b.text.strip())


def results_in(message: Message) -> int:
    """How many results a message holds: native ones, and itself."""
    payloads = [b.payload for b in message.blocks if isinstance(b, NativeBlock) and isinstance(b.payload, Mapping)]
    native = [p for p in payloads if p.get("type") == "tool_result"]
    return len(native) + (message.role in ("tool", "function"))


@often
@given(every_rules, transcripts())
def test_places_lie_in_the_view(rules: Rules, given_messages: list[Message]) -> None:
    view = repair(given_messages, rules)
    assert len(view.places) == len(given_messages) + 1
    assert view.places[0] == (0, 0)
    assert list(view.places) == sorted(view.places)
    if view.messages:
        last = len(view.messages) - 1
        assert view.places[-1] == (last, len(view.messages[last].ordered))
    for message, number in view.places:
        if (message, number) != (0, 0):
            assert 0 < number <= len(view.messages[message].ordered)


@often
@given(st.sampled_from(ALL[:-1]), valid_transcripts())
def test_places_of_valid_transcript(rules: Rules, given_messages: list[Message]) -> None:
    places = repair(given_messages, rules).places
    assert places[1:] == tuple((i, len(m.ordered)) for i, m in enumerate(given_messages))


@often
@given(every_rules, transcripts())
def test_every_cut_gives_a_valid_view(rules: Rules, given_messages: list[Message]) -> None:
    """P1, P2: wherever a window begins or ends."""
    for at in range(len(given_messages) + 1):
        assert refusals(repair(given_messages[at:], rules).messages, rules) == []
        assert refusals(repair(given_messages[:at], rules).messages, rules) == []


@given(transcripts())
def test_open_calls_are_the_records_own(given_messages: list[Message]) -> None:
    """P5, P6."""
    known = {id(call) for message in given_messages if message.role == "assistant" for call in message.tool_calls}
    found = open_calls(given_messages)
    assert {id(call) for call in found} <= known
    assert len({id(call) for call in found}) == len(found) or len(known) < sum(
        len(m.tool_calls) for m in given_messages
    )


@given(messages())
def test_derived_facts_stay_private(message: Message) -> None:
    """What is kept on a message is outside equality, repr, copies and pickle."""
    fresh = replace(message)
    for rules in ALL:
        check([message], rules)
    derived(message, "_probe", lambda m: 1)
    assert message == fresh
    assert repr(message) == repr(fresh)
    assert set(message.__getstate__()) == set(fresh.__getstate__())
