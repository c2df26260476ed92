"""Pictures and files of the record on their way to the model: the record names what the store has by its hash, a
provider takes bytes. Reads artifacts.

Whether a model takes pictures at all, nobody knows beforehand: one that refuses a request with pictures in it and takes
the same one without is shown none any more.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import replace
from typing import Any

from agentd.records import Records
from agentkit.core.contracts.blocks import DocumentBlock, ImageBlock, TextBlock
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.requests import ChatRequest

log = logging.getLogger("agentd")

STORED = "artifact:"
SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What all providers that take pictures take."""
MOST_BYTES = 3_750_000
"""Of a picture: 5 MB in base64, the least that a provider takes."""
MOST_KEPT = 16
"""Messages with pictures that are kept ready, the same object each time: adapters know by it what they made before."""


class Pictures:
    """Fills requests in. `blind`: models that refuse pictures."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.blind: set[str] = set()
        self._ready: OrderedDict[tuple[int, bool], tuple[Message, Message]] = OrderedDict()

    async def filled(self, request: ChatRequest, *, hide: bool = False) -> ChatRequest:
        """The request with the bytes of its pictures, and with a line in place of what cannot be shown; the same
        object where it names nothing of the store. `hide`: all pictures, as for a model that takes none."""
        if not any(map(_names_stored, request.messages)):
            return request
        hide = hide or request.model in self.blind
        return replace(request, messages=tuple([await self._message(one, hide) for one in request.messages]))

    def refused(self, model: str | None) -> None:
        """A model took a request only without its pictures."""
        log.warning("the model %s takes no pictures: it is shown none from now on", model)
        self.blind.add(model or "")

    async def _message(self, message: Message, hide: bool) -> Message:
        if not _names_stored(message):
            return message
        key = id(message), hide
        known = self._ready.get(key)
        if known is not None and known[0] is message:
            self._ready.move_to_end(key)
            return known[1]
        items = [await self._item(item, hide) for item in message.ordered]
        made = Message(
            message.role, items, message.name, message.tool_call_id, is_error=message.is_error, meta=message.meta
        )
        self._ready[key] = message, made
        if len(self._ready) > MOST_KEPT:
            self._ready.popitem(last=False)
        return made

    async def _item(self, item: Any, hide: bool) -> Any:
        if not _is_stored(item):
            return item
        what = item.media_type or "file"
        if isinstance(item, DocumentBlock):
            name = f" {item.title}" if item.title else ""
            return TextBlock(f"\n[{what}{name}: kept, but not shown]")
        if hide or what not in SHOWN:
            return TextBlock(f"\n[{what}: kept, but not shown]")
        data = await self._records.artifact_bytes(item.source.removeprefix(STORED))
        if data is None:
            return TextBlock(f"\n[{what}: it is gone from the store]")
        if len(data) > MOST_BYTES:
            return TextBlock(f"\n[{what} of {len(data)} bytes: too large to be shown]")
        return replace(item, source=data)


def _is_stored(item: Any) -> bool:
    is_media = isinstance(item, (ImageBlock, DocumentBlock))
    return is_media and isinstance(item.source, str) and item.source.startswith(STORED)


def _names_stored(message: Message) -> bool:
    return any(map(_is_stored, message.blocks))
