"""What every compactor shares. Touches only its arguments."""

from __future__ import annotations

from agentkit.core.contracts.tokens import estimate_message_tokens

_approx_tokens = estimate_message_tokens
"""The project's one estimate, under the name that the design document imports here."""
