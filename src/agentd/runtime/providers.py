"""The models of providers, and of servers that speak like them: a client of the provider's own library for each
endpoint, made with the first call. Touches the network through these clients alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from agentkit.core.contracts.errors import MissingExtraError
from agentkit.core.contracts.ports import LLM
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.models.testing.loopback import require_loopback

from .endpoints import Where

NO_CREDENTIAL: Final = "none"
"""What a client is given that insists on a credential where none is configured, as for a server of one's own."""

SPEAKERS: Final[Mapping[str, str]] = {
    "api.openai.com": "openai",
    "api.deepseek.com": "deepseek",
    "api.x.ai": "xai",
    "api.mistral.ai": "mistral",
    "openrouter.ai": "openrouter",
    "api.groq.com": "groq",
}
"""Whose departures from OpenAI's chat completions hold at a host; at any other those of no provider."""

Close: TypeAlias = Callable[[], Awaitable[Any]]
Make: TypeAlias = Callable[[], tuple[LLM, Close]]
"""The model, and what closes its client."""


class LazyLLM:
    """A model whose client is made with the first call: its library takes a second to import."""

    repairs = True
    """Adapters see to it themselves that their provider takes the transcript."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._made: tuple[LLM, Close] | None = None

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        return await self._model().chat(request)

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        deltas: Any = self._model().stream(request)
        async with aclosing(deltas):
            async for delta in deltas:
                yield delta

    def _model(self) -> LLM:
        if self._made is None:
            self._made = self._make()
        return self._made[0]

    async def aclose(self) -> None:
        """Close the connections; a later call makes a new client."""
        made, self._made = self._made, None
        if made is not None:
            await made[1]()


def open_anthropic(where: Where) -> LLM:
    """Anthropic's Messages API, or a server that speaks it. MissingExtraError without the library."""
    require_loopback(where.url)
    _require("anthropic", "anthropic", where)

    def make() -> tuple[LLM, Close]:
        from anthropic import AsyncAnthropic

        from agentkit.models.adapters.anthropic import AnthropicLLM

        # The client adds `/v1` itself.
        url = _without_end(where.url, "/v1")
        client = AsyncAnthropic(
            api_key=where.token or NO_CREDENTIAL, base_url=url, default_headers=where.headers, max_retries=0
        )
        llm = AnthropicLLM(client, model=where.model, max_tokens=where.max_output, timeout=where.timeout)
        return llm, client.close

    return LazyLLM(make)


def open_openai(where: Where) -> LLM:
    """OpenAI's responses at OpenAI itself and where the URL ends in `/responses`; chat completions, which other servers
    speak, everywhere else. MissingExtraError without the library."""
    require_loopback(where.url)
    _require("openai", "openai", where)
    host = urlsplit(where.url).hostname or ""
    url = _without_end(_without_end(where.url, "/responses"), "/chat/completions")
    if host == "api.openai.com" and urlsplit(url).path in ("", "/"):
        url = url.rstrip("/") + "/v1"
    is_responses = where.url.rstrip("/").endswith("/responses") or (
        host == "api.openai.com" and not where.url.rstrip("/").endswith("/chat/completions")
    )

    def make() -> tuple[LLM, Close]:
        from openai import AsyncOpenAI

        client = AsyncOpenAI(
            api_key=where.token or NO_CREDENTIAL, base_url=url, default_headers=where.headers, max_retries=0
        )
        if is_responses:
            from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM

            return OpenAIResponsesLLM(client, model=where.model, timeout=where.timeout), client.close
        from agentkit.models.adapters.openai_chat import OpenAIChatLLM

        provider = SPEAKERS.get(host, "azure" if host.endswith(".openai.azure.com") else "compatible")
        return OpenAIChatLLM(client, model=where.model, provider=provider, timeout=where.timeout), client.close

    return LazyLLM(make)


def open_gemini(where: Where) -> LLM:
    """Gemini's `generateContent`. MissingExtraError without the library."""
    require_loopback(where.url)
    _require("google", "google.genai", where)

    def make() -> tuple[LLM, Close]:
        from google.genai import Client
        from google.genai.types import HttpOptions

        from agentkit.models.adapters.gemini import GeminiLLM

        parts = urlsplit(where.url)
        path, _, last = parts.path.rstrip("/").rpartition("/")
        is_version = last.startswith("v") and last[1:2].isdigit()
        options = HttpOptions(
            base_url=urlunsplit(parts._replace(path=path if is_version else parts.path)),
            api_version=last if is_version else None,
            headers=dict(where.headers),
        )
        client = Client(api_key=where.token or NO_CREDENTIAL, http_options=options)
        return GeminiLLM(client, model=where.model, timeout=where.timeout), client.aio.aclose

    return LazyLLM(make)


def _require(extra: str, package: str, where: Where) -> None:
    """Looked for, not imported: a start should not take as long as a first call."""
    top = package.partition(".")[0]
    if find_spec(top) is None or (top != package and find_spec(package) is None):
        raise MissingExtraError(extra, package, f"the endpoint {where.url}")


def _without_end(url: str, end: str) -> str:
    bare = url.rstrip("/")
    return bare[: -len(end)] if bare.endswith(end) else bare
