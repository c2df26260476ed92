"""Decisions of memory: keys, values, lifetimes, room, pages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentd.config.thinking import Memory
from agentd.context.memory import (
    MAX_KEY,
    MemoryRecord,
    MemoryRefused,
    Shelf,
    checked_key,
    index_of,
    keys_of,
    lifetime,
    page_of,
    read_record,
    record_of,
)
from agentkit.core.contracts.errors import Corrupt

NOW = 1_700_000_000_000
LIMITS = Memory()
KEY = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Zs", "Zl", "Zp")), min_size=1, max_size=6)
KEYS = KEY.filter(lambda key: not key.startswith("_") and not any(sign.isspace() for sign in key))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aé数", max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def made(value: Any, *, ttl: str | None = None, limits: Memory = LIMITS) -> tuple[MemoryRecord, bytes]:
    return record_of(value, ttl=ttl, by="ann", now=NOW, limits=limits)


# Keys


@pytest.mark.parametrize(
    "key", ["a", "a//b", "a/b", "../x", ".", "Ä", "数据", "a_b", "x" * MAX_KEY, "é" * (MAX_KEY // 2)]
)
def test_keys_are_taken_as_they_are(key: str) -> None:
    assert checked_key(key) == key


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("", "this one 0"),
        ("x" * (MAX_KEY + 1), "this one 257"),
        ("é" * (MAX_KEY // 2) + "x", "this one 257"),
        ("_index", "the daemon's own"),
        ("a b", "no blanks"),
        ("a\u00a0b", "no blanks"),
        ("a\nb", "no blanks"),
        ("a\0b", "no control characters"),
        ("a\u200bb", "no control characters"),
        ("a\ud800", "half a surrogate pair"),
        (7, "a text, not int"),
        (None, "a text, not NoneType"),
    ],
)
def test_other_keys_are_refused_with_what_would_be_right(key: object, told: str) -> None:
    with pytest.raises(MemoryRefused, match=told):
        checked_key(key)


# Values


@given(JSON)
def test_any_json_comes_back_as_it_was(value: Any) -> None:
    record, state = made(value)
    assert read_record(state, "k") == record
    assert read_record(state, "k").value == value


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1, 2}, object(), b"x", {1: "a"}, "x\ud800", {"k\udfff": 1}, (1, 2)],
)
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(MemoryRefused, match="a value is JSON"):
        made(value)


def test_a_value_without_an_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(MemoryRefused, match="a value is JSON"):
        made(endless)
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(MemoryRefused, match="a value is JSON"):
        made(deep)


def test_the_limit_counts_bytes_of_the_canonical_form() -> None:
    limits = Memory(max_value_bytes=10)
    assert made("x" * 8, limits=limits)[0].value == "x" * 8  # and two quotes
    assert made("é" * 4, limits=limits)[0].value == "é" * 4
    assert made({"a": [1]}, limits=limits)[0].value == {"a": [1]}  # a blank behind the colon
    for value, size in (("x" * 9, 11), ("é" * 5, 12), ({"a": [10]}, 11)):
        with pytest.raises(MemoryRefused, match=f"takes {size} bytes, 10 are allowed"):
            made(value, limits=limits)


@pytest.mark.parametrize("state", [b"", b"\xff", b"[1]", b'{"ts": "x"}', b"[" * 100_000])
def test_a_damaged_record_is_told_by_its_key(state: bytes) -> None:
    with pytest.raises(Corrupt, match="'the-key'"):
        read_record(state, "the-key")


def test_a_record_of_a_later_release_is_read() -> None:
    assert read_record(b'{"value": 1, "ts": 2, "tags": ["x"]}', "k") == MemoryRecord(1, 2)


# Lifetimes


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90s", 90_000), ("5m", 300_000), ("2d", 172_800_000), ("250ms", 250), ("1h30m", 5_400_000), (None, None)],
)
def test_lifetimes(text: str | None, milliseconds: int | None) -> None:
    assert lifetime(text) == milliseconds


@pytest.mark.parametrize("text", ["", "0s", "0ms", "-1s", "soon", "5", "5 m", "1.0001ms", "9" * 400 + "d", "5m\n"])
def test_what_is_no_lifetime_is_refused(text: str) -> None:
    with pytest.raises(MemoryRefused, match="a ttl is a duration above 0"):
        lifetime(text)


@given(st.integers(1, 10**9), st.integers(-(10**9), 10**9))
def test_f38_a_value_is_gone_from_the_millisecond_on_at_which_its_lifetime_is_over(ttl: int, passed: int) -> None:
    record = MemoryRecord("v", NOW, ttl)
    assert record.is_over(NOW + passed) == (passed >= ttl)
    assert not MemoryRecord("v", NOW).is_over(NOW + passed)


def test_f38_setting_without_a_lifetime_takes_the_old_one_away() -> None:
    assert made(1, ttl="5m")[0].ttl_ms == 300_000
    assert read_record(made(1)[1], "k").ttl_ms is None


# Pages


@given(st.lists(KEYS, unique=True, max_size=12), st.text("ab/", max_size=2), st.integers(1, 5))
def test_pages_together_are_the_keys_in_the_order_of_their_bytes(keys: list[str], prefix: str, limit: int) -> None:
    wanted = sorted((key for key in keys if key.startswith(prefix)), key=lambda key: key.encode())
    found: list[str] = []
    after = None
    for _ in range(len(keys) + 1):
        page = page_of(sorted(keys), prefix=prefix, after=after, limit=limit)
        assert len(page.keys) <= limit
        found += page.keys
        assert page.is_truncated == (len(found) < len(wanted))
        if page.next is None:
            break
        after = page.next
    assert found == wanted


def test_a_page_behind_a_key_that_is_gone_goes_on_in_its_place() -> None:
    assert page_of(["a", "c"], after="b", limit=5).keys == ("c",)
    assert page_of(["a", "c"], after="c", limit=5).keys == ()
    assert page_of(["a", "c"], after="", limit=5).keys == ("a", "c")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_holds_at_least_one(limit: int) -> None:
    with pytest.raises(MemoryRefused, match="at least 1"):
        page_of(["a"], limit=limit)


# What is held


STEPS = st.tuples(
    st.sampled_from(["put", "drop"]), st.sampled_from("abc"), st.integers(1, 50), st.none() | st.integers(1, 9)
)


@given(st.lists(STEPS, max_size=20), st.integers(0, 10))
def test_a_shelf_knows_what_a_plain_dictionary_knows(steps: list[tuple[str, str, int, int | None]], now: int) -> None:
    shelf, plain = Shelf(), dict[str, tuple[int, int | None]]()
    for what, key, size, ttl in steps:
        if what == "put":
            shelf.put(key, MemoryRecord(0, 0, ttl), size)
            plain[key] = size, ttl
        else:
            shelf.drop(key)
            plain.pop(key, None)
    assert len(shelf) == len(plain)
    assert shelf.bytes == sum(size for size, _ in plain.values())
    over = {key for key, (_, ttl) in plain.items() if ttl is not None and now >= ttl}
    assert shelf.keys(now) == sorted(plain.keys() - over)
    assert set(shelf.over(now)) == over
    again = Shelf(plain)
    assert (again.keys(now), again.bytes, set(again.over(now))) == (shelf.keys(now), shelf.bytes, over)


def test_there_is_room_for_so_many_keys_and_bytes_and_nothing_is_evicted() -> None:
    limits = Memory(max_keys=2, max_bytes=10)
    shelf = Shelf({"a": (4, None), "b": (4, None)})
    shelf.require_room("a", 6, limits)  # in place of the four that are there
    with pytest.raises(MemoryRefused, match="would take 11 bytes, 10 are allowed"):
        shelf.require_room("a", 7, limits)
    with pytest.raises(MemoryRefused, match="holds 2 keys, the most there may be"):
        shelf.require_room("c", 1, limits)
    assert shelf.keys(0) == ["a", "b"]


# The list of keys, where the store keeps none


@given(st.lists(KEYS, unique=True))
def test_the_list_of_keys_is_read_back_in_order(keys: list[str]) -> None:
    assert keys_of(index_of(keys)) == sorted(keys)


@pytest.mark.parametrize("state", [b"", b"{}", b'["a", 1]', b"\xff"])
def test_a_damaged_list_of_keys_says_how_to_mend_it(state: bytes) -> None:
    with pytest.raises(Corrupt, match="agentd check --store"):
        keys_of(state)


def test_the_stored_form_stays_readable_by_anybody() -> None:
    assert msgspec.json.decode(made({"a": 1}, ttl="5m")[1]) == {
        "value": {"a": 1}, "ts": NOW, "ttl_ms": 300_000, "by": "ann",
    }  # fmt: skip
