"""A client of a running agent, over A2A: what `chat --url` and `tasks` share. Touches the network, where the URL leads.

The token is no argument, which others on the machine could read: it comes from a variable.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from a2a.client import Client
    from a2a.types.a2a_pb2 import Part, StreamResponse, Task, TaskStatus

TOKEN = "A2A_TOKEN"
QUESTION = "agentd/question"
"""Metadata of a message that answers: the id of the question that is meant."""
TRIES = 5
"""Times that a stream which was lost is taken up again, a second apart: an agent that is restarted takes about that."""

token_option = click.option(
    "--token-env", metavar="NAME", default=TOKEN, show_default=True, help="The variable that holds the bearer token."
)


class Unreachable(click.ClickException):
    """Nobody there, or what they answered."""

    exit_code = 1


@asynccontextmanager
async def connected(url: str, token_env: str) -> AsyncIterator[Client]:
    """The client of the agent whose card is at `url`."""
    from agentkit.core.contracts.errors import MissingExtraError

    try:
        import httpx
        from a2a.client import ClientConfig, create_client
    except ImportError as error:
        raise Unreachable(str(MissingExtraError("agentd", error.name or "a2a-sdk", "talking to an agent"))) from None
    token = os.environ.get(token_env)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # An answer takes as long as it takes; only to be reached has the agent a limit.
    async with httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(None, connect=10)) as http:
        with reporting(url):
            client = await create_client(url, ClientConfig(httpx_client=http))
        yield client


@contextmanager
def reporting(url: str) -> Iterator[None]:
    """What went wrong with the agent, as this program's error."""
    import httpx
    from a2a.utils.errors import A2AError

    try:
        yield
    except (A2AError, httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unreachable(f"{url}: {str(error) or type(error).__name__}") from error


async def said(client: Client, text: str, before: Followed) -> Followed:
    """Send a message and wait for the answer, or for a question. `before`: what the conversation has come to; if it
    asks something, the message is the answer. A stream that is lost is taken up again."""
    import uuid

    from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest

    task, context = before.task if before.asks else "", before.context
    message = Message(
        message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], context_id=context, task_id=task
    )
    if task:
        message.metadata.update({QUESTION: before.question})
    events = client.send_message(SendMessageRequest(message=message))
    for left in reversed(range(TRIES)):
        found = Followed(task, context)
        try:
            async for event in events:
                found.take(event)
                task, context = found.task, found.context
            return found
        except Exception as error:
            if not task or not left or not _is_lost(error):
                raise
        events = _again(client, task)
    raise AssertionError("the last try raises")


async def found_now(client: Client, before: Followed) -> Followed:
    """Where the task of a conversation stands now."""
    from a2a.types.a2a_pb2 import GetTaskRequest, StreamResponse

    found = Followed(before.task, before.context)
    found.take(StreamResponse(task=await client.get_task(GetTaskRequest(id=before.task))))
    return found


async def _again(client: Client, task: str) -> AsyncIterator[StreamResponse]:
    import asyncio

    from a2a.types.a2a_pb2 import GetTaskRequest, StreamResponse, SubscribeToTaskRequest
    from a2a.utils.errors import UnsupportedOperationError

    await asyncio.sleep(1)
    try:
        async for event in client.subscribe(SubscribeToTaskRequest(id=task)):
            yield event
    except UnsupportedOperationError:  # it has ended meanwhile
        yield StreamResponse(task=await client.get_task(GetTaskRequest(id=task)))


def _is_lost(error: Exception) -> bool:
    import httpx
    from a2a.client.errors import A2AClientError

    return isinstance(error, httpx.TransportError | A2AClientError)


class Followed:
    """What a stream has told so far. `question`: the id of what the task asks, "" where it asks nothing."""

    def __init__(self, task: str = "", context: str = "") -> None:
        self.task, self.context, self.question = task, context, ""
        self._answer, self._reason = "", ""

    @property
    def text(self) -> str:
        """The answer, else what the task asks, or why it has none."""
        return self._answer or self._reason

    @property
    def asks(self) -> bool:
        return bool(self.question)

    def take(self, event: StreamResponse) -> None:
        """One more event."""
        if event.HasField("message"):
            self._answer, self.context = text_of(event.message.parts), event.message.context_id
        elif event.HasField("task"):
            self.task, self.context = event.task.id, event.task.context_id
            self._answer = "\n".join(text_of(artifact.parts) for artifact in event.task.artifacts)
            self._take_status(event.task.status)
        elif event.HasField("artifact_update"):
            self._answer = text_of(event.artifact_update.artifact.parts)
        elif event.HasField("status_update"):
            self._take_status(event.status_update.status)

    def _take_status(self, status: TaskStatus) -> None:
        self.question, self._reason = question_in(status), reason_of(status)


def answer_of(task: Task) -> str:
    """What a task answered, or why it did not."""
    found = "\n".join(text_of(artifact.parts) for artifact in task.artifacts)
    return found or reason_of(task.status)


def reason_of(status: TaskStatus) -> str:
    """Why a task ended without an answer; nothing for one that goes on or completed."""
    name = state_of(status)
    if name in ("submitted", "working", "completed"):
        return ""
    if is_asking(status):
        return question_of(status)
    why = text_of(status.message.parts)
    return f"[{name}: {why}]" if why else f"[{name}]"


def is_asking(status: TaskStatus) -> bool:
    """Whether a task waits for an answer."""
    return state_of(status) == "input-required"


def question_in(status: TaskStatus) -> str:
    """The id of what a task asks, "" where it asks nothing. An agent of another make may give its questions none."""
    return (status.message.message_id or "?") if is_asking(status) else ""


def question_of(status: TaskStatus) -> str:
    """What a task asks."""
    from google.protobuf.json_format import MessageToDict

    told = [MessageToDict(part.data) for part in status.message.parts if part.HasField("data")]
    found: dict[str, Any] = next((one["agentd"]["question"] for one in told if "question" in one.get("agentd", {})), {})
    text = "\n".join(part.text for part in status.message.parts if part.HasField("text"))
    return asking(text, found.get("options", ()))


def asking(question: str, options: Sequence[str]) -> str:
    """A question as a person reads it."""
    return f"? {question}" + (f" ({' / '.join(options)})" if options else "")


def state_of(status: TaskStatus) -> str:
    """completed, failed ..."""
    from a2a.types.a2a_pb2 import TaskState

    name: str = TaskState.Name(status.state)
    return name.removeprefix("TASK_STATE_").lower().replace("_", "-")


def text_of(parts: Any) -> str:
    """Parts as text: data as JSON, files by their address."""
    return "\n".join(_text(part) for part in parts)


def _text(part: Part) -> str:
    from google.protobuf.json_format import MessageToJson

    kind = part.WhichOneof("content")
    if kind == "data":
        return str(MessageToJson(part.data, indent=None, ensure_ascii=False))
    if kind == "text":
        return str(part.text)
    return str(part.url) if kind == "url" else f"[{len(part.raw)} bytes]"
