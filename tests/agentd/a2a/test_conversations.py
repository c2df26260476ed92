"""Conversations over A2A with the official client. Numbers of sections are those of the specification 1.0."""

import asyncio
from typing import Any

import pytest
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from agentd.context.record import TextPart
from tests.agentd.a2a.serving import COMPLETED, Gate, Served, frames, message, request, served, text_of, told
from tests.agentd.daemon.house import House, StrictLLM, texts, until, users

pytestmark = pytest.mark.anyio
BINDINGS = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


async def stream(at: Served, method: str, params: Any, **headers: str) -> list[tuple[str | None, dict[str, Any]]]:
    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await at.http.post("/", json=asked, headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
    return frames(answer.text)


@BINDINGS
async def test_official_client_converses_in_one_context(binding: str) -> None:
    """Specification 3.1.1, 3.4: a contextId is a conversation, each message a task with its answer as artifact."""
    model = StrictLLM("one", "two")
    async with served(model) as at, at.client(binding) as client:
        first = (await told(client, request("first", "m1")))[0].task
        context = first.context_id
        events = await told(client, request("second", "m2", context_id=context))
        tasks = (await client.list_tasks(ListTasksRequest(context_id=context, include_artifacts=True))).tasks
        assert [text_of(task) for task in tasks] == ["two", "one"]
        assert {task.context_id for task in tasks} == {context}
        assert len(tasks) == 2
        assert events[-1].status_update.status.state == COMPLETED
        assert "first" in texts(model.requests[-1])


@BINDINGS
async def test_stream_brings_the_artifact_before_the_end_and_nothing_after(binding: str) -> None:
    """F53. Specification 3.1.2: the task first, then updates, until a terminal state."""
    async with served(StrictLLM("the answer")) as at, at.client(binding) as client:
        events = await told(client, request())
        kinds = [event.WhichOneof("payload") for event in events]
        assert (kinds[0], kinds[-2:]) == ("task", ["artifact_update", "status_update"])
        assert set(kinds[1:-2]) == {"status_update"}
        assert events[-2].artifact_update.artifact.parts[0].text == "the answer"
        assert events[-2].artifact_update.artifact.artifact_id == f"{events[0].task.id}.result"
        assert events[-1].status_update.status.state == COMPLETED
        assert events[-1].status_update.metadata["agentd/end_state"] == "completed"


@BINDINGS
async def test_cancel_ends_a_running_task_and_refuses_an_ended_one(binding: str) -> None:
    """Specification 3.1.5."""
    gate = Gate()
    async with served(gate.model) as at, at.client(binding) as client:
        asked = request()
        asked.configuration.return_immediately = True
        found = await at.task(params={**message(), "configuration": {"returnImmediately": True}})
        await gate.asked.wait()
        working = await client.get_task(GetTaskRequest(id=found["id"]))
        assert working.status.state == TaskState.TASK_STATE_WORKING
        ended = await client.cancel_task(CancelTaskRequest(id=found["id"]))
        assert ended.status.state == TaskState.TASK_STATE_CANCELED
        assert "cancelled" in ended.status.message.parts[0].text
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=found["id"]))
        with pytest.raises(UnsupportedOperationError):
            _ = [event async for event in client.subscribe(SubscribeToTaskRequest(id=found["id"]))]
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task(CancelTaskRequest(id="nobody's"))


