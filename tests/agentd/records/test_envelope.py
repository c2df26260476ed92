"""Envelopes: what goes in comes out, newer and damaged ones are refused by name, and nothing of theirs is lost."""

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.records import ANY, Row, Save
from agentd.records.envelope import decode, encode
from agentkit.core.contracts.errors import Corrupt, FormatError
from agentkit.state.stores import InMemoryStore
from tests.agentd.records.making import NOW, records

anyio = pytest.mark.anyio
KEY = "agentd/orgNone:domNone/me/1/context/root"
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
jsons = st.recursive(st.none() | st.booleans() | st.integers() | texts, lambda inner: st.lists(inner, max_size=3))


@given(texts, st.integers(1), st.integers(0), texts, jsons, st.dictionaries(texts.map("x".__add__), jsons, max_size=2))
def test_row_comes_back(id: str, seq: int, fence: int, commit: str, state: object, unknown: dict[str, object]) -> None:
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in unknown.items()}
    row = Row("context", id, seq % 2**60, msgspec.json.encode(state), 5, fence % 2**60, commit, 9, raw or None)
    data = encode(row, "me")
    found = decode(data, 9, "context", id)
    assert (found.state, found.seq, found.fence, found.commit) == (row.state, row.seq, row.fence, row.commit)
    assert encode(found, "me") == data
    assert {name: json.loads(bytes(raw)) for name, raw in (found.unknown or {}).items()} == unknown


def test_envelope_is_as_the_contract_says() -> None:
    data = encode(Row("context", "root", 3, b'{"a": 1}', NOW, 7, "c-1"), "me")
    assert json.loads(data) == {
        "v": 1, "kind": "context", "id": "root", "seq": 3, "fence": 7, "commit": "c-1", "ts": NOW, "instance": "me",
        "state": {"a": 1},
    }  # fmt: skip
    assert b'"state":{"a": 1}}' in data  # as it was given, not written anew


@pytest.mark.parametrize("form", [2, 0, "two", None, True, 1.5])
def test_f11_envelope_of_another_form_is_refused_by_name(form: object) -> None:
    data = json.dumps({"v": form, "kind": "context", "id": 7, "state": None}).encode()
    with pytest.raises(FormatError, match=r"record context 'root' has form .* reads 1"):
        decode(data, 1, "context", "root")


@pytest.mark.parametrize(
    "value",
    [
        b"", b"{", b"[]", b"\xff", b'{"v": 1}', b'{"v": 1, "kind": "context", "id": "root", "seq": "x"}', "text",
        5, None,
        b'{"v": 1, "kind": "context", "id": "other", "seq": 1}', b'{"v": 1, "kind": "log", "id": "root", "seq": 1}',
        b'{"v": 1, "kind": "context", "id": "root", "seq": 1, "state": }',
    ],
)  # fmt: skip
def test_f11_damaged_envelope_is_refused_by_name(value: object) -> None:
    with pytest.raises((Corrupt, FormatError), match="record context 'root'") as caught:
        decode(value, 1, "context", "root")
    assert isinstance(caught.value, FormatError) or caught.value.key == "context/root"  # type: ignore[attr-defined]


@anyio
@pytest.mark.parametrize("damage", [b'{"v": 9, "state": 1}', b"damaged"])
async def test_f11_row_that_cannot_be_read_is_left_as_it_is(damage: bytes) -> None:
    store = InMemoryStore()
    mine = records(store)
    await store.set(KEY, damage)
    await mine.commit([Save("context", "sound", b"1")])
    for act in (
        mine.get("context", "root"),
        mine.commit([Save("context", "root", b"1", ANY)]),
        mine.commit([Save("context", "root", b"1")]),
        mine.commit([Save("context", "sound", b"2", ANY), Save("context", "root", b"1")]),
    ):
        with pytest.raises((Corrupt, FormatError), match="record context 'root'"):
            await act
    assert await store.get(KEY) == damage
    row = await mine.get("context", "sound")
    assert row is not None
    assert row.state == b"1"


@anyio
@pytest.mark.parametrize("way", ["seen", "any", "tombstone"])
async def test_unknown_fields_of_an_envelope_survive_a_rewrite(way: str) -> None:
    store = InMemoryStore()
    mine = records(store)
    await mine.commit([Save("context", "root", b"1")])
    newer = json.loads(await store.get(KEY)) | {"zone": {"a": [1, "ü"]}, "state": None if way == "tombstone" else 1}
    await store.set(KEY, json.dumps(newer).encode())
    seen = {"seen": await mine.get("context", "root"), "any": ANY, "tombstone": None}[way]
    (row,) = await mine.commit([Save("context", "root", b"2", seen)])
    assert row.seq == 2
    found = json.loads(await store.get(KEY))
    assert (found["zone"], found["state"], found["seq"]) == ({"a": [1, "ü"]}, 2, 2)


@anyio
async def test_tombstone_reads_as_nothing_and_keeps_its_seq() -> None:
    mine = records(InMemoryStore())
    (first,) = await mine.commit([Save("plan", "root", b"1")])
    (gone,) = await mine.commit([Save("plan", "root", b"null", first)])
    assert gone.gone
    assert await mine.get("plan", "root") is None
    (again,) = await mine.commit([Save("plan", "root", b"2")])
    assert again.seq == 3
    assert re.fullmatch(r"[0-9a-f-]{36}", again.commit)
