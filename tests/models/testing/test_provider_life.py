"""The fake provider's life: in a thread, as a process, under load, and gone afterwards."""

from __future__ import annotations

import gc
import json
import socket
import subprocess
import sys
import threading
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anthropic
import anyio
import openai
import pytest

from agentkit.core.contracts.errors import FormatError
from agentkit.models.testing.provider import Answer, Exchange, FakeProvider
from agentkit.models.testing.provider.__main__ import main
from tests.models.testing.posts import HEADERS, post

CLAUDE, GPT = "claude-sonnet-4-6", "gpt-5.6-sol"
HI: list[Any] = [{"role": "user", "content": "hi"}]
BODY: dict[str, Any] = {"model": CLAUDE, "max_tokens": 99, "messages": HI}


def connect(provider: FakeProvider) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(provider.url.rpartition(":")[2])), timeout=20)


@pytest.mark.anyio
async def test_fifty_requests_at_once() -> None:
    """Each gets its own answer; whatever came in between, the log has them all."""

    def answer(exchange: Exchange) -> Answer:
        body = exchange.body
        said = body["messages"][0]["content"] if "messages" in body else body["input"]
        return Answer(f"You said {said}.")

    answers: dict[int, str] = {}
    with FakeProvider(answer) as provider:
        async with (
            anthropic.AsyncAnthropic(api_key="k", base_url=provider.url, max_retries=0) as claude,
            openai.AsyncOpenAI(api_key="k", base_url=provider.openai_url, max_retries=0) as gpt,
            anyio.create_task_group() as group,
        ):

            async def ask(number: int) -> None:
                if number % 3 == 0:
                    async with claude.messages.stream(
                        model=CLAUDE, max_tokens=99, messages=[{"role": "user", "content": f"{number}"}]
                    ) as stream:
                        answers[number] = await stream.get_final_text()
                elif number % 3 == 1:
                    chat = await gpt.chat.completions.create(
                        model=GPT, messages=[{"role": "user", "content": f"{number}"}]
                    )
                    answers[number] = chat.choices[0].message.content or ""
                else:
                    answers[number] = (await gpt.responses.create(model=GPT, input=f"{number}")).output_text

            for number in range(50):
                group.start_soon(ask, number)
    assert answers == {number: f"You said {number}." for number in range(50)}
    assert len(provider.requests) == 50


def test_nothing_is_left_behind() -> None:
    threads = threading.active_count()
    with FakeProvider() as provider:
        port = int(provider.url.rpartition(":")[2])
        with anthropic.Anthropic(api_key="k", base_url=provider.url) as client, connect(provider):
            client.messages.create(**BODY)
    assert threading.active_count() == threads
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    provider.close()
    gc.collect()  # a socket or a loop that nobody closed would warn here, which fails the test


def test_many_may_be_open_side_by_side() -> None:
    with FakeProvider(["one"]) as one, FakeProvider(["two"]) as two:
        texts = [post(provider, "/v1/messages", BODY)[1]["content"][0]["text"] for provider in (one, two)]
    assert texts == ["one", "two"]


def test_same_requests_give_the_same_bytes() -> None:
    raw = []
    for _ in range(2):
        with FakeProvider([Answer("a", thinking="b")]) as provider:
            raw.append(json.dumps(post(provider, "/v1/messages", BODY)[1]))
    assert raw[0] == raw[1]


def test_connection_is_kept_for_the_next_request() -> None:
    with FakeProvider() as provider:
        connection = HTTPConnection("127.0.0.1", int(provider.url.rpartition(":")[2]), timeout=20)
        for _ in range(3):
            connection.request("POST", "/v1/messages", json.dumps(BODY), HEADERS)
            assert json.loads(connection.getresponse().read())["type"] == "message"
        local = connection.sock.getsockname()
        assert local[0] == "127.0.0.1"
        connection.close()
        assert len(provider.requests) == 3


