"""Prices and context windows of models, each figure with its date and source. Reads one file, on first use."""

from __future__ import annotations

from .compact import (
    DEFAULT_WINDOW,
    MODES,
    Line,
    Mode,
    Quote,
    Rates,
    Row,
    Window,
    as_of,
    cost,
    models,
    quote,
    rates,
    resolve_window,
    window,
)

__all__ = [
    "DEFAULT_WINDOW",
    "MODES",
    "Line",
    "Mode",
    "Quote",
    "Rates",
    "Row",
    "Window",
    "as_of",
    "cost",
    "models",
    "quote",
    "rates",
    "resolve_window",
    "window",
]
