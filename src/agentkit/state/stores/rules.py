"""What all stores agree on: keys, lifetimes, versions, and what a batch does to what is there. Touches only its
arguments: a store reads what `decide` asks for, and carries out what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from agentkit.core.contracts import codec
from agentkit.core.contracts.errors import Conflict, Corrupt, Fenced, FormatError, StoreError, TooLarge
from agentkit.core.contracts.ports import Append, Delete, Lease, Put

MAX_KEY = 2_048
"""Bytes of UTF-8 in a key: the limit of the Store port, which leaves room in the index pages of every database."""

Body: TypeAlias = str | bytes
"""A value as it is kept: the codec's JSON text, or a bytes value as it is, so that one who encodes pays once."""


def check_key(key: object, what: str = "key") -> str:
    """The key; TypeError for no str, ValueError for one that is empty, too long, or no valid UTF-8."""
    if not isinstance(key, str):
        raise TypeError(f"a {what} must be a str, not {type(key).__name__}")
    size = len(key) if key.isascii() else _utf8_length(key, what)
    if not 1 <= size <= MAX_KEY:
        raise ValueError(f"a {what} has 1 to {MAX_KEY} bytes of UTF-8, this one {size}")
    return key


def _utf8_length(text: str, what: str) -> int:
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise ValueError(f"a {what} must be valid UTF-8: escape lone surrogates before they become a {what}") from None


def check_page(prefix: object, after: object, limit: object) -> None:
    """Refuses what `keys` cannot be asked for; any text may be a prefix or a place to go on from."""
    for name, text in (("prefix", prefix), ("after", "" if after is None else after)):
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a str, not {type(text).__name__}")
        _utf8_length(text, name)
    if limit is not None:
        check_count(limit, "limit")


def check_count(value: object, what: str) -> int:
    """A position, length, version or limit: TypeError for no int, ValueError for a negative one."""
    if type(value) is not int:
        raise TypeError(f"{what} must be an int, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{what} must not be negative: {value}")
    return value


