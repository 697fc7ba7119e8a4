"""Reads the catalog's files, which are part of the program."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent


@cache
def load(name: str) -> dict[str, Any]:
    """A file of the catalog."""
    read: dict[str, Any] = yaml.safe_load((_FOLDER / name).read_text(encoding="utf-8"))
    return read
