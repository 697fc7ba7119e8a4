"""What a simulation says when it cannot be made."""

from __future__ import annotations


class SimulationError(Exception):
    """A manifest, a rule or a trace says something that is not simulated; the text says what."""
