"""Recall: which entries a text names, how entries are told within their room, and what an entry says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.context.recall import SHORTEST, RecallRefused, parsed_entries, says, text_of, told_entries
from agentd.context.record import (
    AssistantMsg,
    Call,
    Compaction,
    DataPart,
    Entry,
    FilePart,
    Msg,
    NoteMsg,
    Outcome,
    SystemMsg,
    TextPart,
    ToolMsg,
    UserMsg,
    Visible,
    entry_of,
)
from agentd.context.rows import decode_entry, encode_entry
from agentd.context.view import View, view
from agentkit.core.contracts.messages import Message
from agentkit.state.compaction.ranges import numbers_in
from agentkit.state.context import CharClassTokenCounter
from agentkit.state.stores.find import Query, searchable

from .strategies import logs

COUNTER = CharClassTokenCounter()


def stored(entry: Entry) -> Entry:
    """As it comes back from a store."""
    return decode_entry(encode_entry(entry))


# Numbers


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 20)), min_size=1, max_size=6), st.integers(0, 50))
def test_ranges_name_what_they_say_as_far_as_it_is_there(given_ranges: list[tuple[int, int]], last: int) -> None:
    text = ",".join(f"{first}-{first + more}" if more else f" {first} " for first, more in given_ranges)
    wanted = {n for first, more in given_ranges for n in range(first, first + more + 1) if n <= last}
    assert list(numbers_in(parsed_entries(text, last))) == sorted(wanted)


@pytest.mark.parametrize("text", ["", "all", "1,,2", "-3", "1-", "3-2", "0", "1;2", "1.5", "1-2-3", "9" * 10])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(RecallRefused, match=r"numbers and ranges such as 12-20,31|numbered from 1 on"):
        parsed_entries(text, 5)


def test_a_range_beyond_everything_costs_nothing() -> None:
    assert parsed_entries("1-999999999", 3) == ((1, 3),)
    assert parsed_entries("999999999", 3) == ()


# How they are told


def told(*entries: Entry, **options: Any) -> list[dict[str, Any]]:
    return list(told_entries(entries, options.pop("shown", View()), counter=COUNTER, **options).entries)


def test_messages_are_told_in_full_with_number_role_and_time() -> None:
    made = entry_of(7, UserMsg((TextPart("hello"),)), ts=1_700_000_000_500)
    assert told(made, shown=View(visible=Visible((), None))) == [
        {"n": 7, "role": "user", "ts": "2023-11-14T22:13:20Z", "text": "hello", "folded": True}
    ]  # fmt: skip
    assert told(entry_of(1, NoteMsg("x")), shown=view([entry_of(1, NoteMsg("x"))]))[0]["folded"] is False
    assert told(entry_of(1, Outcome("t", "completed")), entry_of(2, Compaction())) == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (SystemMsg("rule"), "rule"),
        (UserMsg((TextPart("a"), DataPart({"b": 1}), FilePart("c.png", uri="x:c"))), 'a\n{"b":1}\n[file c.png]'),
        (UserMsg((FilePart(artifact="ff"), FilePart())), "[file ff]\n[file without a name]"),
        (AssistantMsg("so", (Call("c1", "read", {"p": 1}), Call("c2", "raw", "{"))), 'so\n-> read({"p":1})\n-> raw({)'),
        (AssistantMsg("", (Call("c1", "list"),)), "-> list()"),
        (ToolMsg("c1", "read", {"a": ["é"]}), '{"a":["é"]}'),
        (ToolMsg("c1", "read", "bare", parts=(TextPart("more"),)), "bare\nmore"),
    ],
)  # fmt: skip
def test_everything_that_a_message_says_is_told(body: Any, text: str) -> None:
    assert text_of(entry_of(1, body)) == text


@given(logs(), st.integers(1, 12), st.integers(1, 400))
def test_what_is_told_are_the_first_messages_that_fit(log: list[Entry], limit: int, tokens: int) -> None:
    log = [stored(entry) for entry in log]
    found = told_entries(log, view(log), counter=COUNTER, limit=limit, max_tokens=tokens)
    messages = [entry for entry in log if entry.is_message]
    assert [one["n"] for one in found.entries] == [entry.n for entry in messages][: len(found.entries)]
    assert len(found.entries) <= limit
    assert found.is_truncated or len(found.entries) == len(messages)
    assert bool(found.entries) == bool(messages)
    if len(found.entries) > 1:
        assert sum(COUNTER.measure([Message("user", one["text"])]) for one in found.entries) <= tokens
    for one, entry in zip(found.entries, messages, strict=False):
        assert one["text"] == text_of(entry) or (found.is_truncated and len(found.entries) == 1)


@pytest.mark.parametrize("text", ["word " * 5_000, "数据" * 400 + "a" * 40_000 + "数据" * 400, "x" * 50_000])
@pytest.mark.parametrize("tokens", [100, 1_000, 4_000])
def test_one_that_alone_is_too_large_shows_its_ends_within_the_room(text: str, tokens: int) -> None:
    found = told_entries([entry_of(1, NoteMsg(f"BEGIN{text}END"))], View(), counter=COUNTER, max_tokens=tokens)
    assert found.is_truncated
    short = found.entries[0]["text"]
    assert short.startswith("BEGIN")
    assert short.endswith("END")
    assert COUNTER.measure([Message("user", short)]) <= tokens


def test_however_little_room_there_is_something_is_told() -> None:
    found = told(entry_of(1, NoteMsg("x" * 1_000)), entry_of(2, NoteMsg("y")), max_tokens=1)
    assert [one["n"] for one in found] == [1]
    assert "x" * 10 in found[0]["text"]
    assert len(found[0]["text"]) < 3 * SHORTEST


# What an entry says

PLANTED = [
    "40213", "src/app/main.py", r"C:\temp\new.txt", '"quoted"', "数据库", "é", "ID_77-b", "x\\nend", "a/b//c", "3.25",
]  # fmt: skip
PLACES: dict[str, Callable[[str], Msg]] = {
    "a text": lambda fact: UserMsg((TextPart(f"about {fact} and more"),)),
    "data": lambda fact: UserMsg((DataPart({"deep": [{"er": fact}]}),)),
    "a key": lambda fact: UserMsg((DataPart({fact: None}),)),
    "a file": lambda fact: UserMsg((FilePart("name", uri=f"file:///{fact}"),)),
    "an answer": lambda fact: AssistantMsg(f"it is {fact}."),
    "arguments": lambda fact: AssistantMsg("", (Call("c1", "read", {"of": fact}),)),
    "raw arguments": lambda fact: AssistantMsg("", (Call("c1", "read", f'{{"of": {fact}'),)),
    "a result": lambda fact: ToolMsg("c1", "read", f"found {fact}"),
    "a structured result": lambda fact: ToolMsg("c1", "read", [{"name": fact}, 1]),
    "a note": lambda fact: NoteMsg(f"done: {fact}"),
    "a system message": lambda fact: SystemMsg(f"use {fact}"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fact", PLANTED)
def test_f32_what_stands_anywhere_in_a_message_is_found_by_the_store_and_by_the_entry(place: str, fact: str) -> None:
    entry = entry_of(3, PLACES[place](fact), ts=1)
    line = encode_entry(entry)
    assert decode_entry(line) == entry
    for wanted in (fact, fact.upper(), fact[: len(fact) // 2 + 1]):
        assert Query(wanted).excerpt(searchable(line)) is not None, "the store's rule"
        assert says(entry, wanted.split()), "the entry's"


@pytest.mark.parametrize("number", [40213, -7, 3.25, 10**25])
def test_f32_a_number_in_a_result_is_found_by_its_digits(number: Any) -> None:
    entry = entry_of(3, ToolMsg("c1", "read", {"port": [number]}))
    assert Query(json.dumps(number)).excerpt(searchable(encode_entry(entry))) is not None
    assert says(entry, [json.dumps(number)])
    assert says(entry, ["port"])


@given(logs(max_size=10))
def test_f32_every_word_that_is_told_of_an_entry_is_found_in_it(log: list[Entry]) -> None:
    for entry in map(stored, log):
        if entry.is_message:
            words = text_of(entry).split()[:20]
            assert says(entry, words)


def test_what_a_record_says_beside_its_message_counts_not() -> None:
    entry = entry_of(1, ToolMsg("call_77", "read", "x", state="unknown"), turn="turn_9", source="inbox")
    assert not any(says(entry, [word]) for word in ("call_77", "turn_9", "inbox", "unknown"))
    assert not says(entry, ["x", "y"])
