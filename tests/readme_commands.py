"""The `make` commands that README.md tells its reader to type; the end-to-end tests run each of them."""

from __future__ import annotations

import re
from typing import Final

KUBECONFIG: Final = "/path/to/kubeconfig"
"""Stands in the commands for the kubeconfig file of another cluster."""
FOLDER: Final = "/path/to/folder"
"""Stands in the commands for the folder that image archives are written to."""

README_COMMANDS: Final = (
    "make up",
    "make verify",
    "make load PROFILE=smoke",
    "make down",
    f"make images EXPORT={FOLDER}",
    f"make prepare CLUSTER={KUBECONFIG} SIMULATE_GPUS=1",
    f"make up CLUSTER={KUBECONFIG}",
    f"make verify CLUSTER={KUBECONFIG}",
    f"make down CLUSTER={KUBECONFIG}",
    "make preflight STACK=prod",
    "make preview STACK=prod",
    "make render STACK=prod",
    "make rehearse STACK=prod",
)
"""In the order of the README: first this machine's own cluster, then another one, then none but in a rehearsal."""

_SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(readme_text: str) -> list[str]:
    """The make commands in the `sh` code blocks of a document, in their order; continued lines are joined."""
    joined = [block.replace("\\\n", " ") for block in _SHELL_BLOCK.findall(readme_text)]
    lines = [" ".join(line.split()) for block in joined for line in block.splitlines()]
    return [line for line in lines if line.split(" ", 1)[0] == "make"]
