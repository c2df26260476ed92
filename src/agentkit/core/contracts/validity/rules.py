"""What each provider accepts, as data. Touches only its arguments.

Sources, read in November 2026: the providers' API references and SDK types, and the error texts of their APIs, quoted
where a rule rests on one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, fields
from functools import cached_property

SIMPLE = "a-zA-Z0-9_-"
"""Letters, digits, underscore and dash: what every provider takes in ids and names."""


@dataclass(frozen=True)
class Spelling:
    """How an id or name may be spelled.

    `chars`: what a character may be, as the inside of a regular expression's class, None for any; `longest`: length in
    characters, None for any; `first`: the class of the first character, where it is narrower; `filler` takes the place
    of characters that are not allowed.
    """

    chars: str | None = SIMPLE
    longest: int | None = None
    first: str | None = None
    filler: str = "_"

    def __post_init__(self) -> None:
        if self.longest is not None and self.longest < 16:
            raise ValueError(f"Spelling.longest must be None or at least 16, not {self.longest}")

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        # Any but surrogates where all is allowed: UTF-8 has no form for them.
        chars = "^\ud800-\udfff" if self.chars is None else self.chars
        first = chars if self.first is None else self.first
        return re.compile(f"[{first}][{chars}]*", re.DOTALL)

    @cached_property
    def _refused(self) -> re.Pattern[str]:
        return re.compile("[\ud800-\udfff]" if self.chars is None else f"[^{self.chars}]", re.DOTALL)

    def fits(self, text: str) -> bool:
        """Whether `text` may be sent as it is; never for an empty one."""
        return (self.longest is None or len(text) <= self.longest) and self._pattern.fullmatch(text) is not None

    def fit(self, text: str) -> str:
        """`text` with refused characters replaced, and cut to length with a digest at its end, so that long texts that
        differ stay different. The same object where it fits."""
        if self.fits(text):
            return text
        fitted = self._refused.sub(self.filler, text)
        if not fitted or (self.first is not None and not re.match(f"[{self.first}]", fitted)):
            fitted = self.filler + fitted
        if self.longest is None or len(fitted) <= self.longest:
            return fitted
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return fitted[: self.longest - 9] + self.filler + digest

    def numbered(self, text: str, number: int) -> str:
        """A fitting `text` with a number at its end, `id_2`; its own end gives way where there is no room."""
        tail = f"{self.filler}{number}"
        return (text if self.longest is None else text[: self.longest - len(tail)]) + tail


@dataclass(frozen=True)
class Rules:
    """What a provider accepts in a transcript. `dataclasses.replace` makes a variant, say for a newer model.

    `ids`, `tool_names`: spelling of call ids and tool names; `speakers`: of the `name` of other messages, None where it
    is not sent. `late_system`: system text after the start stays system text. `alternation`: neighbouring user messages
    are joined. Pictures, files and native blocks may stand in results (`media_in_results`), in results that report a
    failure (`media_in_errors`), in assistant messages (`media_in_replies`). `signed_thinking`: thinking must carry a
    signature and may not end a message.

    `provider`: whose native blocks are sent, None: they are not judged; `native`: the types of these, None: all.
    `server_calls`: the provider's own tools have results in blocks of their own; `reasoning_leads`: a reasoning item
    must be followed by what it led to.
    """

    name: str
    ids: Spelling = field(default_factory=Spelling, kw_only=True)
    tool_names: Spelling = field(default_factory=Spelling, kw_only=True)
    speakers: Spelling | None = field(default=None, kw_only=True)
    late_system: bool = field(default=False, kw_only=True)
    alternation: bool = field(default=True, kw_only=True)
    media_in_results: bool = field(default=False, kw_only=True)
    media_in_errors: bool = field(default=False, kw_only=True)
    media_in_replies: bool = field(default=False, kw_only=True)
    signed_thinking: bool = field(default=False, kw_only=True)
    provider: str | None = field(default=None, kw_only=True)
    native: frozenset[str] | None = field(default=None, kw_only=True)
    server_calls: bool = field(default=False, kw_only=True)
    reasoning_leads: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.native is not None:
            object.__setattr__(self, "native", frozenset(self.native))

    @cached_property
    def slots(self) -> tuple[str, str]:
        """Under which names a message keeps what these rules say of it: later on, and in the leading system text."""
        values = [getattr(self, f.name) for f in fields(self)]
        text = repr([sorted(v) if isinstance(v, frozenset) else v for v in values])
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"_valid_{key}", f"_valid_{key}_leading"


STRICT = Rules(
    "strict",
    ids=Spelling(SIMPLE, 40),
    tool_names=Spelling(SIMPLE, 64, first="a-zA-Z_"),
    speakers=Spelling(SIMPLE, 64),
    signed_thinking=True,
)
"""The structure that every provider below accepts: the narrowest of each rule. Native blocks are not judged."""

ANTHROPIC = Rules(
    "anthropic",
    ids=Spelling(SIMPLE, 64),
    tool_names=Spelling(SIMPLE, 128),
    media_in_results=True,
    signed_thinking=True,
    provider="anthropic",
    server_calls=True,
)
"""Anthropic Messages.

