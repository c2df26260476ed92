"""Keys: no two names share one, whatever the ids hold, and a listing of keys is a listing of ids."""

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.records.keys import MAX_ID, Keys, escape, instance_part, name_of, unescape
from agentkit.core.contracts.scope import Scope
from agentkit.state.stores import InMemoryStore
from agentkit.state.stores.rules import MAX_KEY
from tests.agentd.records.making import records

HOSTILE = (
    "a/b", "a//b", "/a", "a/", "/", "//", "..", ".", "../x", "../../log/root", "a\0b", "\0", "\1", "\1\1", "\1\2", "\2",
    "A", "a", "é", "e\u0301", "ß", "SS", "ﬁ", "fi", "%2F", "a%2Fb", " ", "a ", "%", "*", "_", "a\nb", "\u202e",
    "1/log/x",
)  # fmt: skip
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.sampled_from(HOSTILE)
scopes = st.builds(Scope, st.none() | st.integers() | texts, st.none() | texts)
kinds = st.sampled_from(["context", "log", "memory", "lease", "a"])
names = st.tuples(texts, scopes, texts, st.integers(0, 12), kinds, texts)


def key_of(name: tuple[str, Scope, str, int, str, str]) -> str:
    prefix, scope, instance, generation, kind, id = name
    return Keys(prefix, scope, instance, generation).key(kind, id)


@given(names, names)
def test_f13_no_two_names_share_a_key(one: tuple[str, Scope, str, int, str, str], other: tuple[str, Scope, str, int, str, str]) -> None:  # fmt: skip  # noqa: E501
    assert (key_of(one) == key_of(other)) == (one == other)


@given(names)
def test_key_names_its_record(name: tuple[str, Scope, str, int, str, str]) -> None:
    key = key_of(name)
    prefix, scope, instance, generation, kind, id = name
    found = name_of(key)
    assert found is not None
    assert (found.scope, found.generation, found.kind, found.id) == (scope.key(), generation, kind, id)
    assert key.startswith(instance_part(prefix, scope, instance))
    assert "\0" not in key
    assert Keys(prefix, scope, instance, generation).id_of(key, kind) == id


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_id_comes_back(text: str) -> None:
    assert unescape(escape(text)) == text


@given(st.lists(texts, max_size=6))
def test_keys_sort_as_ids_do(ids: list[str]) -> None:
    assert sorted(ids, key=escape) == sorted(ids) == sorted(ids, key=str.encode)


@given(texts, texts)
def test_prefix_of_an_id_is_prefix_of_its_key(prefix: str, id: str) -> None:
    keys = Keys("agentd", Scope(), "me", 1)
    assert keys.key("memory", id).startswith(keys.start("memory", prefix)) == id.startswith(prefix)


@pytest.mark.anyio
async def test_f13_hostile_ids_stay_apart_in_a_store() -> None:
    from agentd.records import Save

    store = InMemoryStore()
    mine, theirs = records(store), records(store, scope=Scope(None, "b"))
    for n, id in enumerate(HOSTILE):
        await mine.commit([Save("memory", id, str(n).encode())])
    assert await mine.ids("memory") == sorted(HOSTILE)
    assert await theirs.ids("memory") == []
    for n, id in enumerate(HOSTILE):
        row = await mine.get("memory", id)
        assert row is not None
        assert row.state == str(n).encode()
        assert await theirs.get("memory", id) is None
        assert await mine.get("log", id) is None


def test_longest_names_fit_into_a_key() -> None:
    long = "n" * 256
    keys = Keys(long, Scope(long, long), long, 10**9)
    for id in ("\0" * MAX_ID, "🙂" * (MAX_ID // 4), "x" * MAX_ID):
        assert len(keys.key("k" * 32, id).encode()) <= MAX_KEY
    with pytest.raises(ValueError, match="shorten one of them"):
        Keys("agentd", Scope(), "漢" * 256, 1)


@pytest.mark.parametrize(
    ("id", "meaning"),
    [
        ("", "1 to 256 bytes"),
        ("x" * 257, "this one 257"),
        ("é" * 129, "this one 258"),
        ("a\ud800", "surrogate pair at 1"),
    ],
)
def test_bad_id_is_refused_with_the_reason(id: str, meaning: str) -> None:
    with pytest.raises(ValueError, match=meaning):
        Keys("agentd", Scope(), "me", 1).key("memory", id)


def test_names_that_are_no_part_of_a_key_are_refused() -> None:
    for prefix, instance in (("", "me"), ("agentd", ""), ("\udc00", "me"), ("agentd", "\udc00")):
        with pytest.raises(ValueError, match="must"):
            Keys(prefix, Scope(), instance, 1)
    with pytest.raises(ValueError, match="a generation is a number"):
        Keys("agentd", Scope(), "me", -1)
    for kind in ("", "Context", "a/b", "a" * 33, "1"):
        with pytest.raises(ValueError, match="kind of record"):
            Keys("agentd", Scope(), "me", 1).key(kind, "x")


@pytest.mark.parametrize(
    "key", ["", "a/b", "a/b/c/x/k/id", "a/b/c/1/k/", "a/b/c/1/k/\1", "a/b/c/1/k/\1x", "a/b/c/²/k/i"]
)
def test_foreign_key_is_no_record(key: str) -> None:
    assert name_of(key) is None


def test_unicode_forms_are_different_ids() -> None:
    keys = Keys("agentd", Scope(), "me", 1)
    forms = {unicodedata.normalize(form, "é") for form in ("NFC", "NFD")}
    made = [keys.key("memory", id) for id in itertools.chain(forms, ("É", "e"))]
    assert len(set(made)) == 4
