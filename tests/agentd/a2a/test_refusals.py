"""What is refused, with which code: malformed, too large, too fast, from elsewhere, of another version."""

import asyncio
import json
from typing import Any

import pytest

from agentd.config.values import Rate
from tests.agentd.a2a.serving import Gate, Served, message, served
from tests.agentd.daemon.house import House, StrictLLM

pytestmark = pytest.mark.anyio


async def post(at: Served, body: str | bytes, path: str = "/", **headers: str) -> tuple[int, Any]:
    answer = await at.http.post(path, content=body, headers=headers)
    told = answer.json()
    return answer.status_code, told["error"]["code"]


RPC: dict[str, tuple[str | bytes, int]] = {
    "nothing": ("", -32700),
    "no JSON": ("{", -32700),
    "no UTF-8": (b"\xff\xfe", -32700),
    "no number of JSON": ('{"id": NaN}', -32700),
    "too deep": ("[" * 100_000, -32700),
    "deep": ('{"a":' * 150 + "1" + "}" * 150, -32700),
    "too many values": (json.dumps([0] * 30_000), -32700),
    "a list": ("[]", -32600),
    "a batch": ('[{"jsonrpc": "2.0", "method": "GetTask", "id": 1}]', -32600),
    "null": ("null", -32600),
    "no version": ('{"id": 1, "method": "GetTask"}', -32600),
    "no method": ('{"jsonrpc": "2.0", "id": 1}', -32600),
    "a method that is a number": ('{"jsonrpc": "2.0", "id": 1, "method": 3}', -32600),
    "an id that is a list": ('{"jsonrpc": "2.0", "id": [], "method": "GetTask"}', -32600),
    "unknown method": ('{"jsonrpc": "2.0", "id": 1, "method": "Nope"}', -32601),
    "params a list": ('{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": ["x"]}', -32602),
    "params a text": ('{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": "x"}', -32602),
    "params null": ('{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": null}', -32602),
    "params missing": ('{"jsonrpc": "2.0", "id": 1, "method": "GetTask"}', -32602),
    "message no object": ('{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": 3}}', -32602),
    "message empty": ('{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {}}}', -32602),
    "infinite": (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {
        "messageId": "m", "role": "ROLE_USER", "parts": [{"data": "@"}]}}}).replace('"@"', "1e999"), -32602),
    "blank": (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("  ")}), -32602),
    "0.3 params": ('{"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": 3}}', -32600),
}  # fmt: skip


async def test_f46_malformed_requests_are_error_replies() -> None:
    async with served(StrictLLM("fine"), limits__requests="100000/1s") as at:  # hundreds at once are no matter here
        for name, (body, code) in RPC.items():
            status, found = await post(at, body)
            assert (status, found) == (200, code), name
        for body, expected in (("", 400), ("{", 400), ("[]", 400), ('{"message": 3}', 400), ('{"message": {}}', 400)):
            assert (await post(at, body, "/rest/message:send"))[0] == expected, body
        paths = {
            "tasks?pageSize=x": 400, "tasks?pageSize=0": 400, "none": 404, "tasks/%00": 404, f"tasks/{'x' * 2000}": 404,
            "tasks?statusTimestampAfter=no": 400, "../x": 404,
        }  # fmt: skip
        for path, expected in paths.items():
            assert (await at.http.get(f"/rest/{path}")).status_code == expected, path
        assert (await at.http.get("/")).status_code == 405
        for n in range(300):
            assert (await at.rpc(f"Unknown{n}"))["error"]["code"] == -32601
        assert (await at.task(params=message()))["status"]["state"] == "TASK_STATE_COMPLETED"
        assert len(at.agent.services.inbox) == 0


async def test_bodies_over_the_limit_are_not_read() -> None:
    async with served(StrictLLM("x"), security__max_body="1kB") as at:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("y" * 2000)})
        assert await post(at, body) == (413, -32600)

        async def chunks() -> Any:
            for at_byte in range(0, len(body), 100):
                yield body[at_byte : at_byte + 100].encode()

        answer = await at.http.post("/", content=chunks())
        assert answer.status_code == 413
        assert (await at.task(params=message("y")))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_requests_over_the_rate_are_told_when_to_come_again() -> None:
    async with served(StrictLLM("x"), limits__requests="2/1h") as at:
        for _ in range(2):
            assert (await at.rpc("GetTask", {"id": "none"}))["error"]["code"] == -32001
        told = await at.rpc("GetTask", {"id": "none"})
        assert (told["id"], told["error"]["code"]) == (7, -32011)
        assert 0 < told["error"]["data"][0]["metadata"]["retry_after"] <= 1800
        answer = await at.http.get("/rest/tasks")
        assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (429, True)
        assert (await at.http.get("/.well-known/agent-card.json")).status_code == 200


