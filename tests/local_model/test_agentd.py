"""The daemon with a real model behind it: each turn reads what the one before left, over restarts and kills."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentd.config import Settings, load
from agentd.runtime.daemon import Daemon
from agentkit.core.contracts.types import Message
from tests.agentd.daemon.house import Time
from tests.local_model.model import MODEL, ROOT, STANDING, LocalModel, wire_of

pytestmark = [pytest.mark.anyio, pytest.mark.local_model]

QUESTIONS = ("When does the ferry leave?", "Where are tickets sold?", "May my dog come along?", "Who goes free?")
PATHS = {"openai": "/v1", "anthropic": ""}


def settings_of(url: str, folder: Path, dialect: str, *, window: int = 4_096) -> Settings:
    """An agent without tools, which this model knows nothing of, and with a short standing prompt."""
    file = folder / "agent.yaml"
    file.write_text(
        "agent: {name: harbour, preflight: never, tools: {internal: []}}\n"
        f"store: {{path: {folder / 'store'}}}\n"
        f"intelligence: {{endpoints: [{{url: '{url}{PATHS[dialect]}', dialect: {dialect}}}], model: {MODEL},"
        " max_output: 8}\n"
        f"context: {{model_window: {window}, template: '{STANDING}'}}\n"
    )
    return load([file], environ={})


class Talk:
    """What was asked and answered, and what the answers cost."""

    def __init__(self, model: LocalModel) -> None:
        self.model = model
        self.said = [Message("system", STANDING)]

    async def ask(self, agent: Daemon, question: str) -> tuple[int, int]:
        """Tokens of the prompt, and how many of them were read from the cache."""
        task = await agent.ask(question, context="c")
        assert task.state == "completed", task.reason
        self.said += [Message("user", question), Message("assistant", task.text)]
        return task.usage["input"], task.usage["cached"]

    @property
    def kept(self) -> int:
        """Tokens of what was asked last that the next request has too: all but the closing block, which on one wire is
        a part of the user's turn, so that the turn's own end counts to the block."""
        return len(self.model.tokens(wire_of(*self.said[:-1]), open_end=False)) - 2


@pytest.mark.parametrize("dialect", PATHS)
async def test_every_turn_reads_the_one_before_while_clock_and_memory_go_on(
    model: LocalModel, tmp_path: Path, dialect: str
) -> None:
    """Over a restart too: the third turn is that of another process's life."""
    clock, talk = Time(), Talk(model)
    settings, kept = settings_of(model.url, tmp_path, dialect), 0
    for life in range(2):
        async with await Daemon.open(settings, clock=clock) as agent:
            for question in QUESTIONS[life * 2 : life * 2 + 2]:
                whole, read = await talk.ask(agent, question)
                assert kept <= read < whole
                kept = talk.kept
                memory = agent.services.memories.instance
                await memory.commit(await memory.set(f"pier-{len(talk.said)}", "wet"))
                clock.advance(61)
    assert kept > len(model.words(STANDING)) + 60


LIFE = """
import asyncio, sys
from pathlib import Path
from agentd.runtime.daemon import Daemon
from tests.local_model.model import LocalModel
from tests.local_model.test_agentd import QUESTIONS, Talk, settings_of

async def main(url, folder, dialect):
    talk = Talk(LocalModel(url))
    async with await Daemon.open(settings_of(url, Path(folder), dialect)) as agent:
        for question in QUESTIONS[:2]:
            await talk.ask(agent, question)
        print(talk.kept, flush=True)
        sys.stdin.read()

asyncio.run(main(*sys.argv[1:]))
"""


def killed(*arguments: str) -> int:
    """A daemon with two turns behind it, killed while it waits; what of the last request the next one has too."""
    command = [sys.executable, "-c", LIFE, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
    return int(said)


async def test_a_killed_daemon_is_followed_by_one_that_reads_what_it_left(model: LocalModel, tmp_path: Path) -> None:
    kept = killed(model.url, str(tmp_path), "openai")
    async with await Daemon.open(settings_of(model.url, tmp_path, "openai")) as agent:
        whole, read = await Talk(model).ask(agent, QUESTIONS[2])
    assert kept <= read < whole
    assert kept > len(model.words(STANDING)) + 20


async def test_a_refusal_for_length_teaches_the_daemon_the_window(model: LocalModel, tmp_path: Path) -> None:
    """It was told of a larger window than there is. One message alone is too long: its turn fails, all others go on."""
    async with await Daemon.open(settings_of(model.url, tmp_path, "openai", window=16_000)) as agent:
        long = await agent.ask("word " * 5_000, context="c")
        assert (long.state, long.reason.split(":")[0], long.exit) == ("failed", "context_overflow", 3)
        assert agent.services.requests.learned[MODEL] == 4_096
        short = await agent.ask(QUESTIONS[0], context="d")
        assert (short.state, short.exit) == ("completed", 0)
