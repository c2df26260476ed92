"""Rows of the record: golden ones of the first form, sparser and richer ones, damaged and newer ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentd.context
from agentd.context.record import (
    KINDS,
    ROOT,
    Anchor,
    AssistantMsg,
    Breaker,
    Call,
    Compaction,
    ContextKind,
    ContextState,
    DataPart,
    Entry,
    FilePart,
    Mark,
    Masking,
    NoteMsg,
    Parent,
    PlanChange,
    Reported,
    SkillRef,
    TextPart,
    Told,
    ToolMsg,
    UserMsg,
    Visible,
    entry_of,
)
from agentd.context.rows import (
    accepted,
    decode_entry,
    decode_msg,
    decode_state,
    encode_apart,
    encode_entry,
    encode_msg,
    encode_state,
)
from agentkit.core.contracts.errors import CodecError, Corrupt, FormatError
from agentkit.state.compaction import Point, Summary

STATE = ContextState(
    id="c1", kind=ContextKind.CONVERSATION, parent=Parent("root", "t1", "h1"), version=3, seq=9, fence=2, next=58,
    view=Visible(((3, 3),), 41, {44: Mark("masked", 900)}), told=Told(3, 40), summary=Summary(goals=(Point("g", 7),)),
    plan={"goal": "x"}, preflight={"intent": "task"}, skills=(SkillRef("pdf", "ab12", {"x": 1}, 30, "evicted"),),
    pins=(3,), est_tokens=1234, anchor=Anchor(3, 55, 2000, 40), model_window=128_000,
    breaker=Breaker(3, 1700000000000, 20, 128_000, 1), principal="p", handled=50, turns=12, created=1, updated=2,
    status="closed",
)  # fmt: skip
GOLDEN_STATE = (
    '{"v":1,"id":"c1","kind":"conversation","parent":{"context":"root","turn":"t1","handle":"h1"},"version":3,'
    '"seq":9,"fence":2,"next":58,"view":{"ranges":[[3,3]],"tail":41,"marks":{"44":{"value":900}}},'
    '"told":{"version":3,"handled":40},"skills":[{"name":"pdf","hash":"ab12","args":{"x":1},"entry":30,'
    '"status":"evicted"}],"pins":[3],"est_tokens":1234,"anchor":{"version":3,"entry":55,"input_tokens":2000,'
    '"volatile":40},"model_window":128000,"breaker":{"failures":3,"opened":1700000000000,"retry":20,"window":128000,'
    '"openings":1},"principal":"p","handled":50,"turns":12,"created":1,"updated":2,"status":"closed"}'
)
GOLDEN_APART = {
    "summary": b'{"goals":[{"text":"g","n":7}]}',
    "plan": b'{"goal":"x"}',
    "preflight": b'{"intent":"task"}',
}
GOLDEN_LINES = {
    '{"n":1,"v":1,"ts":5,"kind":"user","body":{"role":"user","parts":[{"type":"text","text":"hi"},'
    '{"type":"data","data":[1,null]},{"type":"file","name":"a.png","media_type":"image/png","artifact":"ff","size":3}],'
    '"principal":"p","message_id":"m1","ts":5},"turn":"t1","source":"a2a","est":12,"words":"1"}': entry_of(
        1,
        UserMsg((TextPart("hi"), DataPart([1, None]), FilePart("a.png", "image/png", None, "ff", 3)), "p", "m1", 5),
        ts=5, turn="t1", source="a2a", est=12,
    ),
    '{"n":2,"v":1,"kind":"tool","body":{"role":"tool","id":"c1","name":"read","content":{"a":[1.5]},"is_error":true,'
    '"state":"pending"},"round":4,"words":"a 1.5"}': entry_of(
        2, ToolMsg("c1", "read", {"a": [1.5]}, True, "pending"), round=4
    ),
    '{"n":3,"v":1,"kind":"compaction","body":{"version":2,"tier":5,"folded":[[1,2]],"back":[[1,1]],'
    '"summary":{"goals":[{"text":"g","n":1}],"facts":[],"constraints":[],"decisions":[],"artifacts":[],"errors":[],'
    '"steps":[],"narrative":[],"covers":[]},"degraded":true,"before":9,"after":3,"handled":1,"evicted":["pdf"],'
    '"usage":{"input":1}}}': entry_of(
        3,
        Compaction(2, 5, ((1, 2),), ((1, 1),), Summary(goals=(Point("g", 1),)), True, 9, 3, 1, ("pdf",), {"input": 1}),
    ),
    '{"n":4,"v":1,"kind":"mask","body":{"version":2,"tier":1,"how":"clamped","entries":{"2":100}}}': entry_of(
        4, Masking(2, 1, "clamped", {2: 100})
    ),
    '{"n":6,"v":1,"kind":"assistant","body":{"role":"assistant","text":"a","usage":{"fresh":9,"read":80,"written":7,'
    '"output":5,"usd":0.002}}}': entry_of(6, AssistantMsg("a", usage=Reported(9, 80, 7, 0, 5, 0, 0.002))),
    '{"n":5,"v":1,"kind":"note","body":{"role":"note","text":"done","about":"run 1"}}': entry_of(
        5, NoteMsg("done", "run 1")
    ),
}  # fmt: skip


def test_golden_state_row() -> None:
    """The first form, written and read; later releases have to read it too."""
    assert encode_state(STATE).decode() == GOLDEN_STATE
    assert encode_apart(STATE) == GOLDEN_APART
    assert decode_state(GOLDEN_STATE.encode(), GOLDEN_APART) == STATE


@pytest.mark.parametrize("line", GOLDEN_LINES, ids=[e.kind for e in GOLDEN_LINES.values()])
def test_golden_log_lines(line: str) -> None:
    entry = GOLDEN_LINES[line]
    assert encode_entry(entry).decode() == line
    assert decode_entry(line.encode()) == entry


def test_keys_and_numbers_stand_beside_a_message_once_each_so_that_a_store_finds_it_by_them() -> None:
    content = {"src/a.py": [40213, {"port": 8080, "ok": True}], "again": [40213, 1e3, -7, None, "text"]}
    calls = (Call("c1", "read", {"line": 12}), Call("c2", "raw", '{"line": 99}'))
    for body, words in (
        (ToolMsg("c1", "read", content), "src/a.py again 40213 1000.0 -7 port ok 8080"),
        (ToolMsg("c1", "read", "text 12"), None),
        (AssistantMsg("", calls), "line 12"),
        (NoteMsg("12"), None),
        (PlanChange("create", {"n": 12}), None),
    ):
        found = msgspec.json.decode(encode_entry(entry_of(1, body))).get("words")
        assert (None if found is None else sorted(found.split())) == (None if words is None else sorted(words.split()))


def test_f11_sparse_rows_parse() -> None:
    assert decode_state(b"{}") == ContextState() == decode_state(b'{"v":1}')
    assert decode_state(b"{}", id=ROOT).id == "root"
    for kind, body in KINDS.items():
        assert decode_entry(f'{{"n":1,"kind":"{kind}","body":{{}}}}'.encode()).body == body()


def test_f11_newer_rows_are_refused_by_name() -> None:
    with pytest.raises(FormatError, match=r"c7 is of form 2"):
        decode_state(b'{"v":2,"view":"unheard of"}', id="c7")
    with pytest.raises(FormatError, match="entry 4 is of form 9"):
        decode_entry(b'{"v":9,"n":4,"kind":"user","body":{}}')


@pytest.mark.parametrize(
    "row",
    [b"", b"{", b"[]", b"null", b'{"version":"3"}', b'{"v":"1"}', b'{"v":0}', b'{"view":{"ranges":[[1]]}}', b"\xff"],
)
def test_f11_damaged_rows_are_refused_by_name(row: bytes) -> None:
    with pytest.raises(Corrupt, match="c7") as caught:
        decode_state(row, id="c7")
    assert caught.value.key == "c7"


def test_damaged_apart_fields_are_refused() -> None:
    with pytest.raises(Corrupt):
        decode_state(b"{}", {"summary": b'{"steps":[{"text":"x","status":"later"}]}'}, id="c7")


@pytest.mark.parametrize("line", [b"", b"{}", b'{"n":"1"}', b'{"n":1,"kind":"user","body":{"parts":3}}', b'{"n":1,'])
def test_damaged_lines_are_refused(line: bytes) -> None:
    with pytest.raises(Corrupt, match="log 3"):
        decode_entry(line, where="log 3")


def test_unknown_fields_of_the_row_survive_a_rewrite() -> None:
    state = decode_state(b'{"v":1,"id":"c1","mood":{"a":1},"turns":3}')
    assert state.unknown == {"mood": {"a": 1}}
    again = json.loads(encode_state(msgspec.structs.replace(state, turns=4)))
    assert (again["mood"], again["turns"]) == ({"a": 1}, 4)


def test_unknown_parts_and_kinds_stay_raw() -> None:
    line = b'{"n":1,"v":1,"kind":"user","body":{"role":"user","parts":[{"type":"hologram","depth":[1]},{"text":3}]}}'
    entry = decode_entry(line)
    assert [bytes(part) for part in entry.body.parts] == [b'{"type":"hologram","depth":[1]}', b'{"text":3}']
    assert encode_entry(entry) == line
    strange = b'{"n":1,"v":1,"kind":"dream","body":{"x":[1]}}'
    assert encode_entry(decode_entry(strange)) == strange
    assert not decode_entry(strange).is_message


@pytest.mark.parametrize("kind", KINDS)
def test_every_body_comes_back(kind: str) -> None:
    entry = entry_of(1, KINDS[kind]())
    assert decode_entry(encode_entry(entry)) == entry


def test_messages_by_themselves() -> None:
    message = ToolMsg("c", "f", [1, {"a": None}], parts=(TextPart("x"),))
    assert decode_msg(encode_msg(message)) == message
    for data in (b"{}", b'{"role":"mask"}', b'{"role":3}', b"[]", b'{"role":"user","parts":1}'):
        with pytest.raises(Corrupt):
            decode_msg(data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON, st.text(st.characters()))
def test_u1_accepted_text_can_be_stored(content: Any, text: str) -> None:
    """Lone surrogates and numbers that JSON lacks are replaced and told of; nothing else changes."""
    for message in (ToolMsg("c", text, content), UserMsg((TextPart(text), DataPart(content)))):
        clean, changed = accepted(message)
        assert decode_msg(encode_msg(clean)) == clean
        assert accepted(clean) == (clean, False)
        assert (clean is message) is not changed


def test_u1_half_a_pair_is_replaced_once() -> None:
    message = ToolMsg("c", "f", {"\ud800": ["\ud83d\ude00", float("inf")]})
    with pytest.raises(CodecError):
        encode_entry(entry_of(1, message))
    assert accepted(message) == (ToolMsg("c", "f", {"\ufffd": ["😀", "inf"]}), True)


def test_row_stays_small_whatever_the_log() -> None:
    """A hundred reductions later the row has ranges, not entries."""
    state = msgspec.structs.replace(STATE, next=100_000, view=Visible(((3, 3),), 99_950))
    assert len(encode_state(state)) < len(encode_state(STATE)) + 64


def test_calls_keep_the_text_of_their_arguments() -> None:
    call = Call("c", "f", '{"a":  1e16}')
    assert msgspec.json.decode(msgspec.json.encode(call), type=Call) == call
    assert Entry(1).kind == ""


def test_names_of_the_design_document() -> None:
    """What `agentd.context` exports, each once; the linter holds their order."""
    exported = agentd.context.__all__
    assert len(exported) == len(set(exported))
    assert {"ROOT", "ContextKind", "ContextState", "Msg", "SkillRef", "Summary"} <= set(exported)
    assert all(hasattr(agentd.context, name) for name in exported)