async def test_waiting_task_is_submitted_and_can_be_cancelled() -> None:
    gate = Gate()
    async with served(gate.model) as at:
        now = {"configuration": {"returnImmediately": True}}
        first = await at.task(params={**message(id="m1", contextId="c"), **now})
        second = await at.task(params={**message(id="m2", contextId="c"), **now})
        await gate.asked.wait()
        assert second["status"]["state"] == "TASK_STATE_SUBMITTED"
        cancelling = asyncio.create_task(at.task("CancelTask", {"id": second["id"]}))
        await at.agent.events.wait_event("turn.round")
        await until(lambda: second["id"] in at.agent.actors._cancelled)
        gate.open.set()
        assert (await cancelling)["status"]["state"] == "TASK_STATE_CANCELED"
        assert (await at.task("GetTask", {"id": first["id"]}))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_f2_the_same_message_twice_is_one_task() -> None:
    """Two at once and one later, with and without a context: one user entry, one task, one answer."""
    model = StrictLLM("once")
    async with served(model) as at:
        found = await asyncio.gather(*(at.task(params=message("hi", "same", contextId="c")) for _ in range(3)))
        again = await at.task(params=message("hi", "same"))
        assert {task["id"] for task in [*found, again]} == {found[0]["id"]}
        assert len(model.requests) == 1
        assert len(await users(at.agent, "c")) == 1
        other = await at.rpc("SendMessage", message("other words", "same"))
        assert other["error"]["code"] == -32602
        assert "used before" in other["error"]["message"]


async def test_messages_at_once_on_one_context_run_in_order() -> None:
    gate = Gate()
    async with served(gate.model) as at:
        sent = []
        for n in range(4):
            params = {**message(f"number {n}", f"m{n}", contextId="c"), "configuration": {"returnImmediately": True}}
            sent.append((await at.task(params=params))["id"])
        gate.open.set()
        for id in sent:
            await at.agent.wait(id)
        said = [entry.parts[0] for entry in await users(at.agent, "c")]
        assert said == [TextPart(f"number {n}") for n in range(4)]
        seen = [[m.content for m in asked.messages if m.content.startswith("number")] for asked in gate.model.requests]
        assert [len(found) for found in seen] == [1, 2, 3, 4]


async def test_client_that_lost_its_stream_subscribes_again() -> None:
    """Specification 3.1.6: the task as it is first, then the rest, over to the end."""
    gate = Gate()
    async with served(gate.model) as at, at.client() as client:
        lost = client.send_message(request())
        task = (await anext(lost)).task
        await gate.asked.wait()
        await lost.aclose()  # type: ignore[attr-defined]
        again = client.subscribe(SubscribeToTaskRequest(id=task.id))
        first = await anext(again)
        assert first.task.id == task.id
        assert first.task.status.state == TaskState.TASK_STATE_WORKING
        gate.open.set()
        rest = [event async for event in again]
        assert [event.WhichOneof("payload") for event in rest] == ["artifact_update", "status_update"]
        assert rest[0].artifact_update.artifact.parts[0].text == "it is done"


async def test_f53_last_event_id_loses_and_repeats_nothing() -> None:
    async with served(StrictLLM("done")) as at:
        whole = await stream(at, "SendStreamingMessage", message())
        ids = [id for id, _ in whole]
        assert None not in ids
        assert len(set(ids)) == len(ids) >= 4
        task = whole[0][1]["result"]["task"]["id"]
        for at_frame in range(len(whole)):
            rest = await stream(at, "SubscribeToTask", {"id": task}, **{"Last-Event-ID": str(ids[at_frame])})
            assert rest == whole[at_frame + 1 :]
        again = await stream(at, "SendStreamingMessage", message(), **{"Last-Event-ID": str(ids[1])})
        assert again == whole[2:]
        for unknown in ("1.2.3", "x", "", f"{ids[0]}.x", f"other{ids[0]}"):
            found = await at.rpc("SubscribeToTask", {"id": task}, **{"Last-Event-ID": unknown})
            assert found["error"]["code"] == -32004


