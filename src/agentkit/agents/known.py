"""What an agent has learnt about models. Touches only its arguments."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentkit.state.context import Calibration, CharClassTokenCounter, Observation, WorkingContext


@dataclass
class Known:
    """What an agent has learnt about models: windows that a provider's refusal named, and how far estimates are off, by
    model and counter. Figures only: nothing in here is anybody's content."""

    windows: dict[str | None, int] = field(default_factory=dict)
    calibrations: dict[tuple[str | None, str], Calibration] = field(default_factory=dict)

    def calibration(self, model: str | None, wc: WorkingContext) -> Calibration:
        found = self.calibrations.get((model, _kind(wc)))
        return Calibration.seed(model, _kind(wc)) if found is None else found

    def learn(self, model: str | None, wc: WorkingContext, seen: Observation | None) -> None:
        before = self.calibration(model, wc)
        after = before.learn(seen)
        if after is not before:
            self.calibrations[model, _kind(wc)] = after


def _kind(wc: WorkingContext) -> str:
    counter = type(wc.token_counter)
    return "char-class" if counter is CharClassTokenCounter else counter.__name__
