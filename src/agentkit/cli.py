"""The command `agentkit`. Touches files, the terminal and, for `replay`, a store.

What a command needs is imported in its body: `--help` answers before anything of the library is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from agentkit import __version__

if TYPE_CHECKING:
    from agentkit.state.context.tokens import AdditiveCounter
    from agentkit.transcripts import Transcript

OK, FINDINGS, USAGE, UNREADABLE, UNWRITABLE, BUG, INTERRUPTED, UNREAD = 0, 1, 2, 3, 4, 70, 130, 141

EPILOG = """\b
Exit codes:
    0  done
    1  check found problems
    2  the command line is wrong
    3  an input cannot be read, or is no transcript (the others are done)
    4  a store or an output file cannot be used
   70  a fault of agentkit itself
  130  interrupted
  141  whoever read the output went away
"""

RULES = ("strict", "anthropic", "openai-chat", "openai-responses", "gemini")
TARGETS = ("anthropic", "openai", "agentkit")
COUNTERS = ("approx", "char-class", "tiktoken")

COMPLETION = "_AGENTKIT_COMPLETE"
"""The variable by which shells ask click for completions."""

LONG_WORK = 0.7
"""Seconds after which reading shows how far it is; most files are read before."""


class Unreadable(click.ClickException):
    """An input cannot be read. One line on standard error."""

    exit_code = UNREADABLE

    def __init__(self, message: str) -> None:
        super().__init__(_one_line(message))

    def show(self, file: Any = None) -> None:
        click.echo(f"agentkit: {self.message}", file=file, err=file is None)


class Unwritable(Unreadable):
    """A store or an output file cannot be used."""

    exit_code = UNWRITABLE


class Interrupted(Unreadable):
    """Ended by the user, with something to say about it."""

    exit_code = INTERRUPTED


def main() -> NoReturn:
    """The program: run the command line and end the process."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an old terminal shows a sign it lacks as "?"
    sys.exit(run())


