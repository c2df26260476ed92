"""What a request is refused with, and where what the daemon raises becomes that. Touches its arguments, and the tables
of the SDK that give each error its code.

    A2AError (SDK)                      JSON-RPC   REST
    ├── GoingDown                       -32000     503   this instance is draining
    ├── NotAllowed                      -32010     403   the role may not do that
    ├── TryLater                        -32011     429   busy or over a limit; data.retry_after in seconds
    └── the SDK's own                   -32001 not found or not yours, -32002, -32003 push, -32004, -32007, -32602 ...
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from a2a.server.jsonrpc_models import JSONRPCError
from a2a.server.request_handlers.response_helpers import EXCEPTION_MAP
from a2a.utils.errors import (
    A2A_ERROR_MAPPING,
    A2A_ERROR_REASONS,
    JSON_RPC_ERROR_CODE_MAP,
    A2AError,
    ErrorMapping,
    InternalError,
    InvalidParamsError,
    JSONParseError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from agentd.context.registry import NotYours
from agentd.records.opening import NoRoom
from agentd.runtime.commands import NotPermitted
from agentd.runtime.inbox import Busy, Draining, SameId
from agentd.runtime.waits import NotOpen
from agentkit.core.contracts.errors import Corrupt, FormatError, StoreError, TooLarge

log = logging.getLogger("agentd")
RETRY_AFTER = 1
"""Seconds after which somebody who met a full inbox or disk may try again."""


class GoingDown(A2AError):
    """This instance is draining and takes no more work."""

    message = "this instance is going down and takes no more work; the next one goes on with what was accepted"


class NotAllowed(A2AError):
    """The sender's role does not allow it."""

    message = "your role does not allow this"


class TryLater(A2AError):
    """Busy, or over a limit."""

    message = "busy; try again later"

    def __init__(self, message: str, retry_after: int = RETRY_AFTER) -> None:
        super().__init__(message, {"retry_after": retry_after})
        self.retry_after = retry_after


_OURS: dict[type[A2AError], tuple[int, ErrorMapping]] = {
    GoingDown: (-32000, ErrorMapping(503, "UNAVAILABLE", "DRAINING")),
    NotAllowed: (-32010, ErrorMapping(403, "PERMISSION_DENIED", "ROLE_NOT_PERMITTED")),
    TryLater: (-32011, ErrorMapping(429, "RESOURCE_EXHAUSTED", "TRY_LATER")),
}
for _class, (_code, _mapping) in _OURS.items():
    # The SDK gives an error its code by these tables, and offers no other way to add one.
    JSON_RPC_ERROR_CODE_MAP[_class] = _code
    EXCEPTION_MAP[_class] = JSONRPCError
    A2A_ERROR_MAPPING[_class] = _mapping
    A2A_ERROR_REASONS[_class] = _mapping.reason


# Its own error for what is no JSON is in one of them only.
EXCEPTION_MAP[JSONParseError] = JSONRPCError
A2A_ERROR_MAPPING[JSONParseError] = ErrorMapping(400, "INVALID_ARGUMENT", "PARSE_ERROR")
A2A_ERROR_REASONS[JSONParseError] = "PARSE_ERROR"


def status_of(error: A2AError) -> int:
    """The HTTP status of the REST binding."""
    found = A2A_ERROR_MAPPING.get(type(error))
    return 500 if found is None else found.http_code


@contextmanager
def told() -> Iterator[None]:
    """Whatever is raised inside leaves as an A2AError. A fault of ours is logged in full and told as no more than
    that."""
    try:
        yield
    except A2AError:
        raise
    except NotYours as error:
        raise TaskNotFoundError(str(error)) from error
    except NotOpen as error:
        raise UnsupportedOperationError(str(error)) from error
    except Draining as error:
        raise GoingDown() from error
    except NotPermitted as error:
        raise NotAllowed(str(error)) from error
    except Busy as error:
        raise TryLater(str(error)) from error
    except NoRoom as error:
        raise TryLater("the store has no room for new work; try again later", 30) from error
    except TooLarge as error:
        raise InvalidParamsError(f"it is too large to be stored: {error}") from error
    except (Corrupt, FormatError) as error:
        raise InternalError(f"what is stored of it cannot be read: {error}") from error
    except (StoreError, OSError) as error:
        log.error("a request met a store that fails", exc_info=error)
        raise InternalError("the store cannot take it now; send it again with the same messageId") from error
    except (SameId, ValueError) as error:
        raise InvalidParamsError(str(error)) from error
    except Exception as error:
        log.error("a request met a fault of this program", exc_info=error)
        raise InternalError("internal error; the log of the agent says which") from error
