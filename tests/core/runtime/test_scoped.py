"""T1-T3, T5: a store as one tenant sees it shows nothing of another, whatever the ids look like."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import Conflict, ScopeError, StoreError
from agentkit.core.contracts.ports import Append, Delete, Put, Store
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import ScopedStore, UnscopedStore, scoped
from agentkit.state.stores import InMemoryStore

CRAFTED: list[int | str | None] = [
    None, 0, 1, 10, "1", "None", "a", "A", "a:domb", "a/", "/", "..", "%31", "org1:domNone/", "shared", "а", "é",
    "e\u0301", "\ud800",
]  # fmt: skip


@pytest.mark.anyio
async def test_keys_begin_with_tenant() -> None:
    raw = InMemoryStore()
    mine = ScopedStore(raw, Scope(1))
    await mine.set("a", "mine")
    await mine.append("log", "x")
    assert await raw.keys() == ["org1:domNone/a", "org1:domNone/log"]
    assert await raw.get("org1:domNone/a") == "mine"
    assert mine.inner is raw


@pytest.mark.anyio
async def test_crafted_tenants_never_meet() -> None:
    """T3: ids that look like other ids, paths and prefixes."""
    raw = InMemoryStore()
    scopes = [Scope(org, domain) for org in CRAFTED for domain in (None, 1, "a", "domb")]
    for scope in scopes:
        await ScopedStore(raw, scope).set("k", scope.key())
    for scope in scopes:
        view = ScopedStore(raw, scope)
        assert await view.get("k") == scope.key()
        assert await view.keys() == ["k"]
    assert all(a.key() != b.key() for a, b in combinations(scopes, 2))


@pytest.mark.anyio
async def test_listing_pages_own_keys_only() -> None:
    raw = InMemoryStore()
    mine, other = ScopedStore(raw, Scope(1)), ScopedStore(raw, Scope(10))
    for key in ("a", "b", "b2", "c"):
        await mine.set(key, 1)
        await other.set(key, 1)
    assert await mine.keys("b") == ["b", "b2"]
    assert await mine.keys(after="a", limit=2) == ["b", "b2"]
    assert await mine.keys(after="zz") == []


@pytest.mark.anyio
async def test_conflict_names_own_key() -> None:
    view = ScopedStore(InMemoryStore(), Scope("acme"))
    await view.set("k", 1)
    with pytest.raises(Conflict) as caught:
        await view.compare_and_set("k", 2, expected=0)
    assert (caught.value.key, "acme" in str(caught.value)) == ("k", False)
    with pytest.raises(Conflict) as caught:
        await view.commit([Put("k", 2), Append("log", ("x",), at=3)])
    assert caught.value.key == "log"
    assert await view.get("k") == 1


@pytest.mark.anyio
async def test_every_method_stays_inside() -> None:
    raw = InMemoryStore()
    view = ScopedStore(raw, Scope(1))
    assert await view.get_or_set("v", lambda: 5) == 5
    assert await view.append("log", "a") == 0
    assert await view.list("log", start=0, stop=1) == ["a"]
    found = await view.versioned("v")
    assert found is not None
    assert found[0] == 5
    await view.compare_and_set("v", 6, expected=found[1])
    await view.commit([Put("w", 1), Append("log", ("b",), at=1)])
    assert all(key.startswith("org1:domNone/") for key in await raw.keys())
    assert await view.delete("w") is True
    await view.commit([Delete("v"), Delete("log")])
    assert await raw.keys() == []


@pytest.mark.anyio
async def test_closing_a_view_keeps_the_store() -> None:
    raw = InMemoryStore()
    view = ScopedStore(raw, Scope(1))
    await view.aclose()
    await view.set("k", 1)
    assert await raw.get("org1:domNone/k") == 1


@pytest.mark.anyio
async def test_missing_capabilities_are_refused() -> None:
    view = ScopedStore(InMemoryStore(), Scope(1))
    if not view.capabilities.search:
        with pytest.raises(StoreError, match="capabilities"):
            await view.search("log", "x")
    if not view.capabilities.lease:
        with pytest.raises(StoreError, match="capabilities"):
            await view.lease("l", "me", 1.0)


@pytest.mark.anyio
@pytest.mark.parametrize(("key", "error"), [("", ValueError), (5, TypeError), (None, TypeError)])
async def test_bad_keys_are_refused(key: Any, error: type[Exception]) -> None:
    view = ScopedStore(InMemoryStore(), Scope(1))
    for call in (view.get, view.delete, view.versioned):
        with pytest.raises(error):
            await call(key)
    with pytest.raises(error):
        await view.commit([Delete(key)])


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_prefix_is_the_only_change(key: str) -> None:
    view = ScopedStore(InMemoryStore(), Scope(1))
    assert view._raw(key) == f"org1:domNone/{key}"


def test_no_default_scope() -> None:
    """T2: a forgotten scope is an error, not everybody."""
    make: Any = ScopedStore
    with pytest.raises(TypeError):
        make(InMemoryStore())
    with pytest.raises(TypeError, match="scope must be a Scope, not NoneType"):
        make(InMemoryStore(), None)
    with pytest.raises(TypeError, match="store must be a Store"):
        make({}, Scope(1))


def test_views_are_not_nested() -> None:
    view = ScopedStore(InMemoryStore(), Scope(1))
    for make in (lambda: ScopedStore(view, Scope(1)), lambda: UnscopedStore(view)):
        with pytest.raises(TypeError, match=r"\.inner"):
            make()


@pytest.mark.anyio
async def test_shared_part_is_its_own() -> None:
    raw = InMemoryStore()
    shared = UnscopedStore(raw)
    await shared.set("k", "all")
    assert await raw.keys() == ["shared/k"]
    assert await ScopedStore(raw, Scope(1)).keys() == []
    assert shared.scope is None


def test_scoped_wraps_once() -> None:
    raw = InMemoryStore()
    view = scoped(raw, Scope(1))
    assert scoped(view, Scope(1)) is view
    assert scoped(UnscopedStore(raw), Scope(1)).inner is raw
    with pytest.raises(ScopeError, match=r"org1:domNone cannot serve a run of org2:domNone"):
        scoped(view, Scope(2))


def test_views_are_stores() -> None:
    store: Store = ScopedStore(InMemoryStore(), Scope(1))
    assert isinstance(store, Store)
