"""The fields of an Anthropic request, with their kinds. Source: the API reference, November 2026."""

from __future__ import annotations

from collections.abc import Mapping

from .shapes import ANY, FLAG, INTEGER, LIST, NUMBER, OBJECT, TEXT, Shape, shape

NULL = "|null"
_MARK = {"cache_control": OBJECT + NULL}

REQUEST = shape(
    "model max_tokens messages",
    model=TEXT,
    max_tokens=INTEGER,
    messages=LIST,
    system=f"{TEXT}|{LIST}",
    tools=LIST,
    tool_choice=OBJECT,
    temperature=NUMBER,
    top_p=NUMBER,
    top_k=INTEGER,
    stop_sequences=LIST,
    stream=FLAG,
    metadata=OBJECT,
    thinking=OBJECT,
    output_config=OBJECT,
    service_tier=TEXT,
    container=TEXT + "|object|null",
    diagnostics=OBJECT + NULL,
    inference_geo=TEXT + NULL,
    speed=TEXT + NULL,
    user_profile_id=TEXT + NULL,
    workspace_id=TEXT + NULL,
    cache_control=OBJECT + NULL,
)
COUNTED = {
    "model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed",
    "user_profile_id", "workspace_id",
}  # fmt: skip
"""What a request to count tokens may hold."""
BETA = dict.fromkeys(["billing_policy", "compaction", "context_management", "fallbacks", "mcp_servers", "thread"], ANY)

BLOCKS: Mapping[str, Shape] = {
    "text": shape("text", type=TEXT, text=TEXT, citations=LIST + NULL, cache_control=OBJECT + NULL),
    "image": shape("source", type=TEXT, source=OBJECT, transformations=ANY, cache_control=OBJECT + NULL),
    "document": shape(
        "source",
        type=TEXT,
        source=OBJECT,
        title=TEXT + NULL,
        context=TEXT + NULL,
        citations=OBJECT + NULL,
        cache_control=OBJECT + NULL,
    ),
    "search_result": shape(
        "source title content",
        type=TEXT,
        source=TEXT,
        title=TEXT,
        content=LIST,
        citations=OBJECT + NULL,
        cache_control=OBJECT + NULL,
    ),
    "thinking": shape("thinking signature", type=TEXT, thinking=TEXT, signature=TEXT),
    "redacted_thinking": shape("data", type=TEXT, data=TEXT),
    "tool_use": shape(
        "id name input",
        type=TEXT,
        id=TEXT,
        name=TEXT,
        input=OBJECT,
        caller=OBJECT,
        toolset_name=TEXT + NULL,
        cache_control=OBJECT + NULL,
    ),
    "tool_result": shape(
        "tool_use_id",
        type=TEXT,
        tool_use_id=TEXT,
        content=f"{TEXT}|{LIST}",
        is_error=FLAG,
        toolset_name=TEXT + NULL,
        cache_control=OBJECT + NULL,
    ),
    "server_tool_use": shape(
        "id name input", type=TEXT, id=TEXT, name=TEXT, input=OBJECT, caller=OBJECT, cache_control=OBJECT + NULL
    ),
    "compaction": shape("content", type=TEXT, content=TEXT + NULL, encrypted_content=TEXT + NULL, **_MARK),
    "container_upload": shape("file_id", type=TEXT, file_id=TEXT, cache_control=OBJECT + NULL),
}
SERVER_RESULT = shape("tool_use_id content", type=TEXT, tool_use_id=TEXT, content=ANY, caller=OBJECT, **_MARK)
BY_ROLE = {
    "user": {"text", "image", "document", "search_result", "tool_result", "container_upload"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "compaction"},
    "system": {"text"},
}
IN_RESULT = {"text", "image", "document", "search_result"}

TOOL = shape(
    "name input_schema",
    type=TEXT + NULL,
    name=TEXT,
    description=TEXT,
    input_schema=OBJECT,
    strict=FLAG,
    defer_loading=FLAG,
    eager_input_streaming=FLAG + NULL,
    input_examples=LIST,
    allowed_callers=LIST,
    cache_control=OBJECT + NULL,
)
SOURCES = {
    "base64": shape("media_type data", type=TEXT, media_type=TEXT, data=TEXT),
    "url": shape("url", type=TEXT, url=TEXT),
    "file": shape("file_id", type=TEXT, file_id=TEXT),
    "text": shape("media_type data", type=TEXT, media_type=TEXT, data=TEXT),
    "content": shape("content", type=TEXT, content=f"{TEXT}|{LIST}"),
}