def check_seconds(value: object, what: str = "ttl") -> float:
    """A lifetime in seconds: TypeError for no number, ValueError for a negative, infinite or NaN one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} must be a number of seconds, not {type(value).__name__}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{what} must be finite and not negative: {value!r:.40}")
    return seconds


def deadline_of(ttl: object, now: float) -> float | None:
    """When a value written now is gone; None for never. It is gone when the clock says this or more."""
    return None if ttl is None else now + check_seconds(ttl)


def is_over(deadline: float | None, now: float) -> bool:
    return deadline is not None and now >= deadline


def pack(value: Any, max_value: int | None = None) -> Body:
    """The stored form; CodecError or FreezeError for what cannot be stored, TooLarge above `max_value` bytes."""
    data = value if type(value) is bytes else codec.encode(value)
    if max_value is not None and len(data) > max_value:
        raise TooLarge(f"a value of {len(data)} bytes is over this store's limit of {max_value}")
    return data if data is value else data.decode("utf-8")


def unpack(body: Body, key: str, position: int | None = None) -> Any:
    """The value; Corrupt, naming the place, for a body that cannot be read."""
    if isinstance(body, bytes):
        return body
    try:
        return codec.decode(body)
    except FormatError as error:
        where = f"{key!r}" if position is None else f"item {position} of {key!r}"
        raise Corrupt(
            f"{where} cannot be read ({error}); all else is untouched: overwrite it, or restore it from a backup",
            key=key,
            position=position,
        ) from error


class PutStep(NamedTuple):
    key: str
    body: Body
    deadline: float | None = None
    expected: int | None = None


class AppendStep(NamedTuple):
    key: str
    bodies: tuple[Body, ...]
    at: int | None = None


class DeleteStep(NamedTuple):
    key: str
    expected: int | None = None


Step: TypeAlias = PutStep | AppendStep | DeleteStep


def prepare(batch: object, now: float, max_value: int | None) -> list[Step]:
    """A batch with its values in stored form. Whatever can be refused without looking at the store is refused here."""
    if not isinstance(batch, list) and (isinstance(batch, (str, bytes)) or not isinstance(batch, Iterable)):
        raise TypeError(f"a batch must be a sequence of Put, Append and Delete, not {type(batch).__name__}")
    steps: list[Step] = []
    most = math.inf if max_value is None else max_value
    for entry in batch:
        if isinstance(entry, Put):
            value, key = entry.value, entry.key
            if type(value) is bytes and entry.ttl is None and type(key) is str and key.isascii():
                # What a daemon writes, by the thousand a second: the same checks, without a call for each.
                seen, is_known = entry.expected, type(entry.expected) is int
                if 0 < len(key) <= MAX_KEY and len(value) <= most and (seen is None or (is_known and seen >= 0)):
                    steps.append(PutStep(key, value, None, seen))
                    continue
            expected = None if entry.expected is None else check_count(entry.expected, "expected")
            deadline = deadline_of(entry.ttl, now)
            steps.append(PutStep(check_key(entry.key), pack(entry.value, max_value), deadline, expected))
        elif isinstance(entry, Append):
            at = None if entry.at is None else check_count(entry.at, "at")
            steps.append(AppendStep(check_key(entry.key), tuple(pack(item, max_value) for item in entry.items), at))
        elif isinstance(entry, Delete):
            expected = None if entry.expected is None else check_count(entry.expected, "expected")
            steps.append(DeleteStep(check_key(entry.key), expected))
        else:
            raise TypeError(f"a batch holds Put, Append and Delete, not {type(entry).__name__}")
    return steps


class Held(NamedTuple):
    """What a key holds: a value (its version is above 0), a log (its length is), or nothing."""

    version: int = 0
    length: int = 0


NOTHING = Held()


class Effect(NamedTuple):
    """A step that was accepted. `number`: the version that a put gets, the position of the first appended item, 1 or 0
    for a delete that removes something or nothing."""

    step: Step
    number: int


def decide(steps: Iterable[Step], look: Callable[[str], Held], version: int, now: float) -> tuple[list[Effect], int]:
    """What the steps do, one after the other, and the last version given out; `version` is the last one before.

    `look` tells what a key holds now, expired values being nothing. Raises Conflict for a version or position that is
    not the one seen, StoreError for a value where a log is, or the reverse; then none of the steps may be carried out.
    """
    effects: list[Effect] = []
    after: dict[str, Held] = {}
    for step in steps:
        held = after[step.key] if step.key in after else look(step.key)
        if isinstance(step, PutStep):
            require_value(step.key, held)
            _require(step.key, step.expected, held.version)
            version += 1
            after[step.key] = NOTHING if is_over(step.deadline, now) else Held(version=version)
            effects.append(Effect(step, version))
        elif isinstance(step, AppendStep):
            require_log(step.key, held)
            _require(step.key, step.at, held.length)
            after[step.key] = Held(length=held.length + len(step.bodies))
            effects.append(Effect(step, held.length))
        else:
            _require(step.key, step.expected, held.length or held.version)
            after[step.key] = NOTHING
            effects.append(Effect(step, int(held != NOTHING)))
    return effects, version


def require_value(key: str, held: Held) -> None:
    if held.length:
        raise StoreError(f"{key!r} holds a log, not a value; a key is one or the other until it is deleted")


def require_log(key: str, held: Held) -> None:
    if held.version:
        raise StoreError(f"{key!r} holds a value, not a log; a key is one or the other until it is deleted")


def _require(key: str, expected: int | None, actual: int) -> None:
    if expected is not None and expected != actual:
        raise Conflict(key, expected, actual)


class Claim(NamedTuple):
    """What is known of a lease name: its last owner (None once released), that lease's fence, and its end."""

    owner: str | None
    fence: int
    deadline: float


def is_free(claim: Claim | None, owner: str, now: float) -> bool:
    """Whether a lease may be granted: nobody holds the name, its time is over, or its holder asks again."""
    return claim is None or claim.owner is None or claim.owner == owner or now >= claim.deadline


def is_current(claim: Claim | None, lease: Lease) -> bool:
    """Whether a lease is the last one granted and not given up. Its time may be over: as long as nobody else was
    granted one, its holder may go on, since the fence decides and not the clock."""
    return claim is not None and claim.owner == lease.owner and claim.fence == lease.fence


def require_current(claim: Claim | None, lease: Lease) -> None:
    if not is_current(claim, lease):
        raise Fenced(
            f"the lease on {lease.name!r} with fence {lease.fence} is not the current one; write no more under it"
        )


def check_claim(name: object, owner: object, ttl: object) -> float:
    """What a lease may be asked for; returns its seconds."""
    check_key(name, "lease name")
    if not isinstance(owner, str):
        raise TypeError(f"an owner must be a str, not {type(owner).__name__}")
    if not owner:
        raise ValueError("a lease needs an owner that says who holds it")
    return check_seconds(ttl)


def check_text(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"the text to find must be a str, not {type(text).__name__}")
    return text


def check_lease(lease: object) -> Lease:
    if not isinstance(lease, Lease):
        raise TypeError(f"a lease must be a Lease, not {type(lease).__name__}")
    return lease
