"""What a failed update tells people to look at, as they can run it."""

from __future__ import annotations

import os
import shlex
from typing import Final

KUBECONFIGS: Final = ("TRITON_FLEET_CLUSTER", "TRITON_FLEET_REHEARSAL_KUBECONFIG")
"""Variables that name the kubeconfig file of this update, where one is named: by `make`, and by a rehearsal."""


def runnable(command: str) -> str:
    """A kubectl command, with the kubeconfig file of this update: no other is ever meant."""
    named = next((os.environ[name] for name in KUBECONFIGS if os.environ.get(name)), None)
    if named is None:
        return command
    program, _, rest = command.partition(" ")
    return f"{program} --kubeconfig={shlex.quote(named)} {rest}"
