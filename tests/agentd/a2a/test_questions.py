"""A task that asks: input-required with its question, answered by a message with its taskId, whoever disconnects or
restarts in between. A2A 1.0: a task in an interrupted state ends the stream and the waiting request, and a message with
its taskId continues it (life of a task, multi-turn interactions)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from a2a.client import ClientConfig, create_client
from a2a.types.a2a_pb2 import GetTaskRequest, SubscribeToTaskRequest, TaskState

from tests.agentd.a2a.serving import COMPLETED, message, request, served, told
from tests.agentd.a2a.test_owners import house
from tests.agentd.daemon.house import House, Said, StrictLLM, results, until
from tests.agentd.daemon.scripts import run as subagent
from tests.agentd.daemon.scripts import script

pytestmark = pytest.mark.anyio
ASKED = TaskState.TASK_STATE_INPUT_REQUIRED


def asking(*questions: dict[str, Any]) -> StrictLLM:
    given = questions or ({"question": "Which colour?", "options": ["red", "blue"]},)
    return StrictLLM(*(list[Said]([[("ask_human", one)] for one in given])), "done")


async def test_message_is_answered_by_a_question_and_goes_on_with_its_answer() -> None:
    async with served(asking()) as at:
        task = await at.task(params=message("go", contextId="c"))
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        text, data = task["status"]["message"]["parts"]
        assert text["text"] == "Which colour?"
        assert data["data"]["agentd"]["question"]["options"] == ["red", "blue"]
        assert task["status"]["message"]["taskId"] == task["id"]
        wrong = await at.rpc("SendMessage", message("green", id="m2", contextId="c", taskId=task["id"]))
        assert wrong["error"]["code"] == -32602
        assert "'red', 'blue'" in str(wrong["error"])
        done = await at.task(params=message("red", id="m3", contextId="c", taskId=task["id"]))
        assert (done["id"], done["status"]["state"]) == (task["id"], "TASK_STATE_COMPLETED")
        # Sent again it is known; anything else finds that the task has ended.
        assert (await at.task(params=message("red", id="m3", contextId="c", taskId=task["id"])))["id"] == task["id"]
        over = await at.rpc("SendMessage", message("blue", id="m4", contextId="c", taskId=task["id"]))
        assert over["error"]["code"] == -32004
        assert (await results(at.agent, "c"))[0].content["answer"] == "red"


async def test_stream_ends_with_the_question_and_the_answer_opens_the_next_one() -> None:
    async with served(asking({"question": "First?"}, {"question": "Second?"})) as at:
        client = await create_client(at.url)
        events = await told(client, request("go", context_id="c"))
        assert events[-1].status_update.status.state == ASKED
        assert events[-1].status_update.status.message.parts[0].text == "First?"
        task = events[0].task.id
        events = await told(client, request("one", id="m2", context_id="c", task_id=task))
        assert events[-1].status_update.status.message.parts[0].text == "Second?"
        listed = await at.rpc("ListTasks", {"status": "TASK_STATE_INPUT_REQUIRED"})
        assert [one["id"] for one in listed["result"]["tasks"]] == [task]
        events = await told(client, request("two", id="m3", context_id="c", task_id=task))
        assert events[-1].status_update.status.state == COMPLETED
        listed = await at.rpc("ListTasks", {"status": "TASK_STATE_INPUT_REQUIRED"})
        assert listed["result"].get("tasks", []) == []
        await client.close()


async def test_who_subscribes_to_a_task_that_asks_is_told_and_stays() -> None:
    async with served(asking()) as at:
        client = await create_client(at.url)
        task = (await told(client, request("go", context_id="c")))[0].task.id
        followed = client.subscribe(SubscribeToTaskRequest(id=task))
        first = await anext(followed)
        assert first.task.status.state == ASKED
        assert first.task.status.message.parts[0].text == "Which colour?"
        await at.task(params=message("red", id="m2", contextId="c", taskId=task))
        rest = [event async for event in followed]
        assert rest[-1].status_update.status.state == COMPLETED
        assert any(event.HasField("artifact_update") for event in rest)
        await client.close()


async def test_f47_question_is_there_in_the_next_life_and_answered_in_it() -> None:
    place, model = House(), asking()
    async with served(model, place) as at:
        task = (await at.task(params=message("go", contextId="c")))["id"]
        await place.end(at.agent)
    async with served(model, place) as at:
        await until(lambda: at.agent.question(task) is not None)
        client = await create_client(at.url, ClientConfig(streaming=False))
        shown = await client.get_task(GetTaskRequest(id=task))
        assert shown.status.state == ASKED
        assert shown.status.message.parts[0].text == "Which colour?"
        (event,) = await told(client, request("blue", id="m2", context_id="c", task_id=task))
        assert event.task.status.state == COMPLETED
        await client.close()
    assert len(model.requests) == 2


async def test_f43_another_principal_answers_nothing_of_mine(tmp_path: Path) -> None:
    async with served(asking(), house(tmp_path)) as at:
        task = (await at.task(params=message("go", contextId="mine"), who="ann"))["id"]
        for who in ("bob", "eve", None):
            answered = await at.rpc("SendMessage", message("red", id="x1", taskId=task), who=who)
            assert answered["error"]["code"] == -32001, who
        assert at.agent.question(task) is not None
        done = await at.task(params=message("red", id="x2", taskId=task), who="ops")
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        assert (await results(at.agent, "mine"))[0].content == {"answer": "red", "by": "ops"}


async def test_cancelled_while_it_asks_and_the_one_who_follows_hears_of_it() -> None:
    async with served(asking()) as at:
        client = await create_client(at.url)
        task = (await told(client, request("go", context_id="c")))[0].task.id
        followed = client.subscribe(SubscribeToTaskRequest(id=task))
        await anext(followed)
        cancelled = await at.task("CancelTask", {"id": task})
        assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
        assert [event async for event in followed][-1].status_update.status.state == TaskState.TASK_STATE_CANCELED
        await client.close()


async def test_data_answers_what_asks_for_data() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with served(asking({"question": "How many?", "schema": schema})) as at:
        task = await at.task(params=message("go", contextId="c"))
        assert task["status"]["message"]["parts"][1]["data"]["agentd"]["question"]["schema"]["required"] == ["n"]
        params = message(id="m2", taskId=task["id"])
        params["message"]["parts"] = [{"data": {"n": 3}}]
        assert (await at.task(params=params))["status"]["state"] == "TASK_STATE_COMPLETED"
        assert (await results(at.agent, "c"))[0].content["answer"] == {"n": 3}


async def test_what_was_asked_and_answered_is_history_and_what_is_asked_is_the_status() -> None:
    async with served(asking({"question": "First?"}, {"question": "Second?"})) as at:
        task = (await at.task(params=message("go", contextId="c")))["id"]
        await at.task(params=message("one", id="m2", contextId="c", taskId=task))
        shown = await at.task("GetTask", {"id": task})
        said = [(one["role"], one["parts"][0]["text"]) for one in shown["history"]]
        assert said == [("ROLE_USER", "go"), ("ROLE_AGENT", "First?"), ("ROLE_USER", "one")]
        assert shown["status"]["message"]["parts"][0]["text"] == "Second?"
        assert len({one["messageId"] for one in shown["history"]}) == 3
        await at.task(params=message("two", id="m3", contextId="c", taskId=task))
        shown = await at.task("GetTask", {"id": task})
        said = [(one["role"], one["parts"][0]["text"]) for one in shown["history"]]
        assert said[3:] == [("ROLE_AGENT", "Second?"), ("ROLE_USER", "two"), ("ROLE_AGENT", "done")]


async def test_answer_that_names_its_question_is_none_to_another_one() -> None:
    """What a person approves is what was shown, even if the question has changed meanwhile."""
    async with served(asking({"question": "First?"}, {"question": "Second?"})) as at:
        first = await at.task(params=message("go", contextId="c"))
        task, shown = first["id"], first["status"]["message"]["messageId"]

        def named(text: str, id: str) -> dict[str, Any]:
            params = message(text, id=id, taskId=task)
            params["message"]["metadata"] = {"agentd/question": shown}
            return params

        second = await at.task(params=named("one", "m2"))
        assert second["status"]["message"]["messageId"] != shown
        late = await at.rpc("SendMessage", named("one again", "m3"))
        assert (late["error"]["code"], "asks something else by now" in str(late["error"])) == (-32004, True)
        assert at.agent.question(task) is not None


async def test_subagents_question_reaches_whoever_follows_the_task_above_it() -> None:
    ask: Said = [("ask_human", {"question": "Which?"})]
    model = script(parent=[subagent(), "it said so"], child=[ask, ask, "red it is"])
    async with served(model) as at:
        client = await create_client(at.url)
        events = await told(client, request("do parent", context_id="c"))
        assert events[-1].status_update.status.state == ASKED
        task = events[0].task.id
        followed = client.subscribe(SubscribeToTaskRequest(id=task))
        assert (await anext(followed)).task.status.message.parts[0].text == "Which?"
        again = await at.task(params=message("red", id="m2", taskId=task))
        assert (again["id"], again["status"]["state"]) == (task, "TASK_STATE_INPUT_REQUIRED")
        assert [event async for event in followed][-1].status_update.status.state == ASKED
        done = await at.task(params=message("red", id="m3", taskId=task))
        assert (done["status"]["state"], done["artifacts"][0]["parts"][0]["text"]) == (
            "TASK_STATE_COMPLETED",
            "it said so",
        )
        await client.close()


async def test_commands_are_answered_while_a_task_asks() -> None:
    async with served(asking()) as at:
        task = (await at.task(params=message("go", contextId="c")))["id"]
        params = message(id="m2", contextId="c")
        params["message"]["parts"] = [{"data": {"agentd": {"op": "context.get"}}}]
        answered = await at.rpc("SendMessage", params)
        assert answered["result"]["message"]["parts"][0]["data"]["agentd"]["id"] == "c"
        assert at.agent.question(task) is not None
