"""What the program's own resources have in common: work that is done when one is made, and again when an input changes.

They work in the engine's provider process. The engine keeps a provider's serialised form in the state and makes it
again from there, by the name of its class: whatever one needs it imports when it runs, so that the state holds a name
and no code.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pulumi import dynamic


class Provider(dynamic.ResourceProvider):
    """A subclass says what its work is (`outputs`), which input asks for it again, and what the resource's id is."""

    serialize_as_secret_always = False

    renewed_by: ClassVar[str]
    """The input, kept as an output, whose change alone asks for the work again."""

    def configure(self, req: dynamic.ConfigureRequest) -> None:  # noqa: ARG002 - the base's signature
        """The engine shows what is raised with its traceback, which would bury the reason."""
        import sys  # noqa: PLC0415

        sys.tracebacklimit = 0

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        return dynamic.DiffResult(changes=_olds.get(self.renewed_by) != _news.get(self.renewed_by))

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        return dynamic.CreateResult(self.identity(props), self.outputs(props))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.UpdateResult:
        return dynamic.UpdateResult(self.outputs(_news))

    def identity(self, props: dict[str, Any]) -> str:
        """The resource's id."""
        raise NotImplementedError

    def outputs(self, props: dict[str, Any]) -> dict[str, Any]:
        """Does the work; what is kept of it."""
        raise NotImplementedError