- `tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'`, and `tool_use ids must be unique`; no length is
  published, 64 is what gateways in front of it take. `tools.N.custom.name` matches `^[a-zA-Z0-9_-]{1,128}$`.
- `The first message must always use the user role`; `text content blocks must contain non-whitespace text`.
- Results may hold pictures and files, but `all content must be type "text" if "is_error" is true`.
- `thinking.signature: Field required`, a changed block is refused, and `The final block in an assistant message cannot
  be thinking`.
- A server tool's use is refused when it `was found without a corresponding result block`, but for a paused turn, which
  is sent back as it came.
- System text inside `messages` works on some models only (Opus 4.8 was the first), and only behind a user message:
  `replace(ANTHROPIC, late_system=True)` for those who know that it does.
"""

OPENAI_CHAT = Rules(
    "openai-chat",
    ids=Spelling(None, 40),
    tool_names=Spelling(SIMPLE, 64),
    speakers=Spelling(SIMPLE, 64),
    late_system=True,
    alternation=False,
    provider="openai",
    native=frozenset({"file", "input_audio", "refusal"}),
)
"""OpenAI Chat Completions.

- `Invalid 'messages[].tool_calls[].id': string too long. Expected a string with maximum length 40`;
  `tools[].function.name` and `messages[].name` match `^[a-zA-Z0-9_-]+$`, at most 64 characters.
- Content parts by role (API reference): text, image, audio and file from the user, text and refusal from the assistant,
  text alone in tool messages. `Image URLs are only allowed for messages with role 'user'`.
"""

OPENAI_RESPONSES = Rules(
    "openai-responses",
    ids=Spelling(None, 64),
    tool_names=Spelling(SIMPLE, 64),
    late_system=True,
    alternation=False,
    media_in_results=True,
    media_in_errors=True,
    provider="openai",
    reasoning_leads=True,
)
"""OpenAI Responses.

- `Invalid 'input[].call_id': string too long. Expected a string with maximum length 64`. Names as in Chat Completions.
- `function_call_output.output` may be a list of text, image and file parts (API reference).
- `Item 'rs_...' of type 'reasoning' was provided without its required following item`.
"""

GEMINI = Rules(
    "gemini",
    ids=Spelling(None, None),
    tool_names=Spelling("a-zA-Z0-9_.:-", 64, first="a-zA-Z_"),
    media_in_replies=True,
    provider="gemini",
)
"""Gemini `generateContent`; native blocks carry the provider name `gemini`.

- `FunctionDeclaration.name` (API reference): starts with a letter or an underscore; letters, digits, underscores, dots,
  colons and dashes, at most 64. Call ids are optional and of any form.
- `Please ensure that function call turn comes immediately after a user turn or after a function response turn`; as many
  responses as calls. System text is one field beside the contents.
- Media inside a function response needs Gemini 3: `replace(GEMINI, media_in_results=True, media_in_errors=True)`.
"""
