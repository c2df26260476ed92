"""Every error of `agentkit`, each also the builtin that a caller would catch first.

```
AgentKitError
├── PositionalScopeError, CodecError                                            TypeError
├── MergeError, FreezeError, FormatError, InvalidDecisionError,
│   EmptyRequestError, OutputError                                              ValueError
├── ScopeError                                                                  PermissionError
├── StoreError                                                                  RuntimeError
│   ├── Conflict      somebody else wrote first
│   ├── Fenced        the writer's lease was taken over
│   ├── Held          another process has the store, or the right to write, to itself
│   ├── TooLarge      a key, value or batch is over the store's limit
│   └── Corrupt       what is stored cannot be read back
├── MeterExceeded, RunSuspendedError, Blocked                                   RuntimeError
├── ProviderError                                                               RuntimeError
│   ├── TransientError, PermanentError, AuthError
│   └── ContextOverflowError
└── MissingExtraError                                                           ImportError
```
Raised without arguments, an error says what the first line of its docstring says.
"""

from __future__ import annotations

from typing import Any


class AgentKitError(Exception):
    """Something went wrong inside agentkit."""

    def __init__(self, *args: object) -> None:
        if not args and (doc := type(self).__doc__):
            args = (doc.strip().splitlines()[0],)
        super().__init__(*args)


class PositionalScopeError(AgentKitError, TypeError):
    """A positional scope cannot judge one message; call surviving_indices(scope, messages) instead."""


class CodecError(AgentKitError, TypeError):
    """A value of this type cannot be stored without loss."""


class MergeError(AgentKitError, ValueError):
    """The two contexts share no head, so there is no delta between them."""


class FreezeError(AgentKitError, ValueError):
    """A value contains itself or is nested too deeply to be frozen."""

    def __init__(self, *args: object, cycle: bool = False) -> None:
        self.cycle = cycle
        super().__init__(*args)


class FormatError(AgentKitError, ValueError):
    """The data is of a form or version that this release cannot read."""


class InvalidDecisionError(AgentKitError, ValueError):
    """A decision about a pending tool call is neither approve, reject nor a set of arguments."""


class EmptyRequestError(AgentKitError, ValueError):
    """A request needs at least one message besides system text."""


class OutputError(AgentKitError, ValueError):
    """The model's answer does not have the form that was asked for."""


class ScopeError(AgentKitError, PermissionError):
    """Two tenants met: contexts, stores or runs of different scopes are never mixed."""


class StoreError(AgentKitError, RuntimeError):
    """The store could not do what was asked."""


class Conflict(StoreError):
    """Somebody else wrote this key first; read it again and decide anew.

    `expected` and `actual` are versions (0 = absent) or, for a log, positions.
    """

    def __init__(self, key: str = "", expected: int = 0, actual: int = 0) -> None:
        self.key, self.expected, self.actual = key, expected, actual
        if key:
            super().__init__(f"{key!r} is at {actual}, not at the expected {expected}; read it again")
        else:
            super().__init__()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.expected, self.actual)


class Fenced(StoreError):
    """A newer lease exists, so this writer may no longer write."""


class Held(StoreError):
    """Another process has this store, or the right to write in it, to itself.

    `owner`: that process, in words. `lasts`: seconds until its right ends unless it is renewed; None where it lasts as
    long as the process, or is not known.
    """

    def __init__(self, *args: object, owner: str | None = None, lasts: float | None = None) -> None:
        self.owner, self.lasts = owner, lasts
        super().__init__(*args)


class TooLarge(StoreError):
    """The key, value or batch is larger than the store accepts."""


class Corrupt(StoreError):
    """What is stored under this key cannot be read back.

    `key` and, in a log, `position` say where; both are None when the store as a whole is damaged.
    """

    def __init__(self, *args: object, key: str | None = None, position: int | None = None) -> None:
        self.key, self.position = key, position
        super().__init__(*args)


class MeterExceeded(AgentKitError, RuntimeError):
    """A budget or quota is used up.

    `retry_after`: seconds until a quota has room again, None where waiting does not help.
    """

    def __init__(self, *args: object, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(*args)


class RunSuspendedError(AgentKitError, RuntimeError):
    """The run waits for decisions; resume it instead of running it again."""


class Blocked(AgentKitError, RuntimeError):
    """A policy refused this call."""


class ProviderError(AgentKitError, RuntimeError):
    """The model provider refused or failed."""


class TransientError(ProviderError):
    """The provider failed in a way that may pass; the same request may be sent again.

    `retry_after`: seconds for which the provider asks to be left alone, None where it does not say.
    """

    def __init__(self, *args: object, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(*args)


class PermanentError(ProviderError):
    """The provider will refuse this request every time."""


class AuthError(ProviderError):
    """The provider did not accept the credentials."""


class ContextOverflowError(ProviderError):
    """The request is larger than the model's context window.

    `window`: that window in tokens, where it is known; `sizes`: of the request's parts; `model`: whose window it is,
    None for the one that was asked for.
    """

    def __init__(
        self,
        *args: object,
        window: int | None = None,
        sizes: dict[str, int] | None = None,
        model: str | None = None,
    ) -> None:
        self.window, self.sizes, self.model = window, dict(sizes or {}), model
        super().__init__(*args)


class MissingExtraError(AgentKitError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str = "", package: str = "", purpose: str = "") -> None:
        self.extra, self.package, self.purpose = extra, package, purpose
        if extra:
            super().__init__(f"{purpose or 'this'} needs the package {package!r}: pip install 'arc-agentkit[{extra}]'")
        else:
            super().__init__()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.extra, self.package, self.purpose)
