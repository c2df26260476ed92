"""One taxonomy of what goes wrong at a model provider, whatever client reported it. Touches only its arguments.

Client libraries are told by what their errors look like (status code, body, class names), so none of them is imported.
What a caller may do next follows from the class alone:

- TransientError: the same request may pass later; `retry_after` in seconds where the provider names it.
- ContextOverflowError: the request has to shrink; `window` in tokens where the provider names it.
- AuthError: the credentials are at fault. It is an instance of the client's own error class as well.
- PermanentError: the same request is refused every time, or the account is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from agentkit.core.contracts.errors import (
    AuthError,
    ContextOverflowError,
    PermanentError,
    ProviderError,
    TransientError,
)

from .failure_words import Told, read_body, read_failure

_TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 499})
_TRANSIENT_WORDS = frozenset(
    {"rate_limit_error", "rate_limit_exceeded", "overloaded_error", "api_error", "timeout_error", "server_error",
     "internal_server_error", "internal_error", "service_unavailable", "unavailable", "resource_exhausted",
     "deadline_exceeded", "internal", "aborted", "slow_down", "engine_overloaded", "request_timeout",
     "too_many_requests", "conflict_error", "vector_store_timeout", "unavailable_error"}
)  # fmt: skip
_AUTH_WORDS = frozenset(
    {"authentication_error", "permission_error", "permission_denied", "unauthenticated", "invalid_api_key",
     "api_key_invalid"}
)  # fmt: skip
_BILLING_WORDS = frozenset(
    {"billing_error", "insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "access_terminated",
     "account_deactivated", "insufficient_credits", "organization_on_hold", "storage_quota_exceeded"}
)  # fmt: skip
_BILLING = re.compile(r"spend_limit_reached$|credit balance is too low|insufficient (?:balance|credits|funds)", re.I)
_TOO_LARGE_FOR_RATE = re.compile(r"request too large.*limit:? ?([0-9]+).*requested:? ?([0-9]+)", re.I | re.DOTALL)
_CONNECTION = re.compile(
    r"Timeout|ConnectionError|ConnectError|NetworkError|ReadError|WriteError|CloseError|RemoteProtocolError|"
    r"ProtocolError|TransportError|ClientOSError|ServerDisconnected|IncompleteRead|ClientPayloadError"
)
_NEVER_SENT = frozenset({"LocalProtocolError", "UnsupportedProtocol", "InvalidURL"})
"""Class names of what HTTP libraries raise for an address or a header that cannot be sent: the caller's mistake."""
_CLIENT_ERRORS = frozenset({"AnthropicError", "OpenAIError", "APIError", "HTTPError", "TransportError", "ClientError"})
"""Class names that stand at the root of the clients' own errors, those of their HTTP libraries included."""


def failure_of(error: BaseException, provider: str = "") -> ProviderError | None:
    """What a client's exception means; None for one that is no failure of a provider (a bug, a caller's mistake).

    The caller chains it: `raise failure from error`. Its message holds the provider's words, cut to 400 characters, and
    nothing that looks like a credential.
    """
    if isinstance(error, ProviderError):
        return error
    names = {kind.__name__ for kind in type(error).__mro__}
    told = read_failure(error)
    is_broken_line = isinstance(error, (ConnectionError, TimeoutError)) or any(map(_CONNECTION.search, names))
    if told.status is None and _is_never_sent(error):
        return PermanentError(_worded(provider, None, f"{_reason(error)}: an address or a header cannot be sent"))
    if told.status is None and not told.words and not told.body and is_broken_line:
        return TransientError(_worded(provider, None, f"{_reason(error)}: no whole answer came"))
    if told.status is None and names.isdisjoint(_CLIENT_ERRORS):
        return None
    found = _classified(told, provider)
    if isinstance(found, AuthError) and isinstance(error, Exception):
        return _also(type(error), error, found)
    return found


def failure_from(
    body: Any, *, status: int | None = None, headers: Mapping[str, Any] | None = None, provider: str = ""
) -> ProviderError:
    """What an error that came inside a stream means, or any error body: `{"error": {...}}` or what stands in it."""
    return _classified(read_body(body, status, headers or {}), provider)


@contextmanager
def provider_errors(provider: str = "") -> Iterator[None]:
    """Raises what `failure_of` finds in place of a client's exception, which is chained as the cause."""
    try:
        yield
    except Exception as error:
        found = failure_of(error, provider)
        if found is None or found is error:
            raise
        raise found from error


def _classified(told: Told, provider: str) -> ProviderError:
    """The decision, from the most to the least certain sign."""
    status, words, text = told.status, told.words, told.text
    said = _worded(provider, status, told.message or ", ".join(sorted(words)) or "no reason given")
    if told.overflows:
        return ContextOverflowError(said, window=told.window)
    if status == 402 or words & _BILLING_WORDS or _BILLING.search(text) or any(map(_BILLING.search, words)):
        return PermanentError(said)
    if status in (401, 403) or words & _AUTH_WORDS:
        return AuthError(said)
    too_large = _TOO_LARGE_FOR_RATE.search(text.replace(",", ""))
    if too_large and int(too_large[2]) > int(too_large[1]):
        return PermanentError(said)  # more than the account may send in a minute: no wait makes it fit
    if status == 429 and re.search(r"\blimit: 0\b", text) and not re.search(r"\blimit: [1-9]", text):
        return PermanentError(said)  # Gemini: the plan has none of this model
    asked_to_retry = told.header("x-should-retry") == "true"
    may_pass = status in _TRANSIENT_STATUS or (status is not None and status >= 500 and status not in (501, 505))
    if status is None or 200 <= status < 400:  # inside a stream, whose status was good
        may_pass = bool(words & _TRANSIENT_WORDS)
    if may_pass or asked_to_retry:
        return TransientError(said, retry_after=told.retry_after)
    return PermanentError(said)


def _worded(provider: str, status: int | None, text: str) -> str:
    where = " ".join(part for part in (provider, "" if status is None else str(status)) if part)
    return f"{where}: {text}" if where else text


# The client's own class


def _is_never_sent(error: BaseException) -> bool:
    """Whether nothing left this machine, and the same request never will. Clients hide it in the cause."""
    kinds = [kind for one in (error, error.__cause__) if one is not None for kind in type(one).__mro__]
    return any(kind.__name__ in _NEVER_SENT for kind in kinds)


def _reason(error: BaseException) -> str:
    """The kind of a fault on the way; what caused it says more, its text may hold addresses."""
    cause = error.__cause__
    own = type(error).__name__
    return own if cause is None or type(cause).__name__ == own else f"{own} ({type(cause).__name__})"


def _also(kind: type[Exception], error: Exception, failure: AuthError) -> ProviderError:
    """The failure as an instance of the client's own error class too, so that who catches that one still does."""
    both = _both(cast(Any, kind))
    try:
        found: ProviderError = both.__new__(both, *failure.args)
    except TypeError:  # a class that wants arguments of its own
        return failure
    found.__dict__.update(error.__dict__)
    found.args = failure.args
    return found


@cache
def _both(kind: type[Any]) -> Any:
    def reduced(self: Exception) -> tuple[Any, ...]:
        return AuthError, self.args  # the client's part holds an open response, which no pickle carries

    return type("AuthError", (AuthError, kind), {"__reduce__": reduced, "__doc__": AuthError.__doc__})
