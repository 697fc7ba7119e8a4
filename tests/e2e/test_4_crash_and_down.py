"""Crashes, two commands at once, and `make down`: last, since each ends the cluster. In this order."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e import machine
from tests.e2e.checkout import infer, kill_hard

if TYPE_CHECKING:
    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e


def remains(before: dict[str, list[str]]) -> dict[str, list[str]]:
    return machine.difference(before, machine.snapshot())


def test_a_killed_cluster_leaves_no_process_and_comes_back_with_its_stack(
    checkout: Checkout, before: dict[str, list[str]]
) -> None:
    """The worst order of dying: every peer is gone before it has heard the goodbye of the control plane's sockets.

    Seen once in CI: the kernel kept the namespace, and with it the link to the machine, for their retries.
    """
    recorded = json.loads((checkout.folder / ".fleet" / "cluster" / "process.json").read_text())
    unheard = ["iptables", "-A", "OUTPUT", "-p", "tcp", "--tcp-flags", "FIN", "FIN", "-j", "DROP"]
    subprocess.run(["nsenter", "--net", f"--target={recorded['pid']}", *unheard], check=True)
    kill_hard(recorded["pid"])
    # cgroups are the machine's: the next start or stop removes them. Everything else goes with the process.
    deadline = time.monotonic() + 30
    while left := {kind: lines for kind, lines in remains(before).items() if kind != "cgroups"}:
        assert time.monotonic() < deadline, left
        time.sleep(0.5)
    again = checkout.make("up")
    assert again.status == 0, again.text[-4000:]
    infer(checkout.service_address())


def test_two_commands_at_once_take_turns(checkout: Checkout) -> None:
    """A second `make up` of one checkout waits for the first instead of breaking it."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if checkout.make("up").status == 0 else 1)
    second = checkout.make("up")
    _, status = os.waitpid(pid, 0)
    assert (os.waitstatus_to_exitcode(status), second.status) == (0, 0), second.text[-3000:]


def test_a_killed_update_is_waited_for_and_gone_on_with(checkout: Checkout) -> None:
    """Of a command that is killed the engine stays, and updates: the next must not begin beside it."""
    checkout.replace("Pulumi.local.yaml", "load_timeout_s: 120", "load_timeout_s: 150")
    try:
        killed = subprocess.Popen(
            [".venv/bin/python", "-m", "local", "up"],
            cwd=checkout.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert killed.stdout is not None
        for line in killed.stdout:
            if "Deployment minilm-" in line and "updating" in line:
                break
        killed.kill()
        killed.wait()
        again = checkout.make("up")
        killed.communicate()
        assert again.status == 0, again.text[-4000:]
        assert "pending operations" not in again.text
        infer(checkout.service_address())
        budgets = {
            container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"]
            for item in checkout.objects("deployments")
            for container in item["spec"]["template"]["spec"]["containers"]
        }
        assert min(budgets) >= 150
    finally:
        checkout.restore("Pulumi.local.yaml")
    assert checkout.make("up").status == 0


def test_down_after_a_kill_leaves_nothing(checkout: Checkout, before: dict[str, list[str]]) -> None:
    """The worst case last: the cluster is killed half-way, then `make down` has to clear what is left."""
    recorded = json.loads((checkout.folder / ".fleet" / "cluster" / "process.json").read_text())
    kill_hard(recorded["pid"])
    down = checkout.make("down")
    assert down.status == 0, down.text[-3000:]
    assert remains(before) == {}
    assert not (checkout.folder / ".fleet" / "cluster").exists()
    assert checkout.make("down").status == 0, "a second down has to find nothing and say so"


def test_a_full_turn_ends_with_a_destroy_that_leaves_nothing(checkout: Checkout, before: dict[str, list[str]]) -> None:
    up = checkout.make("up")
    assert up.status == 0, up.text[-4000:]
    store = checkout.folder / ".fleet" / "store"
    assert any(store.rglob("config.pbtxt"))
    down = checkout.make("down")
    assert down.status == 0, down.text[-3000:]
    assert " deleted" in down.text
    assert remains(before) == {}
    assert any(store.rglob("config.pbtxt")), "the store is retained"
