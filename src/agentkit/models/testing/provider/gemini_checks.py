"""What Gemini's `generateContent` refuses. Touches only its arguments.

Judges the body as sent, by shapes and rules of its own. Words are those of the API as of November 2026.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from .shapes import ANY, FLAG, LIST, OBJECT, TEXT, Desk, Shape, is_kind, shape
from .values import Refused

REQUEST = shape(
    "contents",
    contents=LIST,
    systemInstruction=OBJECT,
    tools=LIST,
    toolConfig=OBJECT,
    generationConfig=OBJECT,
    safetySettings=LIST,
    cachedContent=TEXT,
    labels=OBJECT,
    serviceTier=TEXT,
    store=FLAG,
)
CONTENT = shape("parts", role=TEXT, parts=LIST)
PART = shape(
    text=TEXT,
    thought=FLAG,
    thoughtSignature=TEXT,
    inlineData=OBJECT,
    fileData=OBJECT,
    functionCall=OBJECT,
    functionResponse=OBJECT,
    executableCode=OBJECT,
    codeExecutionResult=OBJECT,
    toolCall=OBJECT,
    toolResponse=OBJECT,
    videoMetadata=OBJECT,
    mediaResolution=ANY,
    partMetadata=OBJECT,
)
CALL = shape("name", id=TEXT, name=TEXT, args=OBJECT, partialArgs=LIST, willContinue=FLAG)
RESPONSE = shape("name response", id=TEXT, name=TEXT, response=OBJECT, parts=LIST, willContinue=FLAG, scheduling=TEXT)
DECLARATION = shape(
    "name",
    name=TEXT,
    description=TEXT,
    parameters=OBJECT,
    parametersJsonSchema=ANY,
    response=OBJECT,
    responseJsonSchema=ANY,
    behavior=TEXT,
)
_SETTINGS = frozenset(
    [
        "temperature",
        "topP",
        "topK",
        "candidateCount",
        "maxOutputTokens",
        "stopSequences",
        "responseMimeType",
        "responseSchema",
        "responseJsonSchema",
        "responseFormat",
        "presencePenalty",
        "frequencyPenalty",
        "seed",
        "responseLogprobs",
        "logprobs",
        "thinkingConfig",
        "mediaResolution",
        "responseModalities",
        "speechConfig",
        "imageConfig",
        "routingConfig",
        "modelSelectionConfig",
        "audioTimestamp",
        "enableAffectiveDialog",
        "enableEnhancedCivicAnswers",
    ]
)
_DATA = frozenset(PART.kinds) - {"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"}
WAIVERS = frozenset({"context_engineering_is_the_way_to_go", "skip_thought_signature_validator"})
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
STATES = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND"}


def error(status: int, state: str, message: str) -> Refused:
    """A refusal in Google's form."""
    return Refused(status, {"error": {"code": status, "message": message, "status": state}})


_FREE = frozenset(
    ["args", "labels", "parameters", "parametersJsonSchema", "response", "responseJsonSchema", "responseSchema"]
)
"""Fields whose own keys are the caller's."""


def canonical(value: Any) -> Any:
    """A body with its field names in camel case: the API takes `function_call` as well as `functionCall`."""
    if isinstance(value, list):
        return [canonical(one) for one in value]
    if not isinstance(value, dict):
        return value
    named = {re.sub(r"_([a-z])", lambda found: found[1].upper(), name): one for name, one in value.items()}
    return {name: one if name in _FREE else canonical(one) for name, one in named.items()}


def check(body: Any, desk: Desk, *, counting: bool = False) -> None:
    """Raises Refused for a request that is not taken. `counting`: it asks for the number of tokens only, and may hold
    the request to be counted in a field of its own."""
    if counting and isinstance(body, dict) and "generateContentRequest" in body:
        body = {key: value for key, value in body["generateContentRequest"].items() if key != "model"}
    asked = canonical({key: value for key, value in body.items() if key != "model"}) if isinstance(body, dict) else body
    _shaped(asked, REQUEST, "")
    if desk.models is not None and body.get("model") not in desk.models:
        raise error(404, "NOT_FOUND", f"models/{body.get('model')} is not found for API version v1beta.")
    if not asked["contents"]:
        _no("* GenerateContentRequest.contents: contents is not specified")
    for name in asked.get("generationConfig", {}):
        if name not in _SETTINGS:
            _unknown(name, "generation_config")
    _check_tools(asked.get("tools", []))
    if "systemInstruction" in asked:
        _check_content({"role": "user", **asked["systemInstruction"]}, "system_instruction", desk)
    for at, content in enumerate(asked["contents"]):
        _check_content(content, f"contents[{at}]", desk)
    _check_calls(asked["contents"])
    if needs_signatures(body.get("model", "")):
        _check_signatures(asked["contents"])


