"""The daemon on the wires of real providers, spoken by a fake on loopback that refuses what these refuse."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentd.config import Settings, load
from agentd.runtime.daemon import Daemon
from agentkit.core.contracts.errors import MissingExtraError
from agentkit.core.testing import FakeClock
from agentkit.models.testing.loopback import ForeignHostError
from agentkit.models.testing.provider import Answer, AnswerCall, Exchange, FakeProvider, WireFault

pytestmark = pytest.mark.anyio

WIRES = {
    "anthropic": ("anthropic", "", "claude-sonnet-4-6"),
    "responses": ("openai", "/v1/responses", "gpt-5.6-sol"),
    "chat": ("openai", "/v1", "gpt-4o"),
    "gemini": ("gemini", "/v1beta", "gemini-3-pro"),
}
"""Dialect, path of the URL, model."""


def settings_of(folder: Path, provider: FakeProvider, wire: str, **flags: object) -> Settings:
    dialect, path, model = WIRES[wire]
    file = folder / "agent.yaml"
    file.write_text(
        f"agent: {{name: house, preflight: never}}\nstore: {{path: {folder / 'store'}}}\n"
        f"intelligence: {{endpoints: ['{provider.url}{path}'], dialect: {dialect}, model: {model}, token: {{env: KEY}},"
        " headers: {X-Team: desk}}\n"
    )
    return load([file], environ={"KEY": "secret"}, flags=[(key.replace("__", "."), str(v)) for key, v in flags.items()])


@pytest.fixture(params=list(WIRES))
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_conversation_with_tools_over_a_restart_is_valid_and_cached(tmp_path: Path, wire: str) -> None:
    turn = 0

    def answer(exchange: Exchange) -> Any:
        nonlocal turn
        turn += 1
        if turn % 2:
            return Answer("", calls=(AnswerCall("memory_set", {"key": f"k{turn}", "value": "kept"}),))
        return Answer(f"Answer {turn}: done, and noted.")

    with FakeProvider(answer, api_key="secret") as provider:
        found = settings_of(tmp_path, provider, wire)
        for life in range(2):
            async with await Daemon.open(found) as agent:
                for n in range(4):
                    task = await agent.ask(f"question number {life}-{n}: " + "do it well. " * 40, context="c")
                    assert (task.state, task.exit) == ("completed", 0), task.reason
        sent = list(provider.requests)
    assert [one.status for one in sent] == [200] * 16
    assert all(one.headers["x-team"] == "desk" for one in sent)
    bills = [one.bill for one in sent if one.bill is not None]
    assert len(bills) == 16
    if wire != "gemini":  # whose cache the simulator does not know
        # What was written is read by the next request, also behind a restart; the closing block is never written.
        for before, after in pairwise(bills):
            assert after.read >= before.read + before.write_short, (before, after)


async def test_a_cache_that_was_lost_is_told(tmp_path: Path) -> None:
    """The clock of the provider goes past the lifetime of what it keeps; ours does not."""
    clock = FakeClock()
    with FakeProvider(["Well."], repeat=True, clock=clock) as provider:
        async with await Daemon.open(settings_of(tmp_path, provider, "anthropic")) as agent:
            for n in range(4):
                await agent.ask("go on " * 600, context="c")
                clock.advance(3_600 if n == 2 else 1)
            found = agent.events.since(0)
    assert isinstance(found, list)
    misses = [event.data for event in found if event.name == "cache.miss"]
    assert [(one["segment"], one["cause"], one["read"]) for one in misses] == [(None, "unexplained", 0)]


async def test_a_refusal_for_length_teaches_the_window(tmp_path: Path, wire: str) -> None:
    """The model's window is smaller than the catalogue says: the context is reduced, and the turn goes on."""
    model = WIRES[wire][2]
    with FakeProvider(["Well."], repeat=True, windows={model: 12_000}) as provider:
        async with await Daemon.open(settings_of(tmp_path, provider, wire)) as agent:
            for n in range(24):
                task = await agent.ask(
                    f"Part {n}: " + "a long report of what was seen and said there. " * 60, context="c"
                )
                assert task.state == "completed", task.reason
            assert agent.services.requests.learned[model] > 0
        assert 400 in {one.status for one in provider.requests}


@pytest.mark.parametrize(
    "fault", [WireFault("rate_limit"), WireFault("overloaded"), WireFault("server"), WireFault(cut_after=1)], ids=str
)
async def test_a_passing_fault_is_tried_again(tmp_path: Path, fault: WireFault) -> None:

    async def sleep(seconds: float) -> None:
        """No time passes."""

    with FakeProvider(["Well."], repeat=True, faults=[fault]) as provider:
        async with await Daemon.open(settings_of(tmp_path, provider, "anthropic"), sleep=sleep) as agent:
            assert (await agent.ask("go", context="c")).text == "Well."
        assert len(provider.requests) == 2


async def test_a_wrong_credential_ends_the_turn_and_says_so(tmp_path: Path, wire: str) -> None:
    with FakeProvider(["Well."], api_key="another") as provider:
        async with await Daemon.open(settings_of(tmp_path, provider, wire)) as agent:
            task = await agent.ask("go", context="c")
        assert (task.state, task.exit) == ("failed", 1)
        assert "secret" not in task.reason
        assert len(provider.requests) == 1


async def test_thinking_goes_back_as_it_came(tmp_path: Path) -> None:
    answers = [
        Answer("", thinking="First I look.", calls=(AnswerCall("memory_list", {}),)),
        Answer("There is nothing yet.", thinking="Now I know."),
        Answer("Still nothing."),
    ]
    with FakeProvider(answers) as provider:
        found = settings_of(tmp_path, provider, "anthropic")
        for text in ("what is there?", "and now?"):
            async with await Daemon.open(found) as agent:
                assert (await agent.ask(text, context="c")).state == "completed"
        assert [one.status for one in provider.requests] == [200, 200, 200]
        assert str(provider.last.body).count("'type': 'thinking'") == 2


async def test_loopback_only_forbids_real_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKIT_LOOPBACK_ONLY", "1")
    file = tmp_path / "agent.yaml"
    file.write_text(
        "store: {kind: memory}\nintelligence: {endpoints: ['https://api.anthropic.com'], model: m, token: {env: KEY}}"
    )
    with pytest.raises(ForeignHostError):
        await Daemon.open(load([file], environ={"KEY": "k"}))


async def test_a_missing_library_is_named_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentd.runtime.providers.find_spec", lambda name: None)
    with FakeProvider() as provider, pytest.raises(MissingExtraError, match=r"arc-agentkit\[anthropic\]"):
        await Daemon.open(settings_of(tmp_path, provider, "anthropic"))
