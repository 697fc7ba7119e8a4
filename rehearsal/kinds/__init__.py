"""Every resource type that the stand-in `aws` holds; it refuses all others."""

from __future__ import annotations

from rehearsal.kinds import cluster, identity, network, storage

KINDS = {kind.token: kind for kind in (*network.KINDS, *identity.KINDS, *storage.KINDS, *cluster.KINDS)}
