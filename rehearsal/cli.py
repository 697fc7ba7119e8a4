"""The stand-in for the AWS CLI: it answers what this program asks of it, from the account that the stand-ins keep.

aws eks describe-addon --region R --cluster-name C --addon-name A --query addon.status --output text
aws --region R eks get-token --cluster-name C --output json
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

ADDON = "aws:eks/addon:Addon"
NOT_FOUND = 254
"""Exit status of the AWS CLI when the service refuses: https://docs.aws.amazon.com/cli/latest/userguide/cli-usage-returncodes.html"""


def addons(folder: Path) -> set[tuple[str, str]]:
    """Cluster and name of each add-on in any stack's account."""
    found = set()
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text())
        # Beside the accounts lie ordered faults, and a cache of what types there are.
        things = document["resources"].values() if isinstance(document, dict) and "resources" in document else ()
        found |= {
            (thing["inputs"]["clusterName"], thing["inputs"]["addonName"]) for thing in things if thing["type"] == ADDON
        }
    return found


def credential(kubeconfig: Path) -> dict[str, Any]:
    """What the CLI tells kubectl, with the certificate of the cluster that plays EKS' in the place of a token."""
    (user,) = yaml.safe_load(kubeconfig.read_text())["users"]
    certificate, key = (
        base64.b64decode(user["user"][name]).decode() for name in ("client-certificate-data", "client-key-data")
    )
    return {
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "spec": {},
        "status": {"clientCertificateData": certificate, "clientKeyData": key},
    }


def _token(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="aws", description=__doc__)
    parser.add_argument("--region", required=True)
    parser.add_argument("service", choices=["eks"])
    parser.add_argument("operation", choices=["get-token"])
    parser.add_argument("--cluster-name", required=True)
    parser.add_argument("--output", choices=["json"], required=True)
    parser.parse_args(arguments)
    sys.stdout.write(json.dumps(credential(Path(os.environ["TRITON_FLEET_REHEARSAL_KUBECONFIG"]))))
    return 0


def main(arguments: Sequence[str]) -> int:
    """Answers one command line; refuses any other."""
    if "get-token" in arguments:
        return _token(arguments)
    parser = argparse.ArgumentParser(prog="aws", description=__doc__)
    parser.add_argument("service", choices=["eks"])
    parser.add_argument("operation", choices=["describe-addon"])
    for option in ("--region", "--cluster-name", "--addon-name"):
        parser.add_argument(option, required=True)
    parser.add_argument("--query", choices=["addon.status"], required=True)
    parser.add_argument("--output", choices=["text"], required=True)
    asked = parser.parse_args(arguments)
    if (asked.cluster_name, asked.addon_name) in addons(Path(os.environ["TRITON_FLEET_ACCOUNT"])):
        sys.stdout.write("ACTIVE\n")
        return 0
    sys.stderr.write(
        "An error occurred (ResourceNotFoundException) when calling the DescribeAddon operation: "
        f"No addon: {asked.addon_name} found in cluster: {asked.cluster_name}\n"
    )
    return NOT_FOUND
