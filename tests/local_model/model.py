"""The real model on loopback as the tests see it: its address, exact counts, and adapters in front of it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import anthropic
import httpx2
import openai

from agentkit.core.contracts.ports import LLM
from agentkit.core.contracts.types import Message
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from tests.models.adapters.served import ONCE

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-model/bin/python"
MODEL = "smollm2-135m"
PATIENCE = 60.0
"""Seconds within which the server has to be listening."""

STANDING = (
    "You answer questions about the harbour in one short sentence. The ferry to the island leaves the long pier at "
    "nine in the morning and comes back at noon, on weekdays only. Tickets are sold in the red house beside the "
    "lighthouse; children under six go free, and so do bicycles that fold. Dogs have to stay on the lower deck. When "
    "the wind is above eight, nothing leaves before the harbour master has raised the green flag again."
)
"""Standing text of most tests, the same in all, so that it is computed once."""


@dataclass(frozen=True)
class LocalModel:
    """A running server. `url` is the base of Anthropic's clients."""

    url: str

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON answer to a JSON body."""
        request = Request(self.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
        with urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def tokens(self, messages: Sequence[Mapping[str, Any]], *, open_end: bool = True) -> list[int]:
        """What the model reads for these messages. `open_end`: with the opening of its own turn behind them."""
        body = {"messages": list(messages), "add_generation_prompt": open_end}
        prompt = self.post("/apply-template", body)["prompt"]
        return self.words(prompt)

    def words(self, text: str) -> list[int]:
        """The tokens of a text, those of the template included."""
        asked = {"content": text, "add_special": True, "parse_special": True}
        found: list[int] = self.post("/tokenize", asked)["tokens"]
        return found

    def chat(self) -> OpenAIChatLLM:
        return OpenAIChatLLM(self.openai(), model=MODEL, provider="llama.cpp")

    def responses(self) -> OpenAIResponsesLLM:
        return OpenAIResponsesLLM(self.openai(), model=MODEL, provider="llama.cpp")

    def messages(self) -> AnthropicLLM:
        http = httpx2.AsyncClient(limits=ONCE, verify=False)
        client = anthropic.AsyncAnthropic(api_key="none", base_url=self.url, http_client=http)
        return AnthropicLLM(client, model=MODEL)

    def on(self, wire: str) -> LLM:
        """An adapter by wire: chat, anthropic or responses."""
        made: dict[str, LLM] = {"chat": self.chat(), "anthropic": self.messages(), "responses": self.responses()}
        return made[wire]

    def openai(self) -> openai.AsyncOpenAI:
        http = httpx2.AsyncClient(limits=ONCE, verify=False)
        return openai.AsyncOpenAI(api_key="none", base_url=f"{self.url}/v1", http_client=http)


@contextmanager
def served(folder: Path) -> Iterator[LocalModel]:
    """The server, for as long as it is needed. `folder` gets its log. AssertionError where it does not come up."""
    assert PYTHON.exists(), f"{PYTHON} is missing: `make test-model` installs what these tests need"
    log = folder / "server.log"
    with log.open("w") as errors:
        command = [PYTHON, Path(__file__).with_name("serve.py")]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder
        )
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        try:
            address = process.stdout.readline().strip()
            watchdog.cancel()
            assert address.startswith("http://127.0.0.1:"), f"the server did not come up:\n{log.read_text()[-2_000:]}"
            yield LocalModel(address)
        finally:
            watchdog.cancel()
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def wire_of(*messages: Message) -> list[dict[str, Any]]:
    """Messages of plain texts as the template takes them."""
    return [{"role": message.role, "content": message.content} for message in messages]


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
