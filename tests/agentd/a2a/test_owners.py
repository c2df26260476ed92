"""Who may reach what: every method, for somebody else's context and task."""

from pathlib import Path
from typing import Any

import pytest

from tests.agentd.a2a.serving import CLOSED, RULES, TOKENS, Gate, Served, as_, message, served
from tests.agentd.daemon.house import House, StrictLLM

pytestmark = pytest.mark.anyio
NOT_FOUND = -32001
ANN = "ann"


def house(folder: Path, rules: str = RULES, **given: Any) -> House:
    for name, token in TOKENS.items():
        (folder / name).write_text(token)
    return House(a2a__principals=rules.replace("FOLDER", str(folder)), **given)


def calls(task: str, context: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Every method that names a task or a context."""
    status = {"parts": [{"data": {"agentd": {"op": "context.get"}}}]}
    return {
        "message into the context": ("SendMessage", message(id="x1", contextId=context)),
        "stream into the context": ("SendStreamingMessage", message(id="x2", contextId=context)),
        "message to the task": ("SendMessage", message(id="x3", taskId=task)),
        "stream to the task": ("SendStreamingMessage", message(id="x4", taskId=task)),
        "command": ("SendMessage", {"message": {**message(id="x5", contextId=context)["message"], **status}}),
        "task": ("GetTask", {"id": task}),
        "cancel": ("CancelTask", {"id": task}),
        "subscribe": ("SubscribeToTask", {"id": task}),
        "0.3 task": ("tasks/get", {"id": task}),
        "0.3 cancel": ("tasks/cancel", {"id": task}),
        "the root": ("SendMessage", message(id="x6", contextId="root")),
        "root command": ("SendMessage", {"message": {**message(id="x7", contextId="root")["message"], **status}}),
    }


@pytest.mark.parametrize("state", ["running", "ended"])
async def test_f43_nothing_of_mine_is_found_by_another(tmp_path: Path, state: str) -> None:
    """Users, agents and anonymous senders alike; what is not there at all is answered in the same way."""
    gate = Gate()
    async with served(gate.model, house(tmp_path)) as at:
        mine = await at.task(
            params={**message("my secret", contextId="mine"), "configuration": {"returnImmediately": True}}, who=ANN
        )
        await gate.asked.wait()
        if state == "ended":
            gate.open.set()
            await at.agent.wait(mine["id"])
        for who in ("bob", "eve", None):
            for name, (method, params) in calls(mine["id"], "mine").items():
                told = await at.rpc(method, params, who=who)
                codes = {NOT_FOUND} | ({-32010} if who is None and "command" in name else set())
                assert told["error"]["code"] in codes, (who, name, told)
                assert "secret" not in str(told)
                gone = {"root": "root"}.get(params.get("message", {}).get("contextId"))
                if gone is None and "context" not in name and "command" not in name:
                    other = await at.rpc(*calls("nothing", "mine")[name], who=who)
                    assert other["error"]["code"] == told["error"]["code"], name
            await check_rest(at, mine["id"], who)
        for who in ("bob", "eve"):
            listed = await at.rpc("ListTasks", {"contextId": "mine"}, who=who)
            assert (listed["result"]["tasks"], listed["result"]["totalSize"]) == ([], 0)
        assert (await at.rpc("ListTasks"))["error"]["code"] == -32010
        assert (await at.task("GetTask", {"id": mine["id"]}, who="ops"))["id"] == mine["id"]
        assert (await at.rpc("ListTasks", who="ops"))["result"]["totalSize"] == 1
        assert (await at.task("GetTask", {"id": mine["id"]}, who=ANN))["id"] == mine["id"]
        gate.open.set()


async def check_rest(at: Served, task: str, who: str | None) -> None:
    asked = [
        ("GET", f"/rest/tasks/{task}", None),
        ("POST", f"/rest/tasks/{task}:cancel", None),
        ("GET", f"/rest/tasks/{task}:subscribe", None),
        ("POST", "/rest/message:send", message(id="y1", contextId="mine")),
        ("POST", "/rest/message:stream", message(id="y2", contextId="mine")),
        ("POST", "/rest/message:send", message(id="y3", taskId=task)),
    ]
    for method, path, body in asked:
        answer = await at.http.request(method, path, json=body, headers=as_(who))
        assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND"), (method, path)


async def test_f44_two_bearers_of_one_role_share_nothing(tmp_path: Path) -> None:
    async with served(StrictLLM("x"), house(tmp_path)) as at:
        mine = await at.task(params=message(id="same"), who=ANN)
        other = await at.task(params=message(id="same"), who="bob")
        assert mine["id"] != other["id"]
        assert mine["contextId"] != other["contextId"]
        assert (await at.rpc("ListTasks", who=ANN))["result"]["totalSize"] == 1


async def test_anonymous_senders_open_contexts_by_ids_that_nobody_guesses(tmp_path: Path) -> None:
    async with served(StrictLLM("x"), house(tmp_path)) as at:
        assert (await at.rpc("SendMessage", message(contextId="a")))["error"]["code"] == NOT_FOUND
        first = await at.task(params=message(id="m1"))
        again = await at.task(params=message(id="m2", contextId=first["contextId"]))
        assert again["contextId"] == first["contextId"]
        assert (await at.task("GetTask", {"id": first["id"]}))["id"] == first["id"]


async def test_operators_speak_to_the_root(tmp_path: Path) -> None:
    async with served(StrictLLM("at your service"), house(tmp_path)) as at:
        task = await at.task(params=message(contextId="root"), who="ops")
        assert task["contextId"] == "root"


async def test_without_an_identity_nothing_is_answered_but_the_card(tmp_path: Path) -> None:
    async with served(StrictLLM("x"), house(tmp_path, CLOSED)) as at:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic dG9rZW4="},
            {"Authorization": ""},
        ):
            for path in ("/", "/rest/tasks", "/nowhere"):
                answer = await at.http.post(path, json={"jsonrpc": "2.0"}, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        card = (await at.http.get("/.well-known/agent-card.json")).json()
        assert card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"] == "bearer"
        assert card["securityRequirements"] == [{"schemes": {"bearer": {}}}]
        assert all(token not in str(card) for token in TOKENS.values())


async def test_quota_of_a_principal_is_its_own(tmp_path: Path) -> None:
    rules = CLOSED.replace("{id: ann,", "{id: ann, quota: {per: hour, requests: 1},")
    given = {"intelligence__budget__tactic": "refuse"}
    async with served(StrictLLM("x"), house(tmp_path, rules, **given)) as at:
        assert (await at.task(params=message(id="m1"), who=ANN))["status"]["state"] == "TASK_STATE_COMPLETED"
        over = await at.task(params=message(id="m2"), who=ANN)
        assert over["status"]["state"] == "TASK_STATE_REJECTED"
        assert (await at.task(params=message(id="m3"), who="bob"))["status"]["state"] == "TASK_STATE_COMPLETED"
