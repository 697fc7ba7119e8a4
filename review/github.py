"""The part of GitHub's REST API that a review needs: the labels of a pull request, and one comment on it."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from review.comment import MARKER

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S: Final = 30
PAGE: Final = 100
"""The largest page that GitHub gives."""
API_VERSION: Final = "2022-11-28"


class Refused(Exception):  # noqa: N818 - GitHub's answer, not a malfunction
    """GitHub did not do it; the text is its own, with status and path, and never holds the token."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """`repository` is owner/name. The token is a secret: it goes into one header and nowhere else."""

    api: str
    repository: str
    number: int
    token: str

    def labels(self) -> frozenset[str]:
        """As they are now: those of the event that started a workflow may be old when it is run again."""
        return frozenset(label["name"] for label in self._pages(f"issues/{self.number}/labels"))

    def publish(self, body: str) -> str:
        """Write the comment, or put the one that is there right. Returns what was done."""
        for comment in self._pages(f"issues/{self.number}/comments"):
            # A person who quotes the marker keeps the comment that is theirs.
            if str(comment.get("body") or "").startswith(MARKER) and comment["user"]["type"] == "Bot":
                if comment["body"].splitlines() == body.splitlines():
                    return "unchanged"
                self._call("PATCH", f"issues/comments/{comment['id']}", {"body": body})
                return "updated"
        self._call("POST", f"issues/{self.number}/comments", {"body": body})
        return "created"

    def _pages(self, path: str) -> Iterator[dict[str, Any]]:
        page = 1
        while True:
            found = self._call("GET", f"{path}?per_page={PAGE}&page={page}")
            yield from found
            if len(found) < PAGE:
                return
            page += 1

    def _call(self, method: str, path: str, document: object = None) -> Any:  # noqa: ANN401 - JSON
        if not re.match(r"https?://", self.api):
            raise Refused(f"{self.api!r} is no address of an API")
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
            f"{self.api.rstrip('/')}/repos/{self.repository}/{path}",
            method=method,
            data=None if document is None else json.dumps(document).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                "X-GitHub-Api-Version": API_VERSION,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - the same
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")[:300]
            raise Refused(f"{method} {path}: status {error.code}: {said}") from error
        except (OSError, ValueError) as error:
            raise Refused(f"{method} {path}: {error}") from error
