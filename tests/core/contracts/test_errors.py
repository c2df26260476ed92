"""Errors: each is also the builtin that a caller would catch first, and says something without arguments."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from agentkit.core.contracts import errors
from agentkit.core.contracts.errors import AgentKitError

TREE: dict[str, tuple[str, type[Exception]]] = {
    "PositionalScopeError": ("AgentKitError", TypeError),
    "CodecError": ("AgentKitError", TypeError),
    "MergeError": ("AgentKitError", ValueError),
    "FreezeError": ("AgentKitError", ValueError),
    "FormatError": ("AgentKitError", ValueError),
    "InvalidDecisionError": ("AgentKitError", ValueError),
    "EmptyRequestError": ("AgentKitError", ValueError),
    "OutputError": ("AgentKitError", ValueError),
    "ScopeError": ("AgentKitError", PermissionError),
    "StoreError": ("AgentKitError", RuntimeError),
    "Conflict": ("StoreError", RuntimeError),
    "Fenced": ("StoreError", RuntimeError),
    "Held": ("StoreError", RuntimeError),
    "TooLarge": ("StoreError", RuntimeError),
    "Corrupt": ("StoreError", RuntimeError),
    "MeterExceeded": ("AgentKitError", RuntimeError),
    "RunSuspendedError": ("AgentKitError", RuntimeError),
    "Blocked": ("AgentKitError", RuntimeError),
    "ProviderError": ("AgentKitError", RuntimeError),
    "TransientError": ("ProviderError", RuntimeError),
    "PermanentError": ("ProviderError", RuntimeError),
    "AuthError": ("ProviderError", RuntimeError),
    "ContextOverflowError": ("ProviderError", RuntimeError),
    "MissingExtraError": ("AgentKitError", ImportError),
}


def _all() -> dict[str, type[AgentKitError]]:
    return {
        name: found
        for name, found in vars(errors).items()
        if inspect.isclass(found) and issubclass(found, AgentKitError) and found is not AgentKitError
    }


def _has_own_arguments(kind: type[AgentKitError]) -> bool:
    return "args" not in inspect.signature(kind).parameters


def test_tree_is_the_one_of_the_contract() -> None:
    found = _all()
    assert set(found) == set(TREE)
    for name, (parent, builtin) in TREE.items():
        assert found[name].__mro__[1].__name__ == parent
        assert issubclass(found[name], builtin)


def test_drawing_names_every_error() -> None:
    drawn = re.findall(r"\b[A-Z]\w+", (errors.__doc__ or "").split("```")[1])
    assert set(TREE) <= set(drawn)


@pytest.mark.parametrize("kind", _all().values(), ids=_all())
def test_error_speaks_without_arguments(kind: type[AgentKitError]) -> None:
    error = kind()
    assert str(error) == (kind.__doc__ or "").strip().splitlines()[0]
    assert str(error).endswith(".")
    if not _has_own_arguments(kind):
        assert str(kind("found 3, expected 4")) == "found 3, expected 4"


@pytest.mark.parametrize("kind", _all().values(), ids=_all())
@pytest.mark.parametrize("given", [(), ("something",)], ids=["bare", "with text"])
def test_error_survives_pickle_and_copy(kind: type[AgentKitError], given: tuple[str, ...]) -> None:
    error = kind(*given)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for copied in (pickle.loads(pickle.dumps(error, protocol)), copy.deepcopy(error), copy.copy(error)):
            assert type(copied) is kind
            assert str(copied) == str(error)
            assert vars(copied) == vars(error)


def test_conflict_carries_what_was_found() -> None:
    error = errors.Conflict("k", 1, 2)
    assert (error.key, error.expected, error.actual) == ("k", 1, 2)
    assert str(error) == "'k' is at 2, not at the expected 1; read it again"
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.key, copied.expected, copied.actual) == ("k", 1, 2)


def test_overflow_carries_window_and_sizes() -> None:
    sizes = {"frozen": 10}
    error = errors.ContextOverflowError("too large", window=5, sizes=sizes)
    sizes["frozen"] = 0
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.window, copied.sizes) == ("too large", 5, {"frozen": 10})
    assert (errors.ContextOverflowError().window, errors.ContextOverflowError().sizes) == (None, {})


def test_freeze_error_tells_a_cycle_from_depth() -> None:
    assert pickle.loads(pickle.dumps(errors.FreezeError("x", cycle=True))).cycle
    assert not errors.FreezeError("x").cycle


def test_missing_extra_names_what_to_install() -> None:
    error = errors.MissingExtraError("fast", "tiktoken", "exact counting")
    assert str(error) == "exact counting needs the package 'tiktoken': pip install 'arc-agentkit[fast]'"
    assert pickle.loads(pickle.dumps(error)).extra == "fast"