async def test_full_inbox_and_waiting_requests_are_limited() -> None:
    gate = Gate()
    async with served(gate.model, limits__inbox="2", limits__waiting_requests="2") as at:
        one = asyncio.create_task(at.task(params=message(id="m1")))
        two = asyncio.create_task(at.task(params=message(id="m2")))
        await at.agent.events.wait_event("turn.round")
        accepted = await at.agent.events.wait_event("inbox.accepted")
        await at.agent.events.wait_event("inbox.accepted", after=accepted.seq)
        over = await at.rpc("SendMessage", message(id="m3"))
        assert (over["error"]["code"], "waiting_requests" in over["error"]["message"]) == (-32011, True)
        assert (await at.rpc("ListTasks"))["result"]["totalSize"] == 2
        gate.open.set()
        await asyncio.gather(one, two)
        assert (await at.task(params=message(id="m3")))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_pages_of_other_origins_are_refused() -> None:
    async with served(StrictLLM("x")) as at:
        origins = {"https://evil.example": 403, "null": 403, "http://[": 403, "http://localhost:3000": 200, at.url: 200}
        for origin, status in origins.items():
            answer = await at.http.post(
                "/", json={"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}, headers={"Origin": origin}
            )
            assert answer.status_code == status, origin


@pytest.mark.parametrize("compat", [True, False])
async def test_versions_of_the_protocol(compat: bool) -> None:
    """Specification 3.6: 1.0 by name or header; 0.3 where `a2a.compat_0_3` is on."""
    async with served(StrictLLM("x"), a2a__compat_0_3=str(compat).lower()) as at:
        assert (await at.task(params=message(), **{"A2A-Version": "1.0"}))["status"]["state"] == "TASK_STATE_COMPLETED"
        assert (await at.rpc("GetTask", {"id": "x"}, **{"A2A-Version": "7.0"}))["error"]["code"] == -32009
        old = {
            "message": {
                "kind": "message",
                "messageId": "old",
                "role": "user",
                "parts": [{"kind": "text", "text": "hi"}],
            }
        }
        told = await at.rpc("message/send", old)
        card = (await at.http.get("/.well-known/agent-card.json")).json()
        versions = {one["protocolVersion"] for one in card["supportedInterfaces"]}
        if compat:
            assert told["result"]["status"]["state"] == "completed"
            assert told["result"]["kind"] == "task"
            assert (await at.rpc("tasks/get", {"id": "x"}))["error"]["code"] == -32001
            assert versions == {"1.0", "0.3"}
        else:
            assert told["error"]["code"] == -32601
            assert versions == {"1.0"}


async def test_card_claims_what_works_and_nothing_more() -> None:
    """No push, no extended card: -32003 and -32004 for what is not there."""
    async with served(StrictLLM("x")) as at:
        card = (await at.http.get("/.well-known/agent-card.json")).json()
        assert card["capabilities"] == {"streaming": True, "pushNotifications": False, "extendedAgentCard": False}
        task = await at.task(params=message())
        config = {"taskId": task["id"], "url": "http://127.0.0.1:1/", "id": "1"}
        for method, params in (
            ("CreateTaskPushNotificationConfig", config), ("GetTaskPushNotificationConfig", config),
            ("ListTaskPushNotificationConfigs", {"taskId": task["id"]}), ("DeleteTaskPushNotificationConfig", config),
        ):  # fmt: skip
            assert (await at.rpc(method, params))["error"]["code"] == -32003, method
        asking = {**message(id="p"), "configuration": {"taskPushNotificationConfig": {"url": "http://127.0.0.1:1/"}}}
        assert (await at.rpc("SendMessage", asking))["error"]["code"] == -32003
        assert (await at.rpc("GetExtendedAgentCard"))["error"]["code"] == -32004


async def test_full_disk_and_damage_are_told_without_a_trace() -> None:
    house = House()
    async with served(StrictLLM("x"), house) as at:
        at.agent._opened.require_room = lambda: (_ for _ in ()).throw(at_no_room())  # type: ignore[method-assign]
        told = await at.rpc("SendMessage", message())
        assert told["error"]["code"] == -32011
        assert "disk" not in told["error"]["message"]


def at_no_room() -> Exception:
    from agentd.records.opening import NoRoom

    return NoRoom("the disk with /secret/path is full")


def test_bucket_fills_again() -> None:
    from datetime import timedelta

    from agentd.a2a.rates import Buckets

    now = [0.0]
    buckets, rate = Buckets(lambda: now[0]), Rate(2, timedelta(seconds=1))
    assert [buckets.take("a", rate), buckets.take("a", rate)] == [0, 0]
    assert buckets.take("a", rate) == pytest.approx(0.5)
    assert buckets.take("b", rate) == 0
    now[0] = 0.5
    assert buckets.take("a", rate) == 0
    now[0] = 100
    assert [buckets.take("a", rate) for _ in range(3)] == [0, 0, pytest.approx(0.5)]
