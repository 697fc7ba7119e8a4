"""After a crash: what was made in the account, but is only a pending operation in the stack's state.

The engine forgets such an operation and makes the resource again. It is not made again when its id is put into the
state (`pulumi stack export`, `adopted`, `pulumi stack import`) and read back (`pulumi refresh`). `pulumi refresh
--import-pending-creates` does not do it: in v3.274 it relabels the operation and reads nothing. Against AWS the ids
are looked for by hand, by the tags; here the account knows. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rehearsal.account import Account


def pending(state: Mapping[str, Any], account: Account) -> dict[str, str]:
    """Id by URN of each creation that took effect and was not recorded. `state` is what `pulumi stack export` gives."""
    made = {thing.urn: thing.id for thing in account.things.values()}
    begun = [operation["resource"]["urn"] for operation in _operations(state) if operation["type"] == "creating"]
    return {urn: made[urn] for urn in begun if urn in made}


def adopted(state: Mapping[str, Any], found: Mapping[str, str]) -> dict[str, Any]:
    """The state with these resources in it, by their ids, and without the operations that began them."""
    deployment = state["deployment"]
    taken = [
        {**operation["resource"], "id": found[operation["resource"]["urn"]]}
        for operation in _operations(state)
        if operation["resource"]["urn"] in found
    ]
    changed = {**deployment, "resources": [*deployment["resources"], *taken], "pending_operations": []}
    return {**state, "deployment": changed}


def _operations(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(state["deployment"].get("pending_operations") or ())