async def test_lists_come_in_pages_with_filters() -> None:
    """Specification 3.1.4: newest first, pageSize 1 to 100, artifacts only where asked for."""
    house = House()
    async with served(StrictLLM("x"), house) as at, at.client("HTTP+JSON") as client:
        for n in range(5):
            house.clock.advance(1)
            await at.task(params=message(f"t{n}", f"m{n}", contextId="even" if n % 2 == 0 else "odd"))
        seen: list[str] = []
        token = ""
        while True:
            page = await client.list_tasks(ListTasksRequest(page_size=2, page_token=token, history_length=1))
            seen += [task.history[0].parts[0].text for task in page.tasks]
            assert (page.total_size, page.page_size) == (5, 2)
            assert not any(task.artifacts for task in page.tasks)
            if not (token := page.next_page_token):
                break
        assert len(seen) == 5
        found = await client.list_tasks(ListTasksRequest(context_id="odd", include_artifacts=True))
        assert [text_of(task) for task in found.tasks] == ["x", "x"]
        assert (await client.list_tasks(ListTasksRequest(status=TaskState.TASK_STATE_FAILED))).total_size == 0
        assert (await client.list_tasks(ListTasksRequest(status=COMPLETED))).total_size == 5
        newest = (await client.list_tasks(ListTasksRequest(page_size=2))).tasks[1].status.timestamp
        assert (await client.list_tasks(ListTasksRequest(status_timestamp_after=newest))).total_size == 2
        for bad in ({"pageSize": 0}, {"pageSize": 101}, {"pageToken": "x"}, {"historyLength": -1}):
            assert (await at.rpc("ListTasks", bad))["error"]["code"] == -32602


async def test_history_is_as_long_as_asked_for() -> None:
    """Specification 3.2.4: unset is all, 0 none, n the last n; also once the turn is only in the log."""
    house = House()
    calls = [("look", {"n": 1})]
    async with served(StrictLLM(calls, "the end"), house) as at:
        task = await at.task(params=message("go"))
        parts = [entry["parts"][0]["text"] for entry in task["history"]]
        assert parts == ["go", "the end"]
        assert [entry["role"] for entry in task["history"]] == ["ROLE_USER", "ROLE_AGENT"]
    async with served(StrictLLM("unused"), house) as at:
        for length, expected in ((None, parts), (0, []), (1, parts[-1:]), (9, parts)):
            asked = {"id": task["id"]} if length is None else {"id": task["id"], "historyLength": length}
            found = await at.task("GetTask", asked)
            assert [entry["parts"][0]["text"] for entry in found.get("history", [])] == expected
            assert text_of(found) == "the end"


async def test_message_to_a_task_is_refused_as_the_specification_says() -> None:
    """Specification 3.4.3: a task that has ended takes no message; another context than the task's is no match."""
    gate = Gate()
    async with served(gate.model) as at:
        now = {"configuration": {"returnImmediately": True}}
        task = await at.task(params={**message(contextId="c"), **now})
        await gate.asked.wait()
        busy = await at.rpc("SendMessage", message("more", "m2", taskId=task["id"]))
        assert (busy["error"]["code"], "contextId" in busy["error"]["message"]) == (-32004, True)
        other = await at.rpc("SendMessage", message("more", "m2", taskId=task["id"], contextId="d"))
        assert other["error"]["code"] == -32602
        gate.open.set()
        await at.agent.wait(task["id"])
        over = await at.rpc("SendMessage", message("more", "m2", taskId=task["id"]))
        assert over["error"]["code"] == -32004
        assert (await at.rpc("SendMessage", message("m", "m3", taskId="none")))["error"]["code"] == -32001
        same = await at.task(params=message(contextId="c", taskId=task["id"]))
        assert same["id"] == task["id"]


async def test_data_and_files_reach_the_log_and_come_back() -> None:
    async with served(StrictLLM("seen")) as at:
        parts = [
            {"data": {"n": 1, "big": 1.5, "list": [True, None, {"a": "b"}]}},
            {"raw": "AAEC", "filename": "x.bin", "mediaType": "application/octet-stream"},
            {"url": "https://example.com/a.png", "mediaType": "image/png"},
            {"text": "half \ud800 pair"},
        ]
        sent = {"message": {"messageId": "m", "role": "ROLE_USER", "contextId": "c", "parts": parts}}
        task = await at.task(params=sent)
        (entry,) = await users(at.agent, "c")
        data, raw, url, text = entry.parts
        assert data.data == {"n": 1, "big": 1.5, "list": [True, None, {"a": "b"}]}  # type: ignore[union-attr]
        assert await at.agent.services.records.artifact_bytes(raw.artifact or "") == b"\x00\x01\x02"  # type: ignore[union-attr]
        assert url.uri == "https://example.com/a.png"  # type: ignore[union-attr]
        assert text.text == "half \ufffd pair"  # type: ignore[union-attr]
        assert task["history"][0]["parts"][0]["data"]["list"] == [True, None, {"a": "b"}]


