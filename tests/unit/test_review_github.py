"""How the comment is found, written and put right; GitHub is a server of the test's on loopback."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from review.comment import MARKER
from review.github import PullRequest, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "a-token-of-the-test"
BODY = f"{MARKER}\n\nnew\n"
BOT = {"type": "Bot", "login": "github-actions[bot]"}
PERSON = {"type": "User", "login": "octocat"}


class GitHub:
    """Answers for one pull request, and remembers what it was asked."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.labels: list[str] = []
        self.refuses: tuple[int, str] | None = None
        self.asked: list[tuple[str, str, object]] = []
        self.headers: list[dict[str, str]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                hub.asked.append((self.command, self.path, body))
                hub.headers.append(dict(self.headers))
                status, text = hub.refuses or (200, json.dumps(hub.answer(self.path)))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = do_PATCH = answer  # noqa: N815 - as the base class names them

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def answer(self, path: str) -> object:
        path, _, query = path.partition("?")
        listed: list[dict[str, Any]] = []
        if path.endswith("/issues/12/comments"):
            listed = self.comments
        elif path.endswith("/issues/12/labels"):
            listed = [{"name": name} for name in self.labels]
        if not query:
            return {}
        page = int(query.partition("&page=")[2])
        assert query.startswith("per_page=100&")
        return listed[100 * (page - 1) : 100 * page]

    @property
    def pull(self) -> PullRequest:
        return PullRequest(f"http://127.0.0.1:{self.server.server_port}", "octo/fleet", 12, TOKEN)

    @property
    def written(self) -> list[tuple[str, str, object]]:
        return [one for one in self.asked if one[0] != "GET"]


@pytest.fixture
def github() -> Iterator[GitHub]:
    hub = GitHub()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    hub.thread.join()


def test_labels_are_read_from_every_page(github: GitHub) -> None:
    github.labels = [f"label-{number}" for number in range(100)]
    assert github.pull.labels() == {f"label-{number}" for number in range(100)}
    assert [path for _, path, _ in github.asked] == [
        f"/repos/octo/fleet/issues/12/labels?per_page=100&page={page}" for page in (1, 2)
    ]
    assert {headers["Authorization"] for headers in github.headers} == {f"Bearer {TOKEN}"}


CREATED = ("created", [("POST", "/repos/octo/fleet/issues/12/comments", {"body": BODY})])
UPDATED = ("updated", [("PATCH", "/repos/octo/fleet/issues/comments/3", {"body": BODY})])


@pytest.mark.parametrize(
    ("comments", "done"),
    [
        pytest.param([], CREATED, id="the first time"),
        pytest.param([{"id": 3, "user": BOT, "body": f"{MARKER}\nold"}], UPDATED, id="put right"),
        pytest.param(
            [{"id": 3, "user": BOT, "body": BODY.replace("\n", "\r\n").rstrip()}], ("unchanged", []), id="as it is"
        ),
        pytest.param([{"id": 3, "user": PERSON, "body": f"{MARKER}\nmine"}], CREATED, id="a person's"),
        pytest.param([{"id": 3, "user": BOT, "body": f"see {MARKER}"}], CREATED, id="another bot that quotes it"),
        pytest.param([{"id": 3, "user": BOT, "body": None}], CREATED, id="an empty one"),
        pytest.param(
            [*({"id": 9, "user": PERSON, "body": "talk"} for _ in range(150)), {"id": 3, "user": BOT, "body": MARKER}],
            UPDATED,
            id="behind many others",
        ),
    ],
)
def test_there_is_one_comment_and_it_is_put_right(
    github: GitHub, comments: list[dict[str, Any]], done: tuple[str, list[tuple[str, str, object]]]
) -> None:
    github.comments = comments
    assert (github.pull.publish(BODY), github.written) == done


def test_what_github_refuses_is_told_without_the_token(github: GitHub) -> None:
    github.refuses = (403, '{"message": "Resource not accessible by integration"}')
    with pytest.raises(Refused) as refused:
        github.pull.publish(BODY)
    assert str(refused.value) == (
        'GET issues/12/comments?per_page=100&page=1: status 403: {"message": "Resource not accessible by integration"}'
    )
    assert TOKEN not in repr(refused.value.__cause__)


def test_an_answer_that_is_no_json_is_told(github: GitHub) -> None:
    github.refuses = (200, "<html>")
    with pytest.raises(Refused, match=r"^GET issues/12/labels"):
        github.pull.labels()


@pytest.mark.parametrize("api", ["", "file:///etc/passwd", "ftp://api"])
def test_only_the_web_is_asked(api: str) -> None:
    with pytest.raises(Refused, match="is no address of an API"):
        PullRequest(api, "octo/fleet", 12, TOKEN).labels()


def test_a_server_that_is_not_there_is_told(github: GitHub) -> None:
    pull = github.pull
    github.server.server_close()
    with pytest.raises(Refused, match=r"^GET issues/12/labels"):
        pull.labels()
