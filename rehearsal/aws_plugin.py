"""The stand-in `aws` provider: the account behind the real engine's protocol.

Configured by the environment: TRITON_FLEET_ACCOUNT is the folder of accounts. The region comes from the provider's
own configuration and from nowhere else, so a program that leans on somebody's shell fails here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from pulumi.provider.experimental import provider as sdk
from pulumi.provider.experimental import server
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime import proto
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import provider_pb2_grpc, status_pb2

from rehearsal import faults, functions, process, wire
from rehearsal.account import UNKNOWN, ApiError, Kind, Thing, nested, replaced_by, static_faults
from rehearsal.kinds import KINDS
from rehearsal.ledger import Ledger
from rehearsal.shapes import ResourceShape, Shapes
from rehearsal.shapes import faults as shape_faults

ACCOUNT_VARIABLE = "TRITON_FLEET_ACCOUNT"
RETRY_DELAY_S = 0.01
FLUSH_S = 0.5
"""What was answered before a crash must have reached the engine."""
NAME_DIGITS = 7
DEFAULTED = "__defaults"
"""Where the provider notes which inputs it made itself; the real one does the same."""


class RefusalError(Exception):
    """What the engine is told; `initialised` when the resource was made nevertheless."""

    def __init__(self, message: str, initialised: tuple[str, dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.initialised = initialised


def type_of(urn: str) -> str:
    """The type of a resource; before it stand those of its parents."""
    return urn.split("::")[2].rsplit("$", maxsplit=1)[-1]


def folder() -> Path:
    there = os.environ.get(ACCOUNT_VARIABLE)
    if not there:
        raise RefusalError(
            f"the stand-in aws keeps its accounts in the folder that {ACCOUNT_VARIABLE} names, which is not set"
        )
    return Path(there)


def version() -> str:
    return metadata.version("pulumi_aws")


class Aws(sdk.Provider):
    """One configured provider: the stack's account in one region."""

    def __init__(self) -> None:
        self.stack = ""
        self.region = ""
        self.default_tags: dict[str, str] = {}
        self.crashing = False
        self.shapes = Shapes(folder() / "types" / f"{version()}.json")

    @property
    def ledger(self) -> Ledger:
        return Ledger(folder(), self.stack)

    async def check_config(self, request: sdk.CheckRequest) -> sdk.CheckResponse:
        self._learn_stack(request.urn)
        if not wire.plain_map(request.new_inputs).get("region"):
            reason = "invalid AWS region: the provider is given none (aws:region, or region of the Provider)"
            return sdk.CheckResponse(failures=[sdk.CheckFailure("region", reason)])
        return sdk.CheckResponse(inputs=request.new_inputs)

    async def configure(self, request: sdk.ConfigureRequest) -> sdk.ConfigureResponse:
        arguments = wire.plain_map(request.args)
        self.region = str(arguments.get("region", ""))
        # Nested values of a provider's own configuration travel as JSON text.
        self.default_tags = json.loads(arguments.get("defaultTags") or "{}").get("tags") or {}
        return sdk.ConfigureResponse(supports_preview=True)

    async def diff_config(self, request: sdk.DiffRequest) -> sdk.DiffResponse:
        self._learn_stack(request.urn)
        return sdk.DiffResponse(changes=request.old_state != request.new_inputs)

    def _learn_stack(self, urn: str) -> None:
        self.stack = urn.split("::", maxsplit=1)[0].rpartition(":")[2]

    def _kind(self, token: str) -> tuple[Kind, ResourceShape]:
        if token not in KINDS:
            raise RefusalError(f"the stand-in aws has no resource type {token}; add it to rehearsal/kinds")
        return KINDS[token], self.shapes[token]

    async def check(self, request: sdk.CheckRequest) -> sdk.CheckResponse:
        self._learn_stack(request.urn)
        kind, shape = self._kind(type_of(request.urn))
        inputs = wire.plain_map(request.new_inputs)
        inputs.pop(DEFAULTED, None)
        found = [*shape_faults(shape.inputs, inputs), *static_faults(kind, inputs)]
        failures = [sdk.CheckFailure(path, reason) for path, reason in found]
        named = self._named(kind, request, inputs)
        return sdk.CheckResponse(inputs=wire.wrapped_map(named), failures=failures)

    @staticmethod
    def _named(kind: Kind, request: sdk.CheckRequest, inputs: dict[str, Any]) -> dict[str, Any]:
        """A resource without a name gets one made from Pulumi's, and keeps it."""
        if not kind.name or inputs.get(kind.name) is not None:
            return inputs
        olds, asked = wire.plain_map(request.old_inputs), f"{kind.name}Prefix"
        if kind.name in olds.get(DEFAULTED, ()) and olds.get(asked) == inputs.get(asked):
            name = olds[kind.name]
        else:
            prefix = inputs.get(asked) or f"{'alias/' if 'alias' in kind.token else ''}{request.name}-"
            digits = hashlib.sha256(request.random_seed or request.urn.encode()).hexdigest()[:NAME_DIGITS]
            name = f"{prefix[: kind.name_limit - NAME_DIGITS]}{digits}"
        return {**inputs, kind.name: name, DEFAULTED: [kind.name]}

    def difference(self, token: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> sdk.DiffResponse:
        """What changed, judged by what the program asked for before and asks for now."""
        kind, _ = self._kind(token)
        names = {name for name in (*olds, *news) if not name.startswith("__")}
        changed = sorted(name for name in names if olds.get(name) != news.get(name))
        replaces = replaced_by(kind, olds, news)
        own_name = (
            bool(kind.name) and news.get(kind.name) == olds.get(kind.name) and kind.name not in news.get(DEFAULTED, ())
        )
        detailed = {}
        for name in changed:
            step = "ADD" if name not in olds else "DELETE" if name not in news else "UPDATE"
            how = sdk.PropertyDiffKind[f"{step}_REPLACE" if name in replaces else step]
            detailed[name] = sdk.PropertyDiff(how, input_diff=True)
        return sdk.DiffResponse(
            changes=bool(changed),
            replaces=replaces,
            diffs=changed,
            # A name that the program chose can exist only once, so the old one goes first.
            delete_before_replace=bool(replaces) and own_name,
            detailed_diff=detailed,
        )

    def _state(self, shape: ResourceShape, thing: Thing) -> dict[str, Any]:
        state = {**thing.outputs}
        if "tagsAll" in shape.outputs:
            state["tagsAll"] = {**self.default_tags, **(thing.outputs.get("tags") or {})}
        if "region" in shape.outputs:
            state.setdefault("region", self.region)
        return {name: value for name, value in state.items() if name in shape.outputs and value is not None}

    async def create(self, request: sdk.CreateRequest) -> sdk.CreateResponse:
        self._learn_stack(request.urn)
        kind, shape = self._kind(type_of(request.urn))
        inputs = wire.plain_map(request.properties)
        if request.preview:
            return sdk.CreateResponse(properties=wire.wrapped_map(self._planned(kind, shape, inputs)))
        order = await self._meet("create", type_of(request.urn), request.name)
        with self.ledger.opened() as account:
            thing = account.create(type_of(request.urn), request.urn, self._without_notes(inputs), self.region)
        state = self._state(shape, thing)
        await self._after(order)
        if order is not None and order.fault == "not_found_after_create":
            message = f"reading {type_of(request.urn)} ({thing.id}) after its creation: couldn't find resource"
            raise RefusalError(message, (thing.id, state))
        return sdk.CreateResponse(resource_id=thing.id, properties=wire.wrapped_map(state))

    @staticmethod
    def _without_notes(inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in inputs.items() if not name.startswith("__") and value is not None}

    def _planned(self, kind: Kind, shape: ResourceShape, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs of a resource that is yet to come: known where they are inputs, else unknown."""
        known = self._without_notes(inputs)
        planned = {name: known.get(name, UNKNOWN) for name in shape.outputs}
        for name, inside in kind.nested.items():
            if isinstance(known.get(name), Mapping):
                planned[name] = {**dict.fromkeys(inside, UNKNOWN), **known[name]}
        if "tagsAll" in planned:
            planned["tagsAll"] = (
                {**self.default_tags, **known.get("tags", {})} if known.get("tags") != UNKNOWN else UNKNOWN
            )
        return planned

    async def update(self, request: sdk.UpdateRequest) -> sdk.UpdateResponse:
        self._learn_stack(request.urn)
        kind, shape = self._kind(type_of(request.urn))
        inputs = wire.plain_map(request.news)
        if request.preview:
            olds = wire.plain_map(request.olds)
            planned = {**olds, **self._without_notes(inputs), **nested(kind, olds, inputs)}
            planned |= dict.fromkeys(kind.renewed_names, UNKNOWN)
            return sdk.UpdateResponse(wire.wrapped_map(planned))
        order = await self._meet("update", type_of(request.urn), request.name)
        with self.ledger.opened() as account:
            thing = account.update(type_of(request.urn), request.resource_id, self._without_notes(inputs))
        await self._after(order)
        return sdk.UpdateResponse(wire.wrapped_map(self._state(shape, thing)))

    async def delete(self, request: sdk.DeleteRequest) -> None:
        self._learn_stack(request.urn)
        self._kind(type_of(request.urn))
        order = await self._meet("delete", type_of(request.urn), request.name)
        with self.ledger.opened() as account:
            account.delete(type_of(request.urn), request.resource_id)
        await self._after(order)

    async def read(self, request: sdk.ReadRequest) -> sdk.ReadResponse:
        self._learn_stack(request.urn)
        _, shape = self._kind(type_of(request.urn))
        thing = self.ledger.read().get(type_of(request.urn), request.resource_id)
        if thing is None:
            return sdk.ReadResponse(resource_id="")
        notes = {name: value for name, value in wire.plain_map(request.inputs).items() if name.startswith("__")}
        return sdk.ReadResponse(
            thing.id, wire.wrapped_map(self._state(shape, thing)), wire.wrapped_map({**thing.inputs, **notes})
        )

    async def invoke(self, request: sdk.InvokeRequest) -> sdk.InvokeResponse:
        arguments = wire.plain_map(request.args)
        answer = functions.call(self.ledger.read(), request.tok, str(arguments.get("region") or self.region), arguments)
        return sdk.InvokeResponse(wire.wrapped_map(answer))

    async def _meet(self, op: faults.Op, token: str, name: str) -> faults.Order | None:
        """What an ordered fault does before the call takes effect."""
        if self.crashing:
            await asyncio.Event().wait()
        order = self.ledger.take(op, token, name)
        if order is None:
            return None
        if order.fault == "throttle":
            for attempt in range(1, order.times + 1):
                if attempt > faults.RETRIES:
                    raise ApiError("ThrottlingException", f"rate exceeded, {faults.RETRIES} retries; {token} {name}")
                await asyncio.sleep(RETRY_DELAY_S)
        if order.fault == "quota":
            raise ApiError("LimitExceededException", f"you have reached your quota for {token}; {name} was not made")
        if order.fault == "slow_create":
            await asyncio.sleep(order.seconds)
        if order.fault == "crash" and order.when == "before":
            await self._crash()
        return order

    async def _after(self, order: faults.Order | None) -> None:
        if order is not None and order.fault == "crash":
            await self._crash()

    async def _crash(self) -> None:
        """What was answered has left, what is asked from now on is never begun, and then nothing is there any more."""
        self.crashing = True
        await asyncio.sleep(FLUSH_S)
        process.kill_the_engine()


class Servicer(server.ProviderServicer):
    """The SDK's server, with two differences: a refusal is told without a traceback, and a difference is judged by
    the old inputs, which the SDK does not hand on.
    """

    async def Diff(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - as in the base
        async def judged() -> Any:  # noqa: ANN401 - as in the base
            olds, news = (
                wire.plain_map(PropertyValue.unmarshal_map(values)) for values in (request.old_inputs, request.news)
            )
            provider = self._provider
            assert isinstance(provider, Aws)  # noqa: S101 - what serve() made
            provider._learn_stack(request.urn)  # noqa: SLF001 - one class in two halves
            for name in request.ignoreChanges:
                ignore(name, olds, news)
            answer = provider.difference(type_of(request.urn), olds, news)
            return proto.DiffResponse(
                replaces=answer.replaces,
                deleteBeforeReplace=answer.delete_before_replace,
                changes=proto.DiffResponse.DIFF_SOME if answer.changes else proto.DiffResponse.DIFF_NONE,
                diffs=answer.diffs,
                detailedDiff={
                    name: proto.PropertyDiff(kind=proto.PropertyDiff.Kind.Value(one.kind.name), inputDiff=True)
                    for name, one in answer.detailed_diff.items()
                },
                hasDetailedDiff=True,
            )

        return await told(context, judged())

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - as in the base
        return await told(context, super().Check(request, context))

    async def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - as in the base
        return await told(context, super().CheckConfig(request, context))

    async def Create(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - as in the base
        return await told(context, super().Create(request, context))

    async def Update(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - as in the base
        return await told(context, super().Update(request, context))

    async def Delete(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - as in the base
        return await told(context, super().Delete(request, context))

    async def Read(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - as in the base
        return await told(context, super().Read(request, context))

    async def Invoke(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - as in the base
        return await told(context, super().Invoke(request, context))


def ignore(path: str, olds: dict[str, Any], news: dict[str, Any]) -> None:
    """Takes the old value at a path that the program said to ignore; the engine has done so for most."""
    head, _, rest = path.partition(".")
    if rest and isinstance(olds.get(head), dict) and isinstance(news.get(head), dict):
        ignore(rest, olds[head], news[head])
    elif head in olds:
        news[head] = olds[head]
    else:
        news.pop(head, None)


async def told(context: Any, answer: Any) -> Any:  # noqa: ANN401 - grpc has no types
    """The answer, or the reason why there is none as the engine shows it."""
    try:
        return await answer
    except Exception as error:
        cause = error if isinstance(error, RefusalError | ApiError | LookupError) else error.__context__
        if not isinstance(cause, RefusalError | ApiError | LookupError):
            raise
        message = str(cause.args[0]) if cause.args else str(cause)
        made = cause.initialised if isinstance(cause, RefusalError) else None
        if made is None:
            await context.abort(grpc.StatusCode.UNKNOWN, message)
            raise
        status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=message)
        detail = proto.ErrorResourceInitFailed(
            id=made[0], properties=PropertyValue.marshal_map(wire.wrapped_map(made[1])), reasons=[message]
        )
        status.details.add().Pack(detail)
        trailing = (("grpc-status-details-bin", status.SerializeToString()),)
        await context.abort(grpc.StatusCode.UNKNOWN, message, trailing)
        raise


async def serve(engine: str) -> None:
    there = grpc.aio.server(options=_GRPC_CHANNEL_OPTIONS)
    servicer = Servicer(sys.argv, version(), Aws(), engine_address=engine)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, there)
    port = there.add_insecure_port("127.0.0.1:0")
    await there.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await there.wait_for_termination()


def main() -> None:
    process.die_with_the_engine()
    try:
        asyncio.run(serve(next(one for one in sys.argv[1:] if not one.startswith("-"))))
    except KeyboardInterrupt:
        return
    except RefusalError as refusal:
        sys.exit(str(refusal))
