"""What a request passes before the SDK sees it: origin, sender, rate, size, JSON, version. Touches its arguments and a
clock; answers itself where one of them is not as it should be.

The SDK leaves all of these to its surroundings. What it would take for a fault of its own (JSON too deep, a request
that is a list) is told apart here, so that a caller's mistake is never answered as ours.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types.a2a_pb2 import SendMessageRequest
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH as CARD
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError, InvalidParamsError, InvalidRequestError, JSONParseError
from google.protobuf.json_format import ParseDict
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentd.config import Settings
from agentd.runtime.principals import Principal
from agentkit.core.contracts.surrogates import replace_surrogates

from .card import REST
from .faults import TryLater, status_of
from .handler import FRAMES, LAST_SEEN, PRINCIPAL
from .identity import identify, is_foreign
from .rates import Buckets

log = logging.getLogger("agentd")
BODY_TIMEOUT = 30.0
"""Seconds in which the body of a request has to be here."""
DEEPEST = 100
"""Levels of a body's JSON; protobuf takes no more."""
MOST_VALUES = 20_000
"""Values in a body's JSON: as many take protobuf a tenth of a second, in which nobody else is served."""
VERSION = b"a2a-version"


@dataclass
class Asked:
    """A request as far as it is read. `is_rpc`: at the root, rather than below /rest."""

    scope: Scope
    headers: Mapping[bytes, bytes]
    is_rpc: bool
    id: Any = None

    def header(self, name: bytes) -> str | None:
        found = self.headers.get(name)
        return None if found is None else found.decode("latin-1")


class Refused(Exception):
    """An answer that is given here. `status`: of HTTP, where it is not the error's own."""

    def __init__(
        self, error: A2AError, status: int | None = None, headers: Mapping[bytes, bytes] | None = None
    ) -> None:
        self.error, self.status, self.headers = error, status, dict(headers or {})
        super().__init__(str(error))


