"""Checkpoints of runs, and the way from a working context to what is stored and back. A store is handed in."""

from __future__ import annotations

from .checkpoint import Checkpoint, Checkpointer, CheckpointPort
from .rehydration import dehydrate, rehydrate
from .store_checkpoints import StoreCheckpoints

__all__ = [
    "Checkpoint",
    "CheckpointPort",
    "Checkpointer",
    "StoreCheckpoints",
    "dehydrate",
    "rehydrate",
]