def run(args: Sequence[str] | None = None) -> int:
    """Run a command line, by default the process's own; what is wrong becomes one line on standard error. Returns one
    of the documented exit codes."""
    if COMPLETION in os.environ:
        cli.main(args, prog_name="agentkit")  # ends the process
    try:
        code = _invoke(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
        return code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "agentkit"
        click.echo(f"{command}: {_one_line(error.format_message())} See '{command} --help'.", err=True)
        return USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("agentkit: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes standard output at exit, which would raise once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except Exception:
        # An exit code of its own, since the interpreter's is the one that `check` has for findings.
        from traceback import print_exc

        print_exc()
        click.echo("agentkit: this is a fault of agentkit itself; please report it with the lines above", err=True)
        return BUG


def _invoke(args: Sequence[str]) -> int:
    # Not by `cli.main`, which has exit codes of its own for an interrupt and for a reader that went away.
    try:
        with cli.make_context("agentkit", list(args)) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as end:
        return end.exit_code
    return OK


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="agentkit")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Look into recorded conversations of agents: where the tokens and the money went, whether a provider would accept
    them, and how they grow as a stored context.

    FILE is a transcript: Claude Code, Codex, OpenAI, Anthropic, LangChain, SWE-agent and others; "-" is standard input.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(USAGE)


def _conversation_number(ctx: click.Context, option: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == "all":
        return value
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise click.BadParameter(f'{value!r} is neither a number from 1 on nor "all".')
    return int(value)


_files = click.argument("files", nargs=-1, required=True, metavar="FILE...")
_file = click.argument("file", metavar="FILE")
_format = click.option(
    "--format", "format_", metavar="NAME", help="Read FILE as this format instead of telling it by its contents."
)
_conversation = click.option(
    "--conversation", metavar="N", callback=_conversation_number, help='The Nth conversation of a file, or "all".'
)
_counter_name = click.option(
    "--counter",
    type=click.Choice(COUNTERS),
    default="char-class",
    show_default=True,
    help="How tokens are counted; tiktoken needs the extra [fast].",
)


# -- inspect, count, check ---------------------------------------------------------------------------------------------


@cli.command(epilog=EPILOG, short_help="Where the tokens and the money went.")
@_files
@_format
@_conversation
@_counter_name
@click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs; docs/cli.md describes it.")
@click.option("--html", "page", metavar="FILE", help="Write a self-contained HTML report with plots.")
@click.option(
    "--cache", "cache_only", is_flag=True, help="Only the prompt cache: each request, what broke it, what it cost."
)
def inspect(
    files: tuple[str, ...],
    format_: str | None,
    conversation: int | str | None,
    counter: str,
    as_json: bool,
    page: str | None,
    cache_only: bool,
) -> None:
    """Say where the tokens, the money and the cache reads of a conversation went.

    Several conversations are listed with a line each; --conversation shows one of them whole, or "all".
    """
    from agentkit.inspect import inspect_transcript

    counting = _counter(counter)
    inputs = Inputs(files, format_, conversation)
    inspections = [
        inspect_transcript(found.transcript, source=found.file, number=found.number, of=found.of, counter=counting)
        for _, several in inputs
        for found in several
    ]
    if not inspections:
        inputs.finish()
    if page is not None:
        from agentkit.inspect.page import render_page

        _write(page, render_page(inspections, version=__version__))
    if as_json:
        from agentkit.inspect.shape import json_document, to_shape

        _write("-", json_document(to_shape(inspections)))
    elif page is None:
        from agentkit.inspect.text import render_cache, render_text

        whole = True if conversation is not None else None
        style = _style()
        text = render_cache(inspections, style) if cache_only else render_text(inspections, style, whole=whole)
        click.echo(text, nl=False, color=True)
    elif page != "-":
        click.echo(f"wrote {_one_line(page)}")
    inputs.finish()


@cli.command(epilog=EPILOG, short_help="Tokens of each file.")
@_files
@_format
@_conversation
@_counter_name
def count(files: tuple[str, ...], format_: str | None, conversation: int | str | None, counter: str) -> None:
    """Count tokens: a line for each FILE with tokens, messages and name, and the total of several.

    All messages and tool schemas of a file count, as `inspect` counts them.
    """
    from agentkit.inspect.measure import count_transcript

    counting = _counter(counter)
    lines: list[tuple[int, int, str]] = []
    inputs = Inputs(files, format_, conversation)
    for file, several in inputs:
        transcripts = [found.transcript for found in several]
        tokens = sum(count_transcript(transcript, counting) for transcript in transcripts)
        lines.append((tokens, sum(len(transcript.history) for transcript in transcripts), file))
    if len(lines) > 1:
        lines.append((sum(line[0] for line in lines), sum(line[1] for line in lines), "total"))
    width = max((len(str(line[0])) for line in lines), default=0)
    message_width = max((len(str(line[1])) for line in lines), default=0)
    for tokens, messages, name in lines:
        click.echo(f"{tokens:>{width}} {messages:>{message_width}} {_one_line(name)}")
    inputs.finish()


@cli.command(epilog=EPILOG, short_help="Whether a provider would accept it.")
@_files
@_format
@_conversation
@click.option(
    "--rules",
    type=click.Choice(RULES),
    default="strict",
    show_default=True,
    help="Whose rules; strict is what every provider accepts.",
)
def check(files: tuple[str, ...], format_: str | None, conversation: int | str | None, rules: str) -> None:
    """Check what the agent would send next against the rules of a provider.

    One line for each problem, and exit code 1 if there is any. Adapters repair all of them before they send.
    """
    from agentkit.core.contracts import validity
    from agentkit.inspect.measure import problems

    rule_set = getattr(validity, rules.upper().replace("-", "_"))
    any_found = False
    inputs = Inputs(files, format_, conversation)
    for _, several in inputs:
        for found in several:
            listed = problems(found.transcript, rule_set)
            any_found = any_found or bool(listed)
            for problem, where in listed:
                call = f" (call {problem.call_id})" if problem.call_id else ""
                click.echo(_one_line(f"{found.name}: {where}: {problem.code}: {problem.detail}{call}"))
            if not listed:
                click.echo(f"{_one_line(found.name)}: valid by the {rules} rules")
    inputs.finish()
    if any_found:
        raise click.exceptions.Exit(FINDINGS)


# -- convert, replay ---------------------------------------------------------------------------------------------------


@cli.command(epilog=EPILOG, short_help="Write it as a request, or in agentkit's own form.")
@_file
@_format
@_conversation
@click.option("--to", "target", type=click.Choice(TARGETS), required=True, help="The form to write.")
@click.option(
    "-o", "--output", metavar="OUT", default="-", show_default=True, help='The file to write; "-" is standard output.'
)
def convert(file: str, format_: str | None, conversation: int | str | None, target: str, output: str) -> None:
    """Write a conversation as a request to a provider, repaired by its rules, or in agentkit's own form without loss.

    A file of several conversations needs --conversation; "all" writes one JSON object a line.
    """
    from agentkit.core.contracts.errors import EmptyRequestError
    from agentkit.inspect.convert import converted, repairs

    chosen = _read(file, format_, conversation, must_choose=True)
    texts: list[str] = []
    for found in chosen:
        try:
            texts.append(converted(found.transcript, target, a_line=conversation == "all"))
        except EmptyRequestError:
            raise Unreadable(f"{found.name}: nothing to ask a model, no message but system text") from None
        if said := repairs(found.transcript, target):
            click.echo(_one_line(f"agentkit: {found.name}: {said}"), err=True)
    _write(output, "".join(texts))


@cli.command(epilog=EPILOG, short_help="Drive it through a stored context, turn by turn.")
@_file
@_format
@_conversation
@_counter_name
@click.option(
    "--store", metavar="FILE.db", required=True, help="The SQLite file of the stored contexts; made if missing."
)
@click.option("--run", "run_id", metavar="ID", help="Name of the run in the store.  [default: the file's name]")
@click.option("--resume", is_flag=True, help="Go on behind the last stored turn.")
@click.option("--delay", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS", help="Wait between turns.")
@click.option(
    "--every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print a line every N turns.  [default: about a dozen lines]",
)
def replay(
    file: str, format_: str | None, conversation: int | str | None, counter: str, store: str,
    run_id: str | None, resume: bool, delay: float, every: int | None,
) -> None:  # fmt: skip
    """Drive a conversation through a stored context, turn by turn, and show size, tokens and cost as it grows.

    A turn is one request and its response, and is stored before the next begins. A replay that was stopped, even by
    kill -9, continues with --resume behind the last stored turn.
    """
    import asyncio

    if file == "-":
        raise click.UsageError("replay needs a file that it can find again, not standard input.")
    chosen = _read(file, format_, conversation, must_choose=True)
    name = run_id or os.path.basename(file).partition(".")[0] or "replay"
    is_part = chosen[0].of > 1 and (run_id is None or len(chosen) > 1)
    runs = [(f"{name}-{found.number}" if is_part else name, found) for found in chosen]
    try:
        asyncio.run(_replay_all(file, runs, store, _counter(counter), resume, delay, every))
    except KeyboardInterrupt:
        raise Interrupted("interrupted; go on behind the last stored turn with --resume") from None


async def _replay_all(
    file: str, runs: Sequence[tuple[str, Found]], store_file: str, counter: AdditiveCounter,
    resume: bool, delay: float, every: int | None,
) -> None:  # fmt: skip
    from agentkit.core.contracts.scope import Scope
    from agentkit.inspect.replay import Origin, ReplayOptions, replay
    from agentkit.inspect.text import ReplayLines
    from agentkit.state.persistence import Checkpointer, StoreCheckpoints
    from agentkit.state.stores.sqlite import SQLiteStore

    scope, digest = Scope(), _digest(file)
    with _store_errors(store_file):
        store = SQLiteStore(store_file)
        try:
            for run_id, found in runs:
                checkpointer = Checkpointer(StoreCheckpoints(store, scope))
                lines = ReplayLines(_say, _one_line(run_id), _one_line(store_file), every)
                origin = Origin(os.path.basename(file), digest, found.number)
                options = ReplayOptions(scope, counter, resume=resume, pause=delay)
                await replay(found.transcript, checkpointer, run_id, origin, options, lines)
        finally:
            await store.aclose()


# -- input -------------------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """A conversation and its place: the file as messages call it, and the number among those of the file, from 1."""

    file: str
    number: int
    of: int
    transcript: Transcript

    @property
    def name(self) -> str:
        """How messages call it."""
        return self.file + (f" conversation {self.number}" if self.of > 1 else "")


class Inputs:
    """Several files one after another; one that cannot be read is told of and passed over, and ends the command with
    the exit code for it once the others are done."""

    def __init__(self, files: Sequence[str], format_: str | None, conversation: int | str | None) -> None:
        self._files, self._format, self._conversation = files, format_, conversation
        self._unreadable = False

    def __iter__(self) -> Iterator[tuple[str, list[Found]]]:
        """Each readable file as messages call it, and its wanted conversations."""
        for file in self._files:
            try:
                found = _read(file, self._format, self._conversation)
            except Unreadable as error:
                self._unreadable = True
                error.show()
            else:
                yield _shown(file), found

    def finish(self) -> None:
        """Ends the command when a file could not be read."""
        if self._unreadable:
            raise click.exceptions.Exit(UNREADABLE)


def _read(file: str, format_: str | None, conversation: int | str | None, *, must_choose: bool = False) -> list[Found]:
    """The wanted conversations of a file. `must_choose`: one of several has to be named, or all of them."""
    name, transcripts = _shown(file), _load(file, format_)
    found = [Found(name, number, len(transcripts), one) for number, one in enumerate(transcripts, 1)]
    if isinstance(conversation, int):
        if conversation > len(found):
            raise click.UsageError(f"{name} holds {len(found)} conversation(s), there is no number {conversation}.")
        return [found[conversation - 1]]
    if must_choose and conversation is None and len(found) > 1:
        raise click.UsageError(f'{name} holds {len(found)} conversations; choose one with --conversation, or "all".')
    return found


def _load(file: str, format_: str | None) -> tuple[Transcript, ...]:
    """The conversations of a file, or Unreadable, which names it."""
    from agentkit.core.contracts.errors import FormatError
    from agentkit.transcripts import FORMATS, load, loads

    if format_ is not None and format_ not in FORMATS:
        raise click.BadParameter(f"{format_!r} is none of {', '.join(FORMATS)}.", param_hint="'--format'")
    try:
        if file == "-":
            return loads(sys.stdin.buffer.read(), format=format_, name=_shown(file))
        with _load_progress(file) as progress:
            return load(file, format=format_, progress=progress)
    except FormatError as error:
        raise Unreadable(str(error)) from None
    except OSError as error:
        raise Unreadable(f"{_shown(file)}: {error.strerror or error}") from None


@contextmanager
def _load_progress(file: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal, once reading has taken a while."""
    if not sys.stderr.isatty():
        yield None
        return
    from time import monotonic

    began = monotonic()
    bar: Any = None
    seen = 0

    def progress(read: int, total: int) -> None:
        nonlocal bar, seen
        if bar is None and total and monotonic() - began > LONG_WORK:
            bar = click.progressbar(length=total, label=f"reading {os.path.basename(file)}", file=sys.stderr)
            bar.__enter__()
        if bar is not None:
            bar.update(read - seen)
            seen = read

    try:
        yield progress
    finally:
        if bar is not None:
            bar.__exit__(None, None, None)


def _counter(name: str) -> AdditiveCounter:
    from agentkit.state.context import ApproxTokenCounter, CharClassTokenCounter, TiktokenCounter

    if name == "tiktoken":
        counter = TiktokenCounter("o200k_base")
        if not counter.exact:
            click.echo(
                "agentkit: tiktoken or its vocabulary file is not installed, so characters / 4 are counted; "
                "pip install 'arc-agentkit[fast]' and set TIKTOKEN_CACHE_DIR",
                err=True,
            )
        return counter
    return ApproxTokenCounter() if name == "approx" else CharClassTokenCounter()


def _digest(file: str) -> str:
    import hashlib

    try:
        with open(file, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise Unreadable(f"{_shown(file)}: {error.strerror or error}") from None


# -- output ------------------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    """A line at once, for a reader who waits for it."""
    click.echo(text)
    sys.stdout.flush()


def _write(path: str, text: str) -> None:
    """UTF-8 to standard output, or to a file that is there whole or not at all. What renders text has replaced or
    escaped whatever UTF-8 has no form for."""
    data = text.encode("utf-8")
    if path == "-":
        click.echo(data, nl=False)
        return
    draft = f"{path}.{os.getpid()}.part"
    try:
        with open(draft, "wb") as out:
            out.write(data)
        os.replace(draft, path)
    except OSError as error:
        with suppress(OSError):
            os.remove(draft)
        raise Unwritable(f"cannot write {path}: {error.strerror or error}") from None


@contextmanager
def _store_errors(store_file: str) -> Iterator[None]:
    from agentkit.core.contracts.errors import AgentKitError

    try:
        yield
    except BrokenPipeError:  # an OSError, but of the terminal
        raise
    except AgentKitError as error:
        raise Unwritable(f"{store_file}: {error}") from None
    except OSError as error:
        raise Unwritable(f"{store_file}: {error.strerror or error}") from None


def _style() -> Any:
    from agentkit.inspect.columns import Style

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    try:
        "█▁…–".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return Style(colour, unicode=False)
    return Style(colour)


def _shown(file: str) -> str:
    return "standard input" if file == "-" else file


def _one_line(text: str) -> str:
    """A message that cannot break out of its line, nor take over the terminal with control characters."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split())
