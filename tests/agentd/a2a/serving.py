"""A daemon in this process behind its A2A listener, and clients of it: the official one, and plain HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from a2a.client import Client, ClientConfig, create_client
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest, StreamResponse, Task, TaskState

from agentd.a2a.server import Server
from agentd.config.values import Address
from agentd.runtime.daemon import Daemon
from agentkit.core.contracts.ports import LLM
from agentkit.core.contracts.requests import ChatRequest
from tests.agentd.daemon.house import House, StrictLLM

COMPLETED = TaskState.TASK_STATE_COMPLETED
TOKENS = {name: f"token-of-{name}" for name in ("ann", "bob", "eve", "ops")}
CLOSED = """[
  {id: ann, match: {bearer: {file: FOLDER/ann}}, role: user},
  {id: bob, match: {bearer: {file: FOLDER/bob}}, role: user},
  {id: eve, match: {bearer: {file: FOLDER/eve}}, role: agent},
  {id: ops, match: {bearer: {file: FOLDER/ops}}, role: operator}]"""
"""Rules whose tokens are in files of a folder."""
RULES = CLOSED.replace("]", ", {id: guest, match: any, role: anonymous}]")


class Gate:
    """A model that answers `it is done` once the gate is open."""

    def __init__(self) -> None:
        self.open, self.asked = asyncio.Event(), asyncio.Event()
        self.model = StrictLLM(answer=self._answer)

    async def _answer(self, request: ChatRequest) -> str:
        self.asked.set()
        await self.open.wait()
        return "it is done"


@dataclass
class Served:
    """What tests speak to."""

    agent: Daemon
    server: Server
    http: httpx.AsyncClient

    @property
    def url(self) -> str:
        return self.server.url

    async def rpc(self, method: str, params: Any = None, *, who: str | None = None, **headers: str) -> dict[str, Any]:
        """The answer to a JSON-RPC request."""
        asked = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {} if params is None else params}
        answer = await self.http.post("/", content=json.dumps(asked), headers={**as_(who), **headers})
        told: dict[str, Any] = answer.json()
        assert told["jsonrpc"] == "2.0"
        return told

    async def task(self, method: str = "SendMessage", params: Any = None, **how: Any) -> dict[str, Any]:
        """The task of an answer that is no error."""
        told = await self.rpc(method, params, **how)
        assert "error" not in told, told
        found: dict[str, Any] = told["result"].get("task", told["result"])
        return found

    @asynccontextmanager
    async def client(self, binding: str = "JSONRPC", who: str | None = None) -> AsyncIterator[Client]:
        """The official client."""
        async with httpx.AsyncClient(headers=as_(who), timeout=30) as http:
            config = ClientConfig(
                httpx_client=http, supported_protocol_bindings=[binding], use_client_preference=True
            )  # fmt: skip
            yield await create_client(self.url, config)


def as_(who: str | None) -> dict[str, str]:
    return {} if who is None else {"Authorization": f"Bearer {TOKENS[who]}"}


@asynccontextmanager
async def served(model: LLM, house: House | None = None, *, environ: Any = None, **given: Any) -> AsyncIterator[Served]:
    """A life behind a listener on a port of its own."""
    house = house or House()
    given = {key.replace(".", "__"): value for key, value in given.items()}
    async with house.life(model, given=given, people=True) as agent:
        server = Server(agent, Address("127.0.0.1", 0), None)
        async with server.serving(), httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            yield Served(agent, server, http)


def message(text: str = "hello", id: str = "m1", **where: str) -> dict[str, Any]:
    """The parameters of SendMessage."""
    return {"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}], **where}}


def request(text: str = "hello", id: str = "m1", **where: str) -> SendMessageRequest:
    """The same for the official client."""
    return SendMessageRequest(message=Message(message_id=id, role=Role.ROLE_USER, parts=[Part(text=text)], **where))


async def told(client: Client, asked: SendMessageRequest) -> list[StreamResponse]:
    """Everything that a client is sent for a message."""
    return [event async for event in client.send_message(asked)]


def frames(text: str) -> list[tuple[str | None, dict[str, Any]]]:
    """The frames of an event stream: id and data."""
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if "data" in lines:
            found.append((lines.get("id"), json.loads(lines["data"])))
    return found


def text_of(task: Task | dict[str, Any]) -> str:
    """The answer of a task."""
    if isinstance(task, dict):
        return str(task["artifacts"][0]["parts"][0]["text"])
    return str(task.artifacts[0].parts[0].text)
