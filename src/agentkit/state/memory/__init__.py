"""Sources of long-term recall (not the in-memory store: that is in `state.stores`). A store is handed in."""

from __future__ import annotations

from agentkit.core.contracts.ports import MemoryItem, MemorySource

from .ranking import rank, terms
from .store_memory import StoreMemory, Written

__all__ = ["MemoryItem", "MemorySource", "StoreMemory", "Written", "rank", "terms"]
