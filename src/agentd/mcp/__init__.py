"""Connections to MCP servers, through the official SDK. Starts child processes and opens connections; knows of no
context, and gives the SDK's values.

Importing it imports the SDK, which takes a second: only where there are servers.
"""

from agentkit.core.contracts.errors import MissingExtraError

try:
    import httpx2  # noqa: F401
    import mcp  # noqa: F401
except ImportError as error:
    raise MissingExtraError("agentd", error.name or "mcp", "mcp.servers") from None

from .connection import Change, Elicit
from .errors import BadAnswer, CannotStart, ServerDown, ServerError, ServerRefused, ServerTimeout
from .server import Server
from .servers import Servers

__all__ = [
    "BadAnswer",
    "CannotStart",
    "Change",
    "Elicit",
    "Server",
    "ServerDown",
    "ServerError",
    "ServerRefused",
    "ServerTimeout",
    "Servers",
]
