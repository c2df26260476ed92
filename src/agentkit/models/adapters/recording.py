"""A recorded conversation as questions and answers, and how to find a question again. Touches only its arguments.

A question is what stands between two answers of the model: what a person said, or the results of the calls. A request
shows the newest question last; what is in front of it may be folded, masked or renamed, so it only decides between
questions that were asked several times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_

from agentkit.core.contracts.blocks import TextBlock
from agentkit.core.contracts.jsontext import canonical_json
from agentkit.core.contracts.messages import Message, ToolCall, marked, require_messages
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.surrogates import replace_surrogates
from agentkit.core.contracts.validity import STRICT
from agentkit.core.contracts.validity.mending import USER
from agentkit.core.contracts.validity.pairing import Entry, Pairing, Turn

from .in_process import Asked, backwards, is_whole, spoken


@dataclass(frozen=True)
class Question:
    """A place of the recording.

    `said`: what a person sent, if somebody did. `answer`: what the model said, None where the recording ends; `calls`:
    its calls under ids that are unique in the conversation, with their results as far as recorded. `before`: the place
    of the question in front of this one, None at the beginning. `is_of_calls`: it came behind calls of the model.
    `keys`: by which words it is found.
    """

    said: tuple[Message, ...]
    answer: Message | None
    calls: tuple[tuple[ToolCall, Message | None], ...] = ()
    before: int | None = None
    is_of_calls: bool = False
    keys: frozenset[bytes] = frozenset()
    answer_key: bytes = b""

    @property
    def is_silent(self) -> bool:
        """Whether nothing was asked: the model went on by itself."""
        return not self.said and not self.is_of_calls


@dataclass
class Recording:
    """Recorded conversations, ready to be asked."""

    questions: list[Question] = field(default_factory=list)
    _by_text: dict[bytes, list[int]] = field(default_factory=dict)
    _by_ids: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    _behind: dict[bytes | None, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, conversations: Iterable[Sequence[Message]]) -> Recording:
        """The recording of these conversations; TypeError for what is no Message."""
        made = cls()
        for number, conversation in enumerate(conversations):
            made._read(tuple(require_messages(conversation, f"conversation {number}")))
        return made

    def find(self, request: ChatRequest, *, after: int = -1) -> int | None:
        """The place of the question that a request ends with; None when it was never asked.

        Of several places that look the same to the end of the request, the first behind `after`, else the first.
        """
        back = backwards(request.messages, request.prefix_length)
        asked, answer = next(back)
        before = None if answer is None else answer_key(answer)
        found = self._candidates(asked, before)
        if len(found) > 1:
            found = self._narrowed(found, before, back, is_whole(request.messages, request.prefix_length))
        return next((place for place in found if place > after), found[0]) if found else None

    def behind(self, request: ChatRequest) -> list[int]:
        """The places that follow the answer that a request shows last."""
        _, answer = next(backwards(request.messages, request.prefix_length))
        return self._behind.get(None if answer is None else answer_key(answer), [])

    def _candidates(self, asked: Asked, before: bytes | None) -> list[int]:
        behind = self._behind.get(before, [])
        if asked.texts:
            # Older words of a person may have been kept in front of the newest, without the answers between them.
            for start in range(len(asked.texts)):
                found = self._by_text.get(text_key(asked.texts[start:]))
                if found:
                    return found
            return []
        if asked.results:
            # The calls say which question it is; what the tools say now may differ, or have been shortened. An id
            # may have been given twice, and a long argument may have been shortened too: either is enough.
            named = self._by_ids.get(_ids(result.tool_call_id for result in asked.results), [])
            behind = [place for place in behind if self.questions[place].is_of_calls]
            there = set(behind)
            return [place for place in named if place in there] or behind or named
        return [place for place in behind if self.questions[place].is_silent]

    def _narrowed(
        self, found: list[int], before: bytes | None, back: Iterator[tuple[Asked, Message | None]], whole: bool
    ) -> list[int]:
        """Those of the places in front of which the recording holds what the request holds, as far back as that tells
        any apart."""
        at = {place: self.questions[place].before for place in found}
        while len(at) > 1:
            if before is None:
                return [place for place, here in at.items() if here is None or not whole] or list(at)
            fits = {
                place: here
                for place, here in at.items()
                if here is not None and self.questions[here].answer_key == before
            }
            if not fits:
                return list(at)
            asked, answer = next(back)
            before = None if answer is None else answer_key(answer)
            if asked.texts:
                keys = {text_key(asked.texts[start:]) for start in range(len(asked.texts))}
                fits = {place: here for place, here in fits.items() if keys & self.questions[here].keys} or fits
            at = {place: self.questions[here].before for place, here in fits.items()}
        return list(at)

    # Reading

    def _read(self, messages: tuple[Message, ...]) -> None:
        pairing = Pairing(messages, STRICT, len(messages))
        before: int | None = None
        turns = pairing.turns
        for at, turn in enumerate(turns):
            question = _question(pairing, turn, turns[at + 1] if at + 1 < len(turns) else None, before)
            if question.answer is None and question.is_silent:
                break
            place = len(self.questions)
            self.questions.append(question)
            for key in question.keys:
                self._by_text.setdefault(key, []).append(place)
            if turn.slots:
                self._by_ids.setdefault(_ids(slot.call_id for slot in turn.slots), []).append(place)
            behind = None if before is None else self.questions[before].answer_key
            self._behind.setdefault(behind, []).append(place)
            before = place


def _question(pairing: Pairing, turn: Turn, following: Turn | None, before: int | None) -> Question:
    messages = [pairing.message_of(entry) for entry in turn.gap if entry.piece.kind == USER and not entry.piece.late]
    theirs = [message for message in messages if spoken(message)]
    said = [message for message in theirs if marked(message, "summary") is None]
    keys = {_said_key(one) for one in (said, theirs) if one}
    if not said and not turn.slots:
        said = theirs  # the recording client's own summary was all that was sent
    answer, calls = (None, ()) if following is None else _answer(pairing, following)
    return Question(
        tuple(said), answer, calls, before, bool(turn.slots), frozenset(keys), answer_key(answer) if answer else b""
    )


def _answer(pairing: Pairing, turn: Turn) -> tuple[Message, tuple[tuple[ToolCall, Message | None], ...]]:
    """What the model said, its calls under ids that no other call of the conversation has, with their results."""
    ids = {id(slot.call): slot.call_id for slot in turn.slots}
    parts = [_named(pairing.messages[part.index], ids) for part in turn.parts]
    if len(parts) > 1:
        items = [item for part in parts for item in part.ordered]
        parts = [Message("assistant", None, parts[0].name, blocks=items, meta=parts[-1].meta)]
    results = [None if slot.entry is None else _result(pairing, slot.entry) for slot in turn.slots]
    named = [replace(slot.call, id=slot.call_id) for slot in turn.slots]
    return parts[0], tuple(zip(named, results, strict=True))


def _named(message: Message, ids: Mapping[int, str]) -> Message:
    calls = [call if ids[id(call)] == call.id else replace(call, id=ids[id(call)]) for call in message.tool_calls]
    return message if all(map(is_, calls, message.tool_calls)) else replace(message, tool_calls=tuple(calls))


def _result(pairing: Pairing, entry: Entry) -> Message:
    """A result as it was recorded; as a message of its own where it was part of another."""
    recorded = pairing.messages[entry.index]
    return recorded if recorded.role == "tool" else pairing.message_of(entry)


def _said_key(messages: Sequence[Message]) -> bytes:
    return text_key([text for message in messages for text in spoken(message)])


def _ids(ids: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted(id or "" for id in ids))


def text_key(texts: Sequence[str]) -> bytes:
    """What makes two questions of a person the same, however their text is cut into pieces."""
    return hashlib.sha256("".join(texts).encode()).digest()


def answer_key(answer: Message) -> bytes:
    """What makes two answers the same: text and calls. Thinking may be left out of a request, blank text is, and ids
    may be renamed."""
    texts = [item.text for item in answer.ordered if isinstance(item, TextBlock) and item.text.strip()]
    calls = [[STRICT.tool_names.fit(call.name), canonical_json(call.arguments)] for call in answer.tool_calls]
    text = canonical_json([replace_surrogates("".join(texts)), calls])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
