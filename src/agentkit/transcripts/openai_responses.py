"""OpenAI responses: request bodies, lists of items, responses, exchanges. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.core.contracts.frozen import FrozenDict
from agentkit.core.contracts.types import Message, NativeBlock
from agentkit.models.usage import read_usage

from .conversation import Conversation
from .exchanges import Exchanged, gather, is_exchange
from .items import Turns, is_item
from .openai_chat import as_list
from .parsing import event_stream
from .parts import read_tools
from .report import Reporter
from .source import Source
from .transcript import Transcript

NAME = "openai-responses"
_NOT_OPTIONS = frozenset({"input", "instructions", "response", "output"})


def recognises(value: Any) -> bool:
    """Whether a document, or one line of several, is of this format: `input` items, `output` items, or bare items."""
    if isinstance(value, list):
        return any(is_item(entry) for entry in value)
    if not isinstance(value, Mapping):
        return False
    if is_exchange(value):
        return "input" in value["request"] and "messages" not in value["request"]
    if value.get("object") == "response" or is_item(value):
        return True
    given = value.get("input")
    looks_like_items = isinstance(given, list) and any(
        isinstance(i, Mapping) and ("role" in i or "type" in i) for i in given
    )
    return looks_like_items or (isinstance(given, str) and "model" in value)


def read(source: Source) -> tuple[Transcript, ...]:
    """A conversation for each request body or response; one for a list of items; exchanges gathered into theirs."""
    exchanges: list[tuple[int, Mapping[str, Any]]] = []
    loose: list[Any] = []
    transcripts: list[Transcript] = []
    for number, value in source.documents():
        if is_exchange(value) and "input" in value["request"]:
            exchanges.append((number, value))
        elif isinstance(value, Mapping) and ("input" in value or "output" in value) and not is_item(value):
            one = Exchanged(value, list(as_list(value.get("input"))))
            response = value if "output" in value else value.get("response")
            if response is not None:
                one.responses.append((number, len(one.entries), response))
            transcripts.append(_read_request(one, Reporter() if transcripts else source.report, source))
        elif isinstance(value, list):
            loose.extend(value)
        else:
            loose.append(value)
    for one in gather(exchanges, "input"):
        transcripts.append(_read_request(one, Reporter() if transcripts else source.report, source))
    if loose or not transcripts:
        report = Reporter() if transcripts else source.report
        transcripts.append(_read_request(Exchanged(FrozenDict(), loose), report, source))
    return tuple(transcripts)


def _read_request(one: Exchanged, report: Reporter, source: Source) -> Transcript:
    conversation = Conversation(NAME, report)
    for text in as_list(one.request.get("instructions")):
        content = text if isinstance(text, str) else [NativeBlock("openai", text)]
        conversation.add(Message("system", content), "instructions")
    if one.request.get("previous_response_id") is not None:
        reason = "the request continues a response that is stored elsewhere"
        report.note("beginning elsewhere", "previous_response_id", "the file has only the end", reason)
    turns = Turns(conversation)
    turns.model = one.request.get("model")
    starts: list[int] = []
    given = one.request.get("input")
    entries = [FrozenDict(role="user", content=given)] if isinstance(given, str) else one.entries
    for number, item in enumerate(entries, 1):
        starts.append(len(conversation.history))  # where the turn goes that this item begins or continues
        turns.take(item, f"item {number}")
    turns.flush()
    _add_responses(turns, one, starts, source)
    request = {k: v for k, v in one.request.items() if k not in _NOT_OPTIONS}
    if request:
        report.note("options kept", "the request", "kept in meta", "what it says beside its items")
    meta = {"request": request or None, "exchanges": one.beside or None}
    return conversation.finish(
        tools=read_tools(one.request.get("tools")), meta=meta, context=after_compaction(conversation)
    )


def _add_responses(turns: Turns, one: Exchanged, starts: list[int], source: Source) -> None:
    taken, conversation = one.taken(), turns.conversation
    for number, length, given in one.responses:
        response = _assembled(given) if isinstance(given, str) else given
        place = source.place(number)
        if not isinstance(response, Mapping):
            conversation.report.note("response unreadable", place, "not in the history", "neither items nor usage")
            continue
        index = starts[length] if length < len(starts) else None
        if number not in taken or (index is not None and conversation.history[index].role != "assistant"):
            conversation.report.note("response not continued", place, "usage only", "no later request has this turn")
            index = None
        elif index is None:
            turns.model = response.get("model")
            for item in as_list(response.get("output")):
                turns.take(item, place)
            turns.flush()
            index = turns.last_turn
        usage = response.get("usage")
        reading = read_usage(usage, "openai_responses") if isinstance(usage, Mapping) else None
        time = response.get("created_at")
        conversation.respond(index, reading, model=response.get("model"), time=time, id=response.get("id"), place=place)


def after_compaction(conversation: Conversation) -> list[Message] | None:
    """The context from the last compaction item on; None when there is none."""
    for index in range(len(conversation.history) - 1, -1, -1):
        if any(is_compaction(block) for block in conversation.history[index].blocks):
            conversation.compact(index, "server")
            return conversation.history[index:]
    return None


def is_compaction(block: Any) -> bool:
    payload = block.payload if isinstance(block, NativeBlock) else None
    return isinstance(payload, Mapping) and payload.get("type") in ("compaction", "compaction_summary")


def _assembled(stream: str) -> Any:
    """The response that a recorded event stream ends with."""
    found: Any = None
    for event in event_stream(stream):
        if isinstance(event, Mapping) and isinstance(event.get("response"), Mapping):
            found = event["response"]
    return found
