"""What people are told to look at can be run as it stands."""

from __future__ import annotations

import pytest

from components import access
from local import stack
from services.verification import hint

COMMAND = "kubectl -n triton-local describe pods"


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ({}, COMMAND),
        ({"TRITON_FLEET_CLUSTER": ""}, COMMAND),
        ({"TRITON_FLEET_CLUSTER": "/a b/k"}, "kubectl --kubeconfig='/a b/k' -n triton-local describe pods"),
        ({"TRITON_FLEET_REHEARSAL_KUBECONFIG": "/r"}, "kubectl --kubeconfig=/r -n triton-local describe pods"),
        (
            {"TRITON_FLEET_CLUSTER": "/c", "TRITON_FLEET_REHEARSAL_KUBECONFIG": "/r"},
            "kubectl --kubeconfig=/c -n triton-local describe pods",
        ),
    ],
)
def test_a_command_names_the_kubeconfig_of_its_update(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, str], shown: str
) -> None:
    for name in hint.KUBECONFIGS:
        monkeypatch.delenv(name, raising=False)
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    assert hint.runnable(COMMAND) == shown


def test_the_variable_is_the_one_that_make_sets_and_the_program_reads() -> None:
    assert hint.KUBECONFIGS[0] == stack.CLUSTER_VARIABLE == access.CLUSTER_VARIABLE
