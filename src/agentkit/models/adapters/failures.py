"""One taxonomy of what goes wrong at a model provider, whatever client reported it. Touches only its arguments.

Client libraries are told by what their errors look like (status code, body, class names), so none of them is imported.
What a caller may do next follows from the class alone:

- TransientError: the same request may pass later; `retry_after` in seconds where the provider names it.
- ContextOverflowError: the request has to shrink; `window` in tokens where the provider names it.
- AuthError: the credentials are at fault. It is an instance of the client's own error class as well.
- PermanentError: the same request is refused every time, or the account is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agentkit.core.contracts.errors import PermanentError, ProviderError


def failure_of(error: BaseException, provider: str = "") -> ProviderError | None:
    """What a client's exception means; None for one that is no failure of a provider (a bug, a caller's mistake)."""
    raise NotImplementedError


def failure_from(
    body: Any, *, status: int | None = None, headers: Mapping[str, str] | None = None, provider: str = ""
) -> ProviderError:
    """What an error that came inside a stream means, or any error body: `{"error": {...}}` or what stands in it."""
    return PermanentError(str(body))


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
