"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def project() -> Path:
    """The repository: the folder that settings' paths are relative to."""
    return Path(__file__).parent.parent