async def test_answer_that_is_data_is_an_artifact_of_data() -> None:
    finish = [("finish", {"status": "completed", "output": {"hour": 9, "deep": {"list": [1, 2]}}})]
    async with served(StrictLLM(finish)) as at:
        task = await at.task(params=message())
        assert task["artifacts"][0]["parts"][0]["data"] == {"hour": 9, "deep": {"list": [1, 2]}}


@pytest.mark.parametrize(
    ("said", "state"), [("refused", "TASK_STATE_REJECTED"), ("failed", "TASK_STATE_FAILED")]
)  # fmt: skip
async def test_end_of_a_turn_is_the_state_of_its_task(said: str, state: str) -> None:
    finish = [("finish", {"status": said, "reason": "not today"})]
    async with served(StrictLLM(finish)) as at:
        task = await at.task(params=message())
        assert task["status"]["state"] == state
        assert task["status"]["message"]["parts"][0]["text"] == "not today"
        assert "artifacts" not in task


async def test_commands_are_answered_without_a_turn() -> None:
    model = StrictLLM("x")
    async with served(model) as at:
        await at.task(params=message(contextId="c"))
        async with at.client() as client:
            data = Part()
            data.data.struct_value.update({"agentd": {"op": "status"}})
            asked = Message(message_id="q", role=Role.ROLE_USER, context_id="c", parts=[data])
            (event,) = await told(client, SendMessageRequest(message=asked))
            assert event.message.parts[0].data.struct_value["agentd"]["turns"] == 1
        for given, code in (
            ({"op": "nope"}, -32602),
            ({"op": "context.compact", "keep_last": "x"}, -32602),
            ({}, -32602),
        ):
            params = {"message": {**message(id="n", contextId="c")["message"], "parts": [{"data": {"agentd": given}}]}}
            assert (await at.rpc("SendMessage", params))["error"]["code"] == code
        assert len(model.requests) == 1


async def test_next_life_goes_on_with_what_was_accepted() -> None:
    """A task of an earlier life is not working for ever: it is taken up, and can be subscribed to."""
    house, gate = House(), Gate()
    async with served(gate.model, house) as at:
        task = await at.task(params={**message(), "configuration": {"returnImmediately": True}})
        await gate.asked.wait()
        await house.end(at.agent)
    second = Gate()
    async with served(second.model, house) as at, at.client() as client:
        await second.asked.wait()
        again = client.subscribe(SubscribeToTaskRequest(id=task["id"]))
        assert (await anext(again)).task.status.state == TaskState.TASK_STATE_WORKING
        second.open.set()
        rest = [event async for event in again]
        assert rest[-1].status_update.status.state == COMPLETED
        assert len(await users(at.agent, task["contextId"])) == 1


async def test_drain_ends_streams_and_waiting_answers() -> None:
    """F48: what does not finish is answered as it is, and stays for the next life."""
    house, gate = House(lifecycle__drain_timeout="0s"), Gate()
    async with served(gate.model, house) as at:
        waiting = asyncio.create_task(at.task(params=message(id="m1")))
        following = asyncio.create_task(stream(at, "SendStreamingMessage", message(id="m2")))
        await gate.asked.wait()
        await at.agent.events.wait_event("turn.round")
        at.agent.actors.drain()
        refused = await at.rpc("SendMessage", message(id="m3"))
        assert refused["error"]["code"] == -32000
        at.server.handler.streams.close()
        assert (await waiting)["status"]["state"] in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED")
        assert "task" in (await following)[0][1]["result"]


async def test_output_modes_that_this_agent_has_not_are_refused() -> None:
    async with served(StrictLLM("x")) as at:
        config = SendMessageConfiguration(accepted_output_modes=["image/png"])
        told = await at.rpc("SendMessage", {**message(), "configuration": {"acceptedOutputModes": ["image/png"]}})
        assert told["error"]["code"] == -32005
        assert config.accepted_output_modes == ["image/png"]