class Front:
    """An ASGI application around the SDK's. `settings` gives those in force."""

    def __init__(self, app: ASGIApp, settings: Callable[[], Settings], clock: Callable[[], float]) -> None:
        self._app, self._settings, self._buckets = app, settings, Buckets(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        asked = Asked(scope, dict(scope["headers"]), is_rpc=scope["path"] == "/")
        try:
            await self._pass(asked, receive, send)
        except Refused as refused:
            await _answer(asked, refused, send)

    async def _pass(self, asked: Asked, receive: Receive, send: Send) -> None:
        settings, path = self._settings(), asked.scope["path"]
        if is_foreign(asked.header(b"origin"), settings.a2a.listen):
            raise Refused(InvalidRequestError("pages of other origins may not speak to this agent"), 403)
        if path == CARD:
            await self._app(asked.scope, receive, send)
            return
        sender = self._sender(asked, settings)
        if not (asked.is_rpc or path.startswith(f"{REST}/")):
            raise Refused(InvalidRequestError(f"JSON-RPC is at /, REST at {REST}, the card at {CARD}"), 404)
        wait = self._buckets.take(sender.id, settings.limits.requests)
        try:
            body = await asyncio.wait_for(_body(asked, receive, settings.security.max_body), BODY_TIMEOUT)
        except TimeoutError:
            text = f"the body was not here after {BODY_TIMEOUT:g} s"
            raise Refused(InvalidRequestError(text), 408, {b"connection": b"close"}) from None
        if asked.scope["method"] == "POST" and (body or asked.is_rpc):
            body = _read(asked, body)
        if wait:
            seconds = math.ceil(wait)
            text = f"more than {settings.limits.requests} requests (limits.requests); try again in {seconds} s"
            raise Refused(TryLater(text, seconds), headers={b"retry-after": str(seconds).encode()})
        frames: deque[str] = deque()
        asked.scope["state"] = {PRINCIPAL: sender, FRAMES: frames, LAST_SEEN: asked.header(b"last-event-id")}
        await self._app(asked.scope, _replaying(body, receive), _numbering(frames, send))

    def _sender(self, asked: Asked, settings: Settings) -> Principal:
        client = asked.scope.get("client")
        found = identify(settings, asked.header(b"authorization"), client[0] if client else None)
        if found is None:
            text = "who are you? this agent asks for a token: Authorization: Bearer TOKEN"
            raise Refused(InvalidRequestError(text), 401, {b"www-authenticate": b"Bearer"})
        return found


class Contexts(ServerCallContextBuilder):
    """Hands the handler what the front found out."""

    def build(self, request: Request) -> ServerCallContext:
        known = request.scope["state"]
        headers = dict(request.headers)
        if "a2a-version" not in headers:
            headers["a2a-version"] = "1.0"
        extensions = get_requested_extensions(request.headers.getlist(HTTP_EXTENSION_HEADER))
        return ServerCallContext(state={"headers": headers, **known}, requested_extensions=extensions)


async def _body(asked: Asked, receive: Receive, limit: int) -> bytes:
    """The whole body, of at most `limit` bytes."""
    too_large = Refused(
        InvalidRequestError(f"a request has at most {limit} bytes (security.max_body)"), 413, {b"connection": b"close"}
    )
    said = asked.headers.get(b"content-length", b"")
    if said.isdigit() and (len(said) > 15 or int(said) > limit):
        raise too_large
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(InvalidRequestError("the client went away"), 400)
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        over, more = size > limit, message.get("more_body", False)
        if over:
            # Whoever still sends would see the connection reset, and no answer: read on for a while.
            chunks.clear()
        if over and (not more or size > 2 * limit):
            raise too_large
        if not more:
            return b"".join(chunks)


def _read(asked: Asked, body: bytes) -> bytes:
    """Look into the body: it is JSON, and of the shape that its method takes. The body to pass on: half surrogate
    pairs, which no text has, are replaced in it."""
    try:
        text = body.decode("utf-8")
        given = json.loads(text, parse_constant=_no_number)
        _require_small(given)
    except (ValueError, RecursionError) as error:
        raise Refused(JSONParseError(f"the body is no JSON: {str(error) or 'too deep'}")) from None
    if "\\ud" in text or "\\uD" in text:
        body = replace_surrogates(json.dumps(given, ensure_ascii=False)).encode()
        given = json.loads(body)
    if not isinstance(given, dict):
        raise Refused(InvalidRequestError(f"a request is an object, not a {type(given).__name__}"))
    if asked.is_rpc:
        _require_rpc(asked, given)
    elif asked.scope["path"].endswith((":send", ":stream")):
        _require_params(SendMessageRequest, given)
    return body


def _require_rpc(asked: Asked, given: dict[str, Any]) -> None:
    id, method, params = given.get("id"), given.get("method"), given.get("params", {})
    if isinstance(id, str | int) and not isinstance(id, bool):
        asked.id = id
    elif id is not None:
        raise Refused(InvalidRequestError("id is a string, a whole number or null"))
    if given.get("jsonrpc") != "2.0":
        raise Refused(InvalidRequestError('jsonrpc is "2.0"'))
    if not isinstance(method, str) or not method:
        raise Refused(InvalidRequestError("method is the name of a method"))
    if not isinstance(params, dict):
        raise Refused(InvalidParamsError(f"params is an object, not a {type(params).__name__}"))
    model = JsonRpcDispatcher.METHOD_TO_MODEL.get(method)
    if model is not None:
        _require_params(model, params)
    elif method in JSONRPC03Adapter.METHOD_TO_MODEL and VERSION not in asked.headers:
        # A name of version 0.3 without a version is of that version, as the protocol says.
        asked.scope["headers"] = [*asked.scope["headers"], (VERSION, b"0.3")]


def _require_params(model: Any, given: dict[str, Any]) -> None:
    try:
        ParseDict(given, model(), ignore_unknown_fields=True)
    except Exception as error:  # protobuf raises what comes up on odd shapes
        raise Refused(InvalidParamsError(f"the parameters do not fit: {str(error)[:500]}")) from None


def _require_small(value: Any) -> None:
    """ValueError for JSON that is too deep, or of more values than are worth the time of everybody else."""
    level, depth, count = [value] if isinstance(value, dict | list) else [], 0, 0
    while level:
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        count += sum(len(one) for one in inner)
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} levels")
        if count > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES} values")
        level = [one for values in inner for one in values if isinstance(one, dict | list)]


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _replaying(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever comes after it."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again


def _numbering(frames: deque[str], send: Send) -> Send:
    """Gives each frame of a stream its id, by which a client that lost the stream goes on."""

    async def numbered(message: Message) -> None:
        if message["type"] == "http.response.body" and frames and message.get("body", b"").startswith(b"data:"):
            message = {**message, "body": f"id: {frames.popleft()}\r\n".encode() + message["body"]}
        await send(message)

    return numbered


async def _answer(asked: Asked, refused: Refused, send: Send) -> None:
    """JSON-RPC errors come with status 200 unless HTTP itself has a word for them."""
    if asked.is_rpc:
        told, status = build_error_response(asked.id, refused.error), refused.status or 200
    else:
        told, status = build_rest_error_payload(refused.error), refused.status or status_of(refused.error)
        told["error"]["code"] = status
    body = json.dumps(told).encode()
    headers = {b"content-type": b"application/json", b"content-length": str(len(body)).encode(), **refused.headers}
    await send({"type": "http.response.start", "status": status, "headers": list(headers.items())})
    await send({"type": "http.response.body", "body": body})
