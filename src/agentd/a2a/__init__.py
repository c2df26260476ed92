"""The A2A protocol at the door: JSON-RPC at `/`, REST at `/rest`, on `a2a-sdk`. Each contextId is a durable context,
each taskId a task of the inbox: nothing about either is kept here. Touches a socket, and the daemon that is handed in.

Heavy: it is imported where `a2a.listen` is set, and by nothing else.
"""

from __future__ import annotations

import os

from agentkit.core.contracts.errors import MissingExtraError

# Its spans log "Failed to detach context" for every stream that ends early; ours are made elsewhere.
os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")
try:
    import a2a.types  # noqa: F401
    import sse_starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    raise MissingExtraError("agentd", error.name or "a2a-sdk", "a2a.listen") from None

__all__: list[str] = []
