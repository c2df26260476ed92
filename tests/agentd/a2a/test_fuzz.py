"""Malformed requests of any shape: never a fault of ours, and the next good request is answered. F46."""

import asyncio
import json
import os
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.agentd.a2a.serving import Served, message, served
from tests.agentd.daemon.house import StrictLLM

pytestmark = pytest.mark.anyio
SOAK = bool(os.environ.get("AGENTKIT_SOAK"))
EXAMPLES = 20_000 if SOAK else 1_000
# What is found is shown as it came: making it smaller would take longer than reading it.
HOW = settings(
    max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate],
    database=None,
)  # fmt: skip

METHODS = st.sampled_from(
    ["SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask", "message/send",
     "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe", "GetExtendedAgentCard",
     "agent/getAuthenticatedExtendedCard", "ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/set",
     "Nope", ""]
)  # fmt: skip
TEXT = st.text(max_size=12) | st.sampled_from(["\ud800", "\0", "root", "a//b", "../x", "x" * 300])
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
NAMES = st.sampled_from(
    ["message", "messageId", "contextId", "taskId", "role", "parts", "text", "data", "raw", "url", "kind", "id", "name",
     "configuration", "historyLength", "returnImmediately", "pageSize", "pageToken", "status", "statusTimestampAfter",
     "metadata", "agentd", "op", "extensions", "tenant", "acceptedOutputModes", "filename", "mediaType"]
)  # fmt: skip
JSON = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | TEXT, inner, max_size=4), max_leaves=12
)
PART = st.one_of(
    st.fixed_dictionaries({"text": LEAF}), st.fixed_dictionaries({"data": JSON}), st.fixed_dictionaries({"raw": LEAF}),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["text", "file", "data"]), "text": LEAF, "file": JSON, "data": JSON}
    ),
    JSON,
)  # fmt: skip
MESSAGE = st.fixed_dictionaries(
    {"messageId": TEXT | LEAF, "role": st.sampled_from(["ROLE_USER", "user", "x", 3, None])},
    optional={"parts": st.lists(PART, max_size=3) | JSON, "contextId": LEAF, "taskId": LEAF, "metadata": JSON,
              "kind": st.just("message")},
)  # fmt: skip
PARAMS = JSON | st.fixed_dictionaries(
    {}, optional={"message": MESSAGE | JSON, "id": LEAF, "configuration": JSON, "historyLength": LEAF,
                  "pageSize": LEAF, "pageToken": LEAF, "status": LEAF, "metadata": JSON}
)  # fmt: skip
RPC = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | LEAF, "method": METHODS | LEAF}, optional={"id": JSON, "params": PARAMS}
)
BODY = (RPC | JSON | PARAMS).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40)
PATH = st.sampled_from(
    ["/", "/", "/", "/rest/message:send", "/rest/message:stream", "/rest/tasks/x:cancel", "/rest/tasks"]
)
VERSION = st.sampled_from([None, None, "1.0", "0.3", "x", ""])


async def one(http: httpx.AsyncClient, path: str, body: bytes, version: str | None) -> None:
    headers = {} if version is None else {"A2A-Version": version}
    answer = await http.post(path, content=body, headers=headers)
    assert answer.status_code < 500, (path, body, answer.text)
    if answer.headers["content-type"].startswith("application/json") and path == "/":
        told: dict[str, Any] = answer.json()
        assert told.get("error", {}).get("code") != -32603, (body, version, answer.text)
    assert answer.headers["content-type"] != "text/plain", (body, answer.text)


async def still_well(at: Served, n: int) -> None:
    task = await at.task(params=message(id=f"good-{n}"))
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_f46_generated_requests_never_meet_a_fault_of_ours() -> None:
    count = 0
    async with served(StrictLLM("fine"), limits__requests="1000000/1s") as at:
        loop = asyncio.get_running_loop()

        async def ask(path: str, body: bytes, version: str | None) -> None:
            nonlocal count
            await one(at.http, path, body, version)
            count += 1
            if count % 100 == 0:
                await still_well(at, count)

        @HOW
        @given(PATH, BODY, VERSION)
        def run(path: str, body: bytes, version: str | None) -> None:
            asyncio.run_coroutine_threadsafe(ask(path, body, version), loop).result(60)

        await asyncio.to_thread(run)
        await still_well(at, 0)
        assert not at.server.handler.streams._open
        assert not at.server.handler._waiting
    assert count >= EXAMPLES // 2


async def raw(at: Served, data: bytes) -> bytes:
    """Bytes as they are, over a connection of their own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(at.url.rsplit(":", 1)[1]))
    try:
        writer.write(data)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        return b""
    finally:
        writer.close()


LINES = st.sampled_from(
    [b"POST / HTTP/1.1\r\n", b"GET /rest/tasks HTTP/1.1\r\n", b"Host: x\r\n", b"Content-Length: 10\r\n", b"\r\n", b"{}",
     b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n",
     b"5\r\nabcde\r\n",
     b"0\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"Origin: \xff\r\n", b"Authorization: Bearer \xff\r\n",
     b"A" * 70_000, b"\0", b"Upgrade: websocket\r\nConnection: upgrade\r\n"]
)  # fmt: skip


async def test_f46_raw_bytes_never_meet_a_fault_of_ours() -> None:
    async with served(StrictLLM("fine"), limits__requests="1000000/1s") as at:
        loop = asyncio.get_running_loop()

        async def ask(data: bytes) -> None:
            assert b"HTTP/1.1 5" not in await raw(at, data), data

        @settings(HOW, max_examples=EXAMPLES // 10)
        @given(st.lists(LINES | st.binary(max_size=20), max_size=6).map(b"".join))
        def run(data: bytes) -> None:
            asyncio.run_coroutine_threadsafe(ask(data), loop).result(60)

        await asyncio.to_thread(run)
        await still_well(at, 0)
