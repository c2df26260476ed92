"""What goes wrong with an MCP server.

    ServerError
    ├── ServerDown      (ConnectionError)  there is no connection, or it ended in the middle of a request
    │   └── CannotStart                    its program cannot be started at all
    ├── ServerTimeout   (TimeoutError)     no answer within the time of the request
    ├── ServerRefused   (RuntimeError)     it answered with an error
    └── BadAnswer       (ValueError)       its answer is not what the protocol, or it itself, promises

Codes of errors are shown and not trusted: servers give different ones for the same thing.
"""

from __future__ import annotations

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from pydantic import ValidationError


class ServerError(Exception):
    """A request to an MCP server came to nothing. `server`: its name; `may_have_run`: whether it may have taken effect
    all the same."""

    may_have_run = False

    def __init__(self, server: str, reason: str = "a request to it came to nothing") -> None:
        super().__init__(f"the MCP server {server!r}: {reason}")
        self.server, self.reason = server, reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.server, self.reason)


class ServerDown(ServerError, ConnectionError):
    """There is no connection, or it ended in the middle of a request, which then may have taken effect."""

    def __init__(self, server: str, reason: str = "there is no connection", *, may_have_run: bool = False) -> None:
        super().__init__(server, reason)
        self.may_have_run = may_have_run


class CannotStart(ServerDown):
    """Its program cannot be started at all: trying again helps only once somebody has mended something."""


class ServerTimeout(ServerError, TimeoutError):
    """No answer came within the time of the request."""

    may_have_run = True


class ServerRefused(ServerError, RuntimeError):
    """It answered with an error: `code` and `message` are its own."""

    def __init__(self, server: str, code: int, message: str) -> None:
        super().__init__(server, f"it answers with an error: {message} ({code})")
        self.code, self.message = code, message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.server, self.code, self.message)


class BadAnswer(ServerError, ValueError):
    """Its answer is not what the protocol, or it itself, promises."""

    may_have_run = True


def ended(server: str, reason: str) -> ServerDown:
    """What those get who asked when the connection ended."""
    return ServerDown(server, f"the connection ended in the middle of the request: {reason}", may_have_run=True)


def mapped(server: str, error: Exception, *, seconds: float) -> ServerError:
    """An exception of the SDK as one of ours. `seconds`: the time that the request had."""
    if isinstance(error, ServerError):
        return error
    if isinstance(error, MCPError):
        if error.code == CONNECTION_CLOSED:
            return ended(server, error.message)
        if error.code == REQUEST_TIMEOUT and "timed out" in error.message:
            return ServerTimeout(server, f"it did not answer within {seconds:g} s")
        return ServerRefused(server, error.code, error.message)
    if isinstance(error, TimeoutError):
        return ServerTimeout(server, f"it did not answer within {seconds:g} s")
    if isinstance(error, ValidationError):
        return BadAnswer(server, f"its answer is not of the form that the protocol has: {_first(error)}")
    # RuntimeError is the SDK's word for a result that does not match the tool's own output schema.
    return BadAnswer(server, str(error) or type(error).__name__)


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found[:3])


def leaf(error: BaseException) -> BaseException:
    """Of a group of exceptions, its first that is none."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: BaseException) -> str:
    """Why a connection ended, in one line."""
    error = leaf(error)
    if isinstance(error, ServerError):
        return error.reason
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
