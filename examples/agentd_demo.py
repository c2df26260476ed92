"""Runs a real coding session through agentd, kills the daemon in the middle with SIGKILL, goes on, and talks to it over
A2A: `make run`.

The model and the tools are a recording, so no key is needed; everything else is the real thing: the daemon, its SQLite
store, its compactions. `life` is one process of it; the rest of this script starts such processes and looks into the
store afterwards.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from a2a.client import create_client
from a2a.types.a2a_pb2 import Message as ClientMessage
from a2a.types.a2a_pb2 import Part, Role, SendMessageRequest, TaskState

from agentd.a2a.server import Server
from agentd.config import Settings, load
from agentd.config.values import Address
from agentd.context.messages import message_of
from agentd.context.record import UserMsg
from agentd.runtime.daemon import Daemon
from agentd.runtime.opening import reading
from agentkit.cli import run
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.validity import check
from agentkit.models.adapters.replay import user_turns
from agentkit.transcripts import load as load_transcript

HERE = Path(__file__).resolve().parent
CONFIG = HERE / "agentd" / "replay.yaml"
TRANSCRIPT = HERE / "transcripts" / "worktree-long.jsonl"
CONVERSATION = "worktree"
KILL_IN_TURN = 12


def settings(out: Path) -> Settings:
    return load([CONFIG], environ={}, flags=[("store.path", str(out / "agentd"))])


def said() -> list[str]:
    """What the user of the recorded session said."""
    return [message.content for message in user_turns(load_transcript(TRANSCRIPT)[0].history)]


async def life(out: Path) -> None:
    """One life of the daemon: sends what the user said. Each message has an id, so one that was sent before a crash is
    not taken in twice, and gets the answer that it had, or is still to get."""
    async with await Daemon.open(settings(out), folder=HERE.parent) as agent:
        pending = [item.turn for item in agent.services.inbox.waiting]
        if pending:
            waits = counted(len(pending), "accepted message")
            print(f"     restarted: {waits} not answered yet, taken up behind the last durable step")
        for number, text in enumerate(said(), 1):
            accepted = await agent.send(text, context=CONVERSATION, message_id=f"turn-{number}")
            if accepted.task.is_settled:
                continue
            print(f"{number:>4} > {shortened(text)}", flush=True)
            task = await agent.wait(accepted.task.id)
            status = await agent.command("status", context=CONVERSATION)
            print(
                f"       {task.state} in {counted(task.usage['rounds'], 'round')}; context {status['est_tokens']:,} of "
                f"{status['window']:,} tokens, {status['visible']} of {status['entries']} entries shown, "
                f"version {status['version']}",
                flush=True,
            )


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def shortened(text: str, width: int = 90) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    if process.stdout is not None:
        yield from process.stdout


def start(out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).resolve()), "life", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})


def killed(out: Path) -> None:
    """A life that is killed while it works on a turn."""
    with start(out) as process:
        for line in lines_of(process):
            print(line, end="")
            if line.startswith(f"{KILL_IN_TURN:>4} >"):
                process.send_signal(signal.SIGKILL)
                print("     kill -9: the daemon is gone in the middle of this turn")
                break


def finished(out: Path) -> int:
    """A life to its end; its exit code."""
    with start(out) as process:
        for line in lines_of(process):
            print(line, end="")
    return process.returncode


async def looked_at(out: Path) -> int:
    """What the store holds now. Returns how many things are not as they should be."""
    async with reading(settings(out)) as reader:
        log = await reader.log(CONVERSATION)
        versions = await reader.versions(CONVERSATION)
    sent = [entry.body.message_id for entry in log if isinstance(entry.body, UserMsg)]
    twice = len(sent) - len(set(sent))
    lost = len(said()) - len(set(sent))
    whole = [Message("system", "-"), *(message_of(entry.body) for entry in log if entry.is_message)]
    broken = [problem for problem in check(whole, prefix=1) if problem.code in ("unanswered", "orphan", "duplicate")]
    saved = sum(version.before - version.after for version in versions)
    print(f"\n{len(log)} entries are in the log; nothing is deleted from it.")
    print(f"{len(said())} messages were sent: {lost} lost, {twice} doubled, {len(broken)} calls without their result.")
    print(f"{len(versions) - 1} compactions took {saved:,} tokens out of the requests; each of the versions is kept.")
    return lost + twice + len(broken)


async def spoken_to(out: Path) -> int:
    """The same agent behind its A2A endpoint, asked by the protocol's official client. 0 once it has answered."""
    question = "I see four uncommitted files?"
    async with await Daemon.open(settings(out), folder=HERE.parent) as agent:
        server = Server(agent, Address("127.0.0.1", 0), None)  # what `a2a.listen` does in agentd
        async with server.serving():
            print(f"\nThe same agent over A2A, at {server.url}: JSON-RPC at /, REST at /rest, and its card.")
            client = await create_client(server.url)
            said = ClientMessage(message_id="demo", role=Role.ROLE_USER, parts=[Part(text=question)], context_id="a2a")
            state, answer = "", ""
            async for event in client.send_message(SendMessageRequest(message=said)):
                if event.HasField("artifact_update"):
                    answer = event.artifact_update.artifact.parts[0].text
                if event.HasField("status_update"):
                    state = TaskState.Name(event.status_update.status.state)
            await client.close()
    print(f"     > {question}\n       {state}: {shortened(answer)}")
    return 0 if state == "TASK_STATE_COMPLETED" else 1


def main(out: Path = HERE.parent / "out") -> int:
    """Returns 0 when all messages are there once and each is answered."""
    shutil.rmtree(out / "agentd", ignore_errors=True)
    out.mkdir(exist_ok=True)
    print("A real coding session through agentd, on SQLite, in a window of 20,000 tokens. Each answer is durable.\n")
    killed(out)
    code = finished(out)
    if code:
        return code
    wrong = asyncio.run(looked_at(out)) + asyncio.run(spoken_to(out))
    report = out / "worktree-long.html"
    print("\nAnd where the tokens of the recorded session went:\n")
    code = run(["inspect", shown(TRANSCRIPT), "--html", shown(report)])
    if code:
        return code
    agentd = f".venv/bin/agentd inspect {{}} -c {shown(CONFIG)} --store.path {shown(out / 'agentd')}"
    print(f"Open it in a browser:   {report.as_uri()}")
    print(f"What made each version: {agentd.format(f'versions {CONVERSATION}')}")
    print(f"Find what was folded:   {agentd.format(f'search {CONVERSATION} linter')}")
    return 1 if wrong else 0


def shown(path: Path) -> str:
    """A path as short as the working folder allows."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["life"]:
        asyncio.run(life(Path(sys.argv[2])))
    else:
        sys.exit(main())