def test_body_may_come_in_chunks() -> None:
    raw = json.dumps(BODY).encode()
    with FakeProvider() as provider:
        connection = HTTPConnection("127.0.0.1", int(provider.url.rpartition(":")[2]), timeout=20)
        connection.request("POST", "/v1/messages", iter([raw[:9], raw[9:]]), HEADERS, encode_chunked=True)
        assert connection.getresponse().status == 200
        connection.close()
        assert provider.last.raw == raw


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_is_answered_and_closed(raw: bytes) -> None:
    with FakeProvider() as provider:
        with connect(provider) as client:
            client.sendall(raw)
            answer = b""
            try:
                while piece := client.recv(4096):
                    answer += piece
            except ConnectionResetError:
                pass  # what was not read of a long head resets the connection behind the answer
        assert answer.startswith(b"HTTP/1.1 4") or not answer
        assert post(provider, "/v1/messages", BODY)[0] == 200


def test_client_that_leaves_is_no_matter() -> None:
    with FakeProvider(repeat=True, answers=["x" * 100_000]) as provider:
        raw = json.dumps({**BODY, "stream": True}).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        with connect(provider) as client:
            client.sendall(f"POST /v1/messages HTTP/1.1\r\n{head}content-length: {len(raw)}\r\n\r\n".encode() + raw)
            client.recv(100)
        with connect(provider) as client:
            client.sendall(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 5\r\n\r\n{")
        assert post(provider, "/v1/messages", BODY)[0] == 200


def test_log_may_be_bounded() -> None:
    with FakeProvider(keep=2) as provider:
        for _ in range(5):
            post(provider, "/v1/messages", BODY)
    assert len(provider.requests) == 2


def test_script_that_ends_says_so() -> None:
    with FakeProvider(["one"]) as provider:
        post(provider, "/v1/messages", BODY)
        status, answer = post(provider, "/v1/messages", BODY)
    assert status == 400
    assert "the script of this fake provider is at its end: it has 1 answers" in answer["error"]["message"]


def test_address_is_known_once_it_is_open() -> None:
    with pytest.raises(ValueError, match="use it in a `with` block"):
        _ = FakeProvider().url


def test_taken_port_is_told() -> None:
    with FakeProvider() as provider, pytest.raises(OSError, match="in use"):
        FakeProvider(port=int(provider.url.rpartition(":")[2])).open()


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([7], r"answers\[0\] must be a text or a mapping, not int"),
        ([{"words": "x"}], r"answers\[0\]: words is not known here"),
        ([{"calls": [{"tool": "x"}]}], r"answers\[0\].calls\[0\]: tool is not known here"),
        ([{"usage": {"input": 3}}], r"answers\[0\].usage: input is not known"),
    ],
)
def test_answers_that_cannot_be_read_are_refused(answers: Any, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        FakeProvider(answers)


def started(script: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", "agentkit.models.testing.provider", "--script", str(script)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_process_serves_until_its_input_is_closed(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps({"answers": [{"text": "From afar.", "calls": [{"name": "look"}]}], "faults": ["server"]})
    )
    with started(script) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client:
            with pytest.raises(anthropic.InternalServerError):
                client.messages.create(**BODY)
            message = client.messages.create(**BODY)
        assert [block.type for block in message.content] == ["text", "tool_use"]
        out, error = process.communicate(timeout=20)
    assert (out, error, process.returncode) == ("", "", 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "the script is not JSON"),
        ("[]", "a script is a JSON object, not list"),
        ('{"answer": 1}', "answer is not known"),
    ],
)
def test_script_that_cannot_be_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    script = tmp_path / "script.json"
    script.write_text(text)
    assert main(["--script", str(script)]) == 2
    assert words in capsys.readouterr().err
    assert main([]) == 2
    assert "usage: python -m agentkit.models.testing.provider --script FILE" in capsys.readouterr().err
