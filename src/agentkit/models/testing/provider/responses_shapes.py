"""The fields of a request to OpenAI's Responses, with their kinds. Source: the API reference and the types of the
client openai 3.57, November 2026."""

from __future__ import annotations

from .openai_forms import NULL
from .shapes import ANY, FLAG, INTEGER, LIST, NUMBER, OBJECT, TEXT, shape

REQUEST = shape(
    "model",
    model=TEXT,
    input=f"{TEXT}|{LIST}",
    instructions=TEXT + NULL,
    stream=FLAG + NULL,
    stream_options=OBJECT + NULL,
    tools=LIST,
    tool_choice=f"{TEXT}|{OBJECT}",
    parallel_tool_calls=FLAG + NULL,
    max_tool_calls=INTEGER + NULL,
    temperature=NUMBER + NULL,
    top_p=NUMBER + NULL,
    top_logprobs=INTEGER + NULL,
    max_output_tokens=INTEGER + NULL,
    reasoning=OBJECT + NULL,
    text=OBJECT,
    include=LIST + NULL,
    store=FLAG + NULL,
    previous_response_id=TEXT + NULL,
    conversation=f"{TEXT}|{OBJECT}|null",
    prompt=OBJECT + NULL,
    truncation=TEXT + NULL,
    metadata=OBJECT + NULL,
    prompt_cache_key=TEXT,
    prompt_cache_options=OBJECT,
    prompt_cache_retention=TEXT + NULL,
    safety_identifier=TEXT,
    service_tier=TEXT + NULL,
    user=TEXT,
    background=FLAG + NULL,
    background_options=ANY,
    context_management=LIST + NULL,
    access_programs=ANY,
    image=ANY,
    moderation=ANY,
)
_STATUS = {"id": TEXT + NULL, "status": TEXT + NULL}
ITEMS = {
    "message": shape("role content", type=TEXT, role=TEXT, content=f"{TEXT}|{LIST}", phase=TEXT + NULL, **_STATUS),
    "function_call": shape(
        "call_id name arguments",
        type=TEXT,
        call_id=TEXT,
        name=TEXT,
        arguments=TEXT,
        caller=OBJECT + NULL,
        namespace=TEXT + NULL,
        **{"async": FLAG + NULL},
        **_STATUS,
    ),
    "function_call_output": shape(
        "call_id output",
        type=TEXT,
        call_id=TEXT,
        output=f"{TEXT}|{LIST}",
        caller=OBJECT + NULL,
        name=TEXT + NULL,
        namespace=TEXT + NULL,
        **_STATUS,
    ),
    "reasoning": shape(
        "id summary",
        type=TEXT,
        summary=LIST,
        content=LIST + NULL,
        encrypted_content=TEXT + NULL,
        **_STATUS,
    ),
    "compaction": shape("encrypted_content", type=TEXT, encrypted_content=TEXT, id=TEXT + NULL),
    "item_reference": shape("id", type=TEXT, id=TEXT),
}
OTHERS = frozenset(
    [
        "additional_tools",
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction_trigger",
        "computer_call",
        "computer_call_output",
        "configuration_update",
        "custom_tool_call",
        "custom_tool_call_output",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    ]
)
"""Kinds of items whose fields are not judged here."""

_MARK = {"prompt_cache_breakpoint": OBJECT}
PARTS = {
    "input_text": shape("text", type=TEXT, text=TEXT, **_MARK),
    "input_image": shape("", type=TEXT, image_url=TEXT + NULL, file_id=TEXT + NULL, detail=TEXT + NULL, **_MARK),
    "input_file": shape(
        "",
        type=TEXT,
        file_data=TEXT + NULL,
        file_id=TEXT + NULL,
        file_url=TEXT + NULL,
        filename=TEXT + NULL,
        detail=TEXT + NULL,
        **_MARK,
    ),
    "output_text": shape("text", type=TEXT, text=TEXT, annotations=LIST, logprobs=LIST + NULL),
    "refusal": shape("refusal", type=TEXT, refusal=TEXT),
}
