"""Which memory a conversation has: one for all of an instance or, with `a2a.scope: principal`, one for each sender.

A sender's own memory lies in a tenant of its own, so that no key and no listing of one can reach another's. The root
context and whoever runs the process have that of the instance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from urllib.parse import quote

from agentd.config import Settings
from agentd.config.thinking import Memory
from agentd.context.record import ROOT
from agentd.context.resident import Context
from agentd.records import ANY, Records, Save, Write
from agentkit.core.contracts.scope import Scope

from .memory import MemoryStore
from .principals import OPERATOR
from .server_memory import Call, OverriddenMemory

OWNERS = "memory_of"
"""The kind of rows that say who has a memory of its own, so that expired values of all of them are found."""
MOST = 1_024
"""Memories that stay ready; the others are listed again when their owner comes back."""


class Memories:
    """The memories of one instance. `clock` in ms; `call` reaches the servers of `tools.overrides.memory`."""

    def __init__(
        self, records: Records, settings: Settings, clock: Callable[[], int], *, call: Call | None = None
    ) -> None:
        self._records, self._clock = records, clock
        self._settings = settings.memory
        self._is_shared = settings.a2a.scope == "instance"
        overrides = settings.tools.overrides.memory
        self.instance = MemoryStore(records, settings.memory, clock)
        if call is not None and (overrides.calls or overrides.preset is not None):
            self.instance = OverriddenMemory(records, settings.memory, clock, overrides, call)
        self._own: dict[str, MemoryStore] = {}

    def of(self, held: Context) -> MemoryStore:
        """The memory of a context: that of its owner."""
        return self.of_owner(None if held.id == ROOT else held.state.principal)

    def of_owner(self, owner: str | None) -> MemoryStore:
        """The memory of a principal; that of the instance for None, and for whoever runs the process."""
        if self._is_shared or owner is None or owner == OPERATOR.id:
            return self.instance
        found = self._own.pop(owner, None)
        if found is None:
            found = memory_of(self._records, owner, self._settings, self._clock)
        self._own[owner] = found  # behind the others: those in front were idle longest
        if len(self._own) > MOST:
            idle = next((one for one, memory in self._own.items() if memory.is_idle), None)
            if idle is not None and idle != owner:
                del self._own[idle]
        return found

    def reload(self, settings: Settings) -> None:
        """Take over other limits. What is stored beyond them stays."""
        self._settings = settings.memory
        for memory in (self.instance, *self._own.values()):
            memory.reload(settings.memory)

    def applied(self, writes: Iterable[Write]) -> None:
        """These writes are committed: changes that were decided on are known from now on."""
        given = list(writes)
        if not given:
            return
        for memory in (self.instance, *self._own.values()):
            memory.applied(given)

    async def sweep(self) -> int:
        """Delete all values whose lifetime is over, of every memory. Returns how many."""
        count = await self.instance.sweep()
        owners = set(self._own)
        if not self._is_shared and self._records.abilities.list:
            owners.update(await self._records.ids(OWNERS))
        for owner in sorted(owners):
            count += await self.of_owner(owner).sweep()
        return count


def memory_of(records: Records, owner: str, settings: Memory, clock: Callable[[], int]) -> MemoryStore:
    """A principal's own memory, in the records of the instance."""
    domain = records.scope.domain_id
    scope = Scope(records.scope.org_id, f"{'' if domain is None else domain}/{quote(owner, safe='')}")
    return MemoryStore(records, settings, clock, scope=scope, entry=Save(OWNERS, owner, b"{}", ANY))
