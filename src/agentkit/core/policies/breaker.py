"""`CircuitBreaker`: a model that keeps failing is left alone for a while. Touches the clock that is handed in, and the
context of the call, which carries the state along.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol, runtime_checkable

from agentkit.core.contracts.calls import ChatCall, ChatNext
from agentkit.core.contracts.checks import require_int
from agentkit.core.contracts.errors import TransientError
from agentkit.core.contracts.ports import Clock
from agentkit.core.contracts.requests import Delta

STATE = "breaker"
"""Where a context keeps the state: `context.policies["breaker"][name of the model]`."""


@runtime_checkable
class CarriesPolicies(Protocol):
    """What `call.meta["context"]` has to offer: a mapping of plain data that is dehydrated with it. A WorkingContext
    does."""

    @property
    def policies(self) -> dict[str, Any]: ...


@dataclass
class Circuit:
    """What is known of one model. `failures` in a row; `opened`: when it was last left alone, None while it is asked;
    `changed`: when any of this was last settled; `probing`: one call is on its way to find out."""

    failures: int = 0
    opened: float | None = None
    changed: float = float("-inf")
    probing: object | None = field(default=None, repr=False)


class CircuitBreaker:
    """Chat middleware: after `threshold` transient faults in a row, calls of that model are refused for `cooldown`
    seconds with a TransientError that says for how long. Then one call at a time goes through as a probe: an answer
    closes the circuit, another transient fault opens it anew, and anything else, a cancellation included, says nothing
    and lets the next call be the probe.

    One object guards all its models, for every tenant and context of the process, each model apart. Faults that are the
    caller's own, limits and bugs are not counted. Stand it outside `retry`, so that one call counts once however often
    it was tried, and inside `fallback`, which goes on to the next model at once while a circuit is open.

    Where the call has a context (`call.meta["context"]`), the state is noted in `context.policies`, goes through
    dehydrate with it, and is taken up by a breaker, in another process say, that knows nothing newer. Its times are
    those of `clock`, so processes that hand contexts on need the same: `time.time`, the default.
    """

    def __init__(self, threshold: int = 5, *, cooldown: float = 30.0, clock: Clock = time.time) -> None:
        require_int(threshold, "threshold")
        if threshold < 1:
            raise ValueError(f"threshold must be at least 1: {threshold}")
        if not 0 <= cooldown < float("inf"):
            raise ValueError(f"cooldown must be finite and not negative: {cooldown}")
        self._threshold, self._cooldown, self._clock = threshold, cooldown, clock
        self._circuits: dict[str, Circuit] = {}

    def state(self, model: str | None = None) -> str:
        """`closed`, `open` or `half_open` (the next call is a probe, or one is on its way)."""
        circuit = self._circuits.get(model or "")
        if circuit is None or circuit.opened is None:
            return "closed"
        return "open" if self._left(circuit) > 0 else "half_open"

    async def __call__(self, call: ChatCall, proceed: ChatNext, /) -> AsyncIterator[Delta]:
        circuit = self._circuit(call)
        probe = self._admit(call, circuit)
        begun = False
        try:
            async for delta in proceed(call):
                begun = True
                yield delta
        except TransientError:
            self._failed(call, circuit, probe)
            raise
        except GeneratorExit:  # its reader had enough: the model did answer
            if begun:
                self._answered(call, circuit, probe)
            raise
        else:
            self._answered(call, circuit, probe)
        finally:
            if probe is not None and circuit.probing is probe:
                circuit.probing = None

    def _admit(self, call: ChatCall, circuit: Circuit) -> object | None:
        """None to let the call through, or a token when it is the probe; raises while the circuit is open."""
        if circuit.opened is None:
            return None
        left, name = self._left(circuit), call.request.model
        if left > 0 or circuit.probing is not None:
            call.ctx.emit("breaker.refused", model=name, left=left)
            why = f"it is asked again in {left:.1f} s" if left > 0 else "one call is finding out whether it is back"
            raise TransientError(f"{name} failed {circuit.failures} times in a row: {why}", retry_after=max(left, 0.0))
        circuit.probing = probe = object()
        call.ctx.emit("breaker.probe", model=name)
        return probe

    def _left(self, circuit: Circuit) -> float:
        """Seconds until a probe may go. A time ahead of the clock, from a process whose clock was, counts from now."""
        now = self._clock()
        if circuit.opened is None:
            return 0.0
        circuit.opened = min(circuit.opened, now)
        return circuit.opened + self._cooldown - now

    def _failed(self, call: ChatCall, circuit: Circuit, probe: object | None) -> None:
        circuit.failures += 1
        # What began before the circuit opened says nothing about how long to wait.
        if circuit.failures >= self._threshold and (circuit.opened is None or probe is not None):
            circuit.opened = self._clock()
            call.ctx.emit("breaker.open", model=call.request.model, failures=circuit.failures)
        self._note(call, circuit)

    def _answered(self, call: ChatCall, circuit: Circuit, probe: object | None) -> None:
        # An answer to what was asked before the circuit opened does not close it.
        if circuit.failures == 0 or (circuit.opened is not None and probe is None):
            return
        if circuit.opened is not None:
            call.ctx.emit("breaker.closed", model=call.request.model)
        circuit.failures, circuit.opened = 0, None
        self._note(call, circuit)

    def _circuit(self, call: ChatCall) -> Circuit:
        """What is known of the call's model, here or in the call's context, whichever is newer."""
        name = call.request.model or ""
        circuit = self._circuits.setdefault(name, Circuit())
        context = call.meta.get("context")
        if isinstance(context, CarriesPolicies) and (kept := context.policies.get(STATE, {}).get(name)) is not None:
            found = _read(kept)
            if found is None:
                call.ctx.emit("breaker.unreadable", model=call.request.model)
            elif found.changed > circuit.changed:
                circuit.failures, circuit.opened, circuit.changed = found.failures, found.opened, found.changed
        return circuit

    def _note(self, call: ChatCall, circuit: Circuit) -> None:
        circuit.changed = self._clock()
        context = call.meta.get("context")
        if isinstance(context, CarriesPolicies):
            kept = {"failures": circuit.failures, "opened": circuit.opened, "changed": circuit.changed}
            context.policies[STATE] = {**context.policies.get(STATE, {}), call.request.model or "": kept}


def _read(kept: Any) -> Circuit | None:
    """A circuit as `_note` wrote it; None for anything else."""
    if not isinstance(kept, Mapping):
        return None
    failures, opened, changed = kept.get("failures"), kept.get("opened"), kept.get("changed")
    times = [changed] if opened is None else [changed, opened]
    if type(failures) is not int or failures < 0:
        return None
    if not all(isinstance(t, (int, float)) and not isinstance(t, bool) and isfinite(t) for t in times):
        return None
    return Circuit(failures, None if opened is None else float(opened), float(kept["changed"]))