def _no(message: str) -> NoReturn:
    raise error(400, "INVALID_ARGUMENT", message)


def _unknown(name: str, place: str) -> NoReturn:
    _no(f'Invalid JSON payload received. Unknown name "{name}"{f" at {place!r}" if place else ""}: Cannot find field.')


def _shaped(value: Any, wanted: Shape, place: str) -> None:
    if not isinstance(value, dict):
        _no(f"Invalid value at '{place}': an object is expected")
    for name, one in value.items():
        if name not in wanted.kinds:
            _unknown(name, place)
        if not is_kind(one, wanted.kinds[name]):
            _no(f"Invalid value at '{place or name}' ({name}): {wanted.kinds[name]} is expected")
    for name in wanted.required:
        if name not in value:
            _no(f"* GenerateContentRequest.{place + '.' if place else ''}{name}: {name} is not specified")


def _check_tools(tools: list[Any]) -> None:
    names: set[str] = set()
    for at, tool in enumerate(tools):
        for number, one in enumerate(tool.get("functionDeclarations", []) if isinstance(tool, dict) else []):
            place = f"tools[{at}].function_declarations[{number}]"
            _shaped(one, DECLARATION, place)
            if not _NAME.fullmatch(one["name"]):
                _no(
                    f"* GenerateContentRequest.{place}.name: Invalid function name. Must start with a letter or an "
                    "underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or "
                    "dashes (-), with a maximum length of 64."
                )
            if one["name"] in names:
                _no(f"Duplicate function declaration found: {one['name']}")
            names.add(one["name"])


def _check_content(content: Any, place: str, desk: Desk) -> None:
    _shaped(content, CONTENT, place)
    if content.get("role", "user") not in ("user", "model", "function"):
        _no("Please use a valid role: user, model.")
    if not content["parts"]:
        _no(f"* GenerateContentRequest.{place}.parts: contents.parts must not be empty.")
    for at, part in enumerate(content["parts"]):
        inside = f"{place}.parts[{at}]"
        _shaped(part, PART, inside)
        data = _DATA & set(part)
        if not data and "thoughtSignature" not in part:
            _no(f"* GenerateContentRequest.{inside}.data: required oneof field 'data' must have one initialized field")
        if len(data) > 1:
            _no(f"Invalid value at '{inside}': oneof field 'data' is already set. Cannot set '{sorted(data)[-1]}'")
        if "functionCall" in part:
            _shaped(part["functionCall"], CALL, f"{inside}.function_call")
        if "functionResponse" in part:
            _shaped(part["functionResponse"], RESPONSE, f"{inside}.function_response")
        signature = part.get("thoughtSignature")
        if signature is not None and not _is_waived(signature) and desk.seal.opened(signature) is None:
            _no(f"Thought signature is not valid. ({inside})")


def _check_calls(contents: list[Any]) -> None:
    waiting = 0
    before: str | None = None
    for content in contents:
        parts = content["parts"]
        calls = sum("functionCall" in part for part in parts)
        results = sum("functionResponse" in part for part in parts)
        if results != waiting:
            _no(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        if calls and (content.get("role") != "model" or before not in ("user", "function")):
            _no(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        if results and content.get("role", "user") == "model":
            _no("Please ensure that function response turn comes immediately after a function call turn.")
        waiting, before = calls, content.get("role", "user")
    if waiting:
        _no(
            "Please ensure that the number of function response parts is equal to the number of function call parts of "
            "the function call turn."
        )


def needs_signatures(model: str) -> bool:
    """Whether a model refuses calls of the current turn without the thought signature that it gave them."""
    return re.match(r"gemini-[3-9]", model) is not None


def _is_waived(signature: str) -> bool:
    """Whether it is one of the texts that the documentation names for calls that another model made."""
    try:
        plain = base64.b64decode(signature.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        plain = b""
    return WAIVERS & {signature, plain.decode("latin-1")} != set()


def _check_signatures(contents: list[Any]) -> None:
    """The first call of each step behind what the user said last needs its signature."""
    start = 0
    for at, content in enumerate(contents):
        if content.get("role", "user") == "user" and not any("functionResponse" in part for part in content["parts"]):
            start = at
    for at, content in enumerate(contents[start:], start):
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        if first is not None and "thoughtSignature" not in first:
            _no(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `default_api:{first['functionCall']['name']}`, position {at + 1}."
            )


def check_size(body: Mapping[str, Any], tokens: int, desk: Desk) -> None:
    """Refuses a prompt that does not fit into the model's window."""
    window = desk.windows(body["model"])
    if window is not None and tokens > window:
        _no(f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window}).")
