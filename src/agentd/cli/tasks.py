"""`agentd tasks`: the tasks of a running agent, over A2A. Touches the network, where the URL leads."""

from __future__ import annotations

from typing import Any

import click

from agentd.cli.remote import token_option

url_option = click.option("--url", metavar="URL", required=True, help="The address of the agent.")


@click.group(short_help="Look at the tasks of a running agent, or cancel one.")
def command() -> None:
    """Talk to a running agent over A2A about its tasks: yours, or all of them if you are an operator."""


@command.command("list")
@url_option
@token_option
@click.option("--context", metavar="ID", default="", help="Only those of one conversation.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
def list_tasks(url: str, token_env: str, context: str, limit: int) -> None:
    """One line a task, the newest first: id, state, time of its last change, conversation."""
    import asyncio

    asyncio.run(_list(url, token_env, context, limit))


@command.command()
@url_option
@token_option
@click.argument("task")
def show(url: str, token_env: str, task: str) -> None:
    """A task with what was said, and its answer."""
    import asyncio

    asyncio.run(_show(url, token_env, task))


@command.command()
@url_option
@token_option
@click.argument("task")
def cancel(url: str, token_env: str, task: str) -> None:
    """Ask a task to end. One that has ended already is an error."""
    import asyncio

    asyncio.run(_cancel(url, token_env, task))


@command.command()
@url_option
@token_option
@click.argument("task")
@click.argument("answer")
@click.option("--json", "as_json", is_flag=True, help="ANSWER is JSON, for a question that asks for data.")
def answer(url: str, token_env: str, task: str, answer: str, as_json: bool) -> None:
    """Answer what a task asks, or approve a call: yes, or no and a reason. What is no answer to its question is an
    error that says what would be one."""
    import asyncio
    import json

    data = None
    if as_json:
        try:
            data = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"ANSWER is no JSON: {error}.") from error
    asyncio.run(_answer(url, token_env, task, answer, data if as_json else None, as_json))


async def _list(url: str, token_env: str, context: str, limit: int) -> None:
    from agentd.cli.remote import connected, reporting, state_of
    from agentkit.inspect.markup import visible

    async with connected(url, token_env) as client:
        from a2a.types.a2a_pb2 import ListTasksRequest

        token, left = "", limit
        while left:
            asked = ListTasksRequest(context_id=context, page_size=min(left, 100), page_token=token)
            with reporting(url):
                page = await client.list_tasks(asked)
            for task in page.tasks:
                when = task.status.timestamp.ToJsonString()
                click.echo(visible(f"{task.id}  {state_of(task.status):<14}  {when}  {task.context_id}"))
            left -= len(page.tasks)
            token = page.next_page_token
            if not token or not page.tasks:
                return


async def _show(url: str, token_env: str, id: str) -> None:
    from agentd.cli.remote import answer_of, connected, reporting, state_of, text_of
    from agentkit.inspect.markup import visible

    async with connected(url, token_env) as client:
        from a2a.types.a2a_pb2 import GetTaskRequest, Role

        with reporting(url):
            task = await client.get_task(GetTaskRequest(id=id))
    click.echo(visible(f"{task.id}: {state_of(task.status)}, conversation {task.context_id}"))
    for message in task.history:
        who = "you" if message.role == Role.ROLE_USER else "agent"
        click.echo(f"{who}: {visible(text_of(message.parts))}")
    if answer := answer_of(task):
        click.echo(visible(answer))


async def _answer(url: str, token_env: str, id: str, text: str, data: Any, as_json: bool) -> None:
    from agentd.cli.remote import answer_of, connected, reporting, state_of
    from agentkit.inspect.markup import visible

    async with connected(url, token_env) as client:
        import uuid

        from a2a.types.a2a_pb2 import GetTaskRequest, Message, Part, Role, SendMessageRequest
        from google.protobuf.json_format import ParseDict

        part = Part(text=text)
        if as_json:
            part = Part()
            ParseDict(data, part.data)
        message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[part], task_id=id)
        asked = SendMessageRequest(message=message)
        asked.configuration.return_immediately = True
        with reporting(url):
            async for _ in client.send_message(asked):
                break
            task = await client.get_task(GetTaskRequest(id=id))
    click.echo(visible(f"{task.id}: {state_of(task.status)}"))
    if said := answer_of(task):
        click.echo(visible(said))


async def _cancel(url: str, token_env: str, id: str) -> None:
    from agentd.cli.remote import connected, reporting, state_of

    async with connected(url, token_env) as client:
        from a2a.types.a2a_pb2 import CancelTaskRequest

        with reporting(url):
            task = await client.cancel_task(CancelTaskRequest(id=id))
    click.echo(f"{task.id}: {state_of(task.status)}")
