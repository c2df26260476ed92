"""An MCP server with one tool, `ask`: it puts a question to another agent over A2A and returns what that agent answers.

    python ask_peer.py http://127.0.0.1:8432 CONTEXT

All questions belong to one conversation of the other agent, CONTEXT, so it knows what was asked before. agentd gives
each call a key that stays the same when the call is made again after a crash. It becomes the id of the message, and the
other agent takes a message with a known id only once; that is why the tool may call itself idempotent.
"""

import sys
from uuid import uuid4

from a2a.client import ClientConfig, create_client
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest, Task, TaskState
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

URL, CONTEXT = sys.argv[1:]

server = MCPServer("peer", instructions="Another agent, asked over A2A.")


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def ask(question: str, context: Context) -> str:
    """Ask the other agent, and wait for its answer."""
    meta = context.request_context.meta or {}
    said = Message(
        message_id=str(meta.get("agentd/idempotency-key") or uuid4()),
        context_id=CONTEXT,
        role=Role.ROLE_USER,
        parts=[Part(text=question)],
    )
    client = await create_client(URL, ClientConfig(streaming=False))
    try:
        async for event in client.send_message(SendMessageRequest(message=said)):
            if event.HasField("task"):
                return answer_of(event.task)
    finally:
        await client.close()
    raise ToolError("the other agent gave no answer")


def answer_of(task: Task) -> str:
    text = "\n".join(part.text for artifact in task.artifacts for part in artifact.parts)
    if task.status.state != TaskState.TASK_STATE_COMPLETED:
        raise ToolError(f"the other agent ended as {TaskState.Name(task.status.state)}: {text}")
    return text


if __name__ == "__main__":
    server.run()
