"""The account on disk: one file per stack, changed by one process at a time, never seen half written."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
from typing import TYPE_CHECKING

from rehearsal import faults
from rehearsal.account import Account, Thing
from rehearsal.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rehearsal.faults import Order


def number_of(stack: str) -> str:
    """Twelve digits of the stack's own: dev and prod are different accounts."""
    digest = int(hashlib.sha256(stack.encode()).hexdigest(), 16)
    return str(10**11 + digest % (9 * 10**11))


class Ledger:
    """The files of one stack in the folder that TRITON_FLEET_ACCOUNT names."""

    def __init__(self, folder: Path, stack: str) -> None:
        self.path = folder / f"{stack}.json"
        self.orders = folder / f"{stack}.faults.json"
        self.stack = stack

    @contextlib.contextmanager
    def opened(self) -> Iterator[Account]:
        """The account, written back when the block ends without an error."""
        with self._alone():
            account = self._load()
            yield account
            self._write(self.path, self._document(account))

    def read(self) -> Account:
        with self._alone():
            return self._load()

    def take(self, op: faults.Op, token: str, name: str) -> Order | None:
        """The ordered fault that a call meets; it is used up."""
        if not self.orders.exists():
            return None
        with self._alone():
            met, left = faults.take(faults.parse(json.loads(self.orders.read_text())), op, token, name)
            if met is not None:
                self._write(self.orders, [order.as_json() for order in left])
            return met

    def order(self, *orders: Order) -> None:
        """Orders these faults, in place of any that were ordered before."""
        self.orders.parent.mkdir(parents=True, exist_ok=True)
        self._write(self.orders, [order.as_json() for order in orders])

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _load(self) -> Account:
        if not self.path.exists():
            return Account(number_of(self.stack), KINDS)
        document = json.loads(self.path.read_text())
        things = [Thing(**thing) for thing in document["resources"].values()]
        account = Account(document["number"], KINDS, things, document["serial"])
        account.events = document["events"]
        return account

    @staticmethod
    def _document(account: Account) -> dict[str, object]:
        return {
            "number": account.number,
            "serial": account.serial,
            "resources": {key: thing.as_json() for key, thing in account.things.items()},
            "events": account.events,
        }

    @staticmethod
    def _write(path: Path, document: object) -> None:
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(document, indent=1))
        scratch.replace(path)
