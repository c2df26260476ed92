"""What each method of the protocol does. Touches the daemon alone: a message goes into its inbox, everything else reads
its records. What a sender may not see is not found.

The SDK's own handler is not used: it keeps tasks of its own, which a crash would leave working for ever, and runs the
messages of one context side by side.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from a2a.types.a2a_pb2 import Task as WireTask
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from agentd.context.registry import NotYours
from agentd.context.resident import STATE
from agentd.runtime.daemon import Daemon
from agentd.runtime.inbox import Task
from agentd.runtime.principals import Principal

from .book import Book, behind, page_token
from .card import extended
from .faults import NotAllowed, TryLater, told
from .streams import Place, Streams
from .wire import NAMES, answer_of, command_of, meant_by, parts_of, task_of

PRINCIPAL, FRAMES, LAST_SEEN = "agentd.principal", "agentd.frames", "agentd.last_seen"
"""Where the state of a call holds its sender, the ids of the frames it sends, and the frame it goes on from."""
PAGE, MAX_PAGE = 50, 100
CANCEL_WAIT = 5.0
"""Seconds in which a cancelled task is expected to end; one that takes longer is returned as it is."""
MODES = frozenset({"*/*", "text/*", "text/plain", "application/*", "application/json"})


class Handler(RequestHandler):
    """The methods, for one daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._inbox = daemon, daemon.services.inbox
        self.book = Book(daemon)
        self.streams = Streams(daemon, self.book)
        self._waiting: Counter[str] = Counter()
        self.card: AgentCard | None = None
        """The card that everybody is shown."""

    # Messages

    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> WireTask | Message:
        sender, length = sender_of(context), _length(params.configuration)
        with told(), self._place(sender):
            found = await self._taken(params, sender)
            if isinstance(found, Message):
                return found
            if not params.configuration.return_immediately:
                found = await self._ended(found, None)
            return await self._shown(found, length)

    @validate_request_params
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        sender, length = sender_of(context), _length(params.configuration)
        with told(), self._place(sender):
            found = await self._taken(params, sender)
            if isinstance(found, Message):
                yield found
                return
            async for event in self._frames(found, context, length):
                yield event

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        sender = sender_of(context)
        with told(), self._place(sender):
            task = await self.book.find(params.id, sender)
            if task.is_settled and self._after(context) is None:
                raise UnsupportedOperationError(f"task {task.id} has ended as {task.state}; there is nothing to follow")
            async for event in self._frames(task, context, None, past=True):
                yield event

    async def _taken(self, params: SendMessageRequest, sender: Principal) -> Task | Message:
        """Take a message in: the task that its sender has of it, or the answer to a command."""
        given, message = params.configuration, params.message
        if given.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError()
        wanted = set(given.accepted_output_modes)
        if wanted and not wanted & MODES:
            raise ContentTypeNotSupportedError("this agent answers with text/plain or application/json")
        where = message.context_id or None
        if (command := command_of(message)) is not None:
            return await self._command(command, message, sender)
        parts = await parts_of(message, self._daemon.services.records.artifact)
        if message.task_id:
            return await self._continued(message, parts, sender)
        if sender.role == "anonymous" and where is not None:
            # Anonymous senders share one id: a context that any of them could name would be everybody's.
            await self._require_context(where, sender)
        accepted = await self._daemon.send(parts, context=where, principal=sender, message_id=message.message_id)
        return accepted.task

    async def _continued(self, message: Message, parts: Any, sender: Principal) -> Task:
        """A message to a task answers what it asks. One that was sent before is known."""
        task = await self.book.find(message.task_id, sender)
        if message.context_id and message.context_id != task.context:
            raise InvalidParamsError(f"task {task.id} belongs to another context than {message.context_id[:256]!r}")
        if self._daemon.question(task.id) is not None:
            return await self._daemon.answer(
                task.id, parts, principal=sender, message_id=message.message_id, question=meant_by(message)
            )
        known = await self._inbox.seen(sender, message.message_id, parts)
        if known is not None:
            return known
        if task.is_settled:
            raise UnsupportedOperationError(
                f"task {task.id} has ended as {task.state}; send the message with its contextId alone"
            )
        raise UnsupportedOperationError(
            f"task {task.id} does not wait for input; with its contextId alone the message is worked on after it"
        )

    async def _command(self, given: dict[str, Any], message: Message, sender: Principal) -> Message:
        arguments = {key: value for key, value in given.items() if key not in ("op", "context", "principal")}
        if sender.role == "anonymous":
            raise NotAllowed("commands are not for anonymous senders")
        try:
            result = await self._daemon.command(
                given["op"], context=message.context_id or "root", principal=sender, **arguments
            )
        except NotYours:
            raise
        except LookupError as error:
            raise InvalidParamsError(str(error.args[0])) from error
        return answer_of(self._daemon.services.ids(), message.context_id or "root", {"agentd": result})

    async def _require_context(self, id: str, sender: Principal) -> None:
        if await self._daemon.services.records.get(STATE, id) is None:
            raise TaskNotFoundError(f"there is no context {id!r}")
        await self._daemon.services.residents.open(id, sender.id)

    # Tasks

    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> WireTask | None:
        with told():
            task = await self.book.find(params.id, sender_of(context))
            return await self._shown(task, _length(params))

    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> WireTask | None:
        sender = sender_of(context)
        with told(), self._place(sender):
            task = await self.book.find(params.id, sender)
            if not await self._daemon.cancel(task.id, principal=sender, reason="cancelled by its owner"):
                raise TaskNotCancelableError(f"task {task.id} has ended as {task.state}")
            return await self._shown(await self._ended(task, CANCEL_WAIT), None)

    @validate_request_params
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        sender, length = sender_of(context), _length(params)
        size = params.page_size if params.HasField("page_size") else PAGE
        if not 1 <= size <= MAX_PAGE:
            raise InvalidParamsError(f"pageSize is 1 to {MAX_PAGE}, not {size}")
        if sender.role == "anonymous":
            raise NotAllowed("anonymous senders share one id: their tasks are not listed")
        after = behind(params.page_token) if params.page_token else None
        with told():
            return await self._page(params, sender, size, after, length)

    async def _page(
        self, params: ListTasksRequest, sender: Principal, size: int, after: tuple[int, str] | None, length: int | None
    ) -> ListTasksResponse:
        since = None
        if params.HasField("status_timestamp_after"):
            since = params.status_timestamp_after.ToMilliseconds()
        found = [
            line
            for line in await self.book.lines(sender)
            if (not params.context_id or line.context == params.context_id) and (since is None or line.updated >= since)
        ]
        if params.status:
            wanted = NAMES.get(params.status)
            shown = [(line, await self.book.show(line)) for line in found]
            found = [line for line, task in shown if task is not None and self.book.state(task) == wanted]
        rest = [line for line in found if after is None or (line.updated, line.id) < after]
        made = ListTasksResponse(page_size=size, total_size=len(found))
        for line in rest[:size]:
            task = await self.book.show(line)
            if task is not None:
                history = await self.book.history(task, length) if length else ()
                made.tasks.append(
                    task_of(
                        task, self.book.state(task), history, question=self._daemon.question(task.id),
                        with_artifacts=params.include_artifacts,
                    )
                )  # fmt: skip
        if len(rest) > size:
            made.next_page_token = page_token(rest[size - 1])
        return made

    # What this agent does not do

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        _no_push()

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        _no_push()

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        _no_push()

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        _no_push()

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        sender, services = sender_of(context), self._daemon.services
        if not services.settings.a2a.extended_card or self.card is None:
            raise UnsupportedOperationError("this agent has no extended card")
        if sender.role == "anonymous":
            raise NotAllowed("the extended card is not for anonymous senders")
        return extended(self.card, services.skills.catalogue.skills, self._daemon.commands(sender))

    # Shared

    async def _shown(self, task: Task, length: int | None) -> WireTask:
        history = await self.book.history(task, length)
        return task_of(task, self.book.state(task), history, question=self._daemon.question(task.id))

    async def _ended(self, task: Task, timeout: float | None) -> Task:
        """The task once it has ended or asks something, or as it is after `timeout` seconds or when this life ends."""
        waiting: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._daemon.wait_or_ask(task.id)),
            asyncio.ensure_future(self.streams.closing.wait()),
        ]
        try:
            await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        return await self._inbox.task(task.id)

    async def _frames(
        self, task: Task, context: ServerCallContext, length: int | None, *, past: bool = False
    ) -> AsyncIterator[Any]:
        sent = context.state.get(FRAMES)
        async for place, frame in self.streams.follow(task, self._after(context), length, past=past):
            if sent is not None:
                sent.append(self.streams.id_of(place))
            yield frame

    def _after(self, context: ServerCallContext) -> Place | None:
        return self.streams.place_of(context.state.get(LAST_SEEN))

    @contextmanager
    def _place(self, sender: Principal) -> Iterator[None]:
        """One of the requests that a sender may have waiting at once (`limits.waiting_requests`)."""
        limit = self._daemon.services.settings.limits.waiting_requests
        if self._waiting[sender.id] >= limit:
            raise TryLater(f"{limit} requests of yours are waiting (limits.waiting_requests); let one end first")
        self._waiting[sender.id] += 1
        try:
            yield
        finally:
            self._waiting[sender.id] -= 1
            if not self._waiting[sender.id]:
                del self._waiting[sender.id]


def sender_of(context: ServerCallContext) -> Principal:
    """Who makes a call: the server has identified everybody before."""
    found: Principal = context.state[PRINCIPAL]
    return found


def _length(given: SendMessageConfiguration | GetTaskRequest | ListTasksRequest) -> int | None:
    """How much of the history is asked for; None where nothing is said."""
    if not given.HasField("history_length"):
        return None
    if given.history_length < 0:
        raise InvalidParamsError(f"historyLength is 0 or more, not {given.history_length}")
    return given.history_length


def _no_push() -> NoReturn:
    raise PushNotificationNotSupportedError("this agent sends no push notifications")
