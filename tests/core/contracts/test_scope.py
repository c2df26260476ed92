"""Scope: the tenant key, equal exactly where scopes are."""

from __future__ import annotations

import itertools
import pickle
import re
import subprocess
import sys
from enum import Enum, IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.types import Scope

CRAFTED: list[Any] = [
    None, 0, 1, -1, 10, 16, 123, 10**700, -(10**700), "None", "none", "NONE", "None ", "0", "1", "-1", "+1", "01", "10",
    "0x10", "1e1", "a", "A", "a:domb", "a:dom", ":domb", "orga", "a/b", "/", "..", "%31", "%", "%25", "%2531",
    "a%3Adomb", " ", "\x00", "\n", "acme", "Acme", "аcme", "acmé", "acme\u0301", "\ud800", "\udfff", "\ufffd", "\uff11",
    "\u2460", "²", "~", "_", ".", "a*", "a_", "a[", "K", "\u212a", "ſ", "s", "ß", "ss", "%4Eone",
    hex(10**700), hex(-(10**700)),
]  # fmt: skip
UNRESERVED = re.compile(r"org[A-Za-z0-9_.~%-]+:dom[A-Za-z0-9_.~%-]+")


class Tenant(str, Enum):  # noqa: UP042 - the older form, which prints as Tenant.ACME
    ACME = "acme"


class Number(IntEnum):
    ONE = 1


def ids() -> st.SearchStrategy[Any]:
    return st.none() | st.integers() | st.text(min_size=1) | st.sampled_from(CRAFTED)


@pytest.mark.parametrize(
    ("scope", "key"),
    [
        (Scope(), "orgNone:domNone"),
        (Scope(org_id=1), "org1:domNone"),
        (Scope("acme"), "orgacme:domNone"),
        (Scope(0, -5), "org0:dom-5"),
        (Scope("1"), "org%31:domNone"),
        (Scope("-1"), "org%2D1:domNone"),
        (Scope("None"), "org%4Eone:domNone"),
        (Scope("Nones"), "orgNones:domNone"),
        (Scope("a:domb"), "orga%3Adomb:domNone"),
        (Scope("a", "b"), "orga:domb"),
        (Scope("a b/c%"), "orga%20b%2Fc%25:domNone"),
        (Scope("é"), "org%C3%A9:domNone"),
        (Scope("\ud800"), "org%ED%A0%80:domNone"),
        (Scope("Az0_.~-"), "orgAz0_.~-:domNone"),
        (Scope("~1", "a-1"), "org~1:doma-1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_keys_are_those_of_the_contract(scope: Scope, key: str) -> None:
    assert scope.key() == key


def test_t3_crafted_ids_share_no_key() -> None:
    scopes = [Scope(org, domain) for org, domain in itertools.product(CRAFTED, CRAFTED)]
    keys = {scope.key() for scope in scopes}
    assert len(keys) == len(set(scopes)) == len(CRAFTED) ** 2


@given(ids(), ids(), ids(), ids())
def test_t3_keys_are_equal_exactly_when_scopes_are(a: Any, b: Any, c: Any, d: Any) -> None:
    one, other = Scope(a, b), Scope(c, d)
    assert (one.key() == other.key()) == (one == other) == ((a, b) == (c, d))
    if one == other:
        assert hash(one) == hash(other)


@given(ids(), ids())
def test_t3_keys_are_plain_ascii(a: Any, b: Any) -> None:
    key = Scope(a, b).key()
    assert UNRESERVED.fullmatch(key)
    assert key.count(":") == 1


def test_t3_nothing_is_folded_or_normalised() -> None:
    pairs = [("K", "\u212a"), ("é", "e\u0301"), ("a", "A"), ("ﬁ", "fi"), ("а", "a")]
    assert all(Scope(x).key() != Scope(y).key() for x, y in pairs)


@pytest.mark.parametrize("name", ["org_id", "domain_id"])
@pytest.mark.parametrize("wrong", [True, False, 1.0, b"a", (), Number.ONE, float("nan")], ids=repr)
def test_ids_of_other_types_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=rf"^Scope\.{name} must be an int, a str or None, not {type(wrong).__name__}$"):
        Scope(**{name: wrong})


@pytest.mark.parametrize("name", ["org_id", "domain_id"])
def test_empty_id_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^Scope\.{name} must not be empty"):
        Scope(**{name: ""})
    assert Scope(**{name: 0}) != Scope()


def test_subclasses_of_str_count_by_their_text() -> None:
    assert Scope(Tenant.ACME) == Scope("acme")
    assert Scope(Tenant.ACME).key() == "orgacme:domNone"
    assert "Tenant" not in repr(Scope(Tenant.ACME))


def test_key_of_a_huge_number_ignores_the_printing_limit() -> None:
    number = 7**3_000
    code = f"from agentkit.core.contracts.types import Scope; print(Scope({hex(number)}, -{hex(number)}).key())"
    limits = ("0", "640", "4300")
    found = {
        subprocess.run(
            [sys.executable, "-X", f"int_max_str_digits={limit}", "-c", code],
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for limit in limits
    }
    assert found == {Scope(number, -number).key().encode() + b"\n"}


@given(ids(), ids())
def test_copies_are_equal(a: Any, b: Any) -> None:
    scope = Scope(a, b)
    copied = pickle.loads(pickle.dumps(scope))
    assert copied == scope
    assert copied.key() == scope.key()
