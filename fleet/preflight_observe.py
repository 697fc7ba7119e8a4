"""Rules between the settings of what observes the fleet: who hears of alerts."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from pydantic import SecretStr

from fleet import alert_routing, names
from fleet.faults import Fault, shown
from fleet.schema_observe import EmailReceiver

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from fleet.preflight import Draft
    from fleet.schema import Settings
    from fleet.schema_observe import Route


def refusals(draft: Draft) -> Iterator[Fault]:
    """What Alertmanager would not take, or would not do as it is meant."""
    yield from _receivers(draft)
    for index, route in draft.routes.items():
        yield from _route(f"alerts.routes[{index}]", route, draft)
    yield from _overlaps(draft)
    yield from _no_alertmanager(draft)


def warnings(draft: Draft) -> Iterator[Fault]:
    """Who may wait for a message in vain."""
    if draft.monitoring is None or not draft.monitoring.kube_prometheus_stack:
        return
    if not draft.receiver_names:
        if draft.environment == "prod":
            yield Fault(
                "alerts.receivers",
                "nothing",
                "at least one receiver",
                "alerts of prod would fire and nobody would hear of them",
                "add one; docs/alerts.md shows how its secret is set",
            )
        return
    routes = draft.routes
    named = {receiver for route in routes.values() for receiver in route.receivers}
    for index, receiver in draft.receiver_names if routes else ():
        if receiver not in named:
            yield Fault(
                f"alerts.receivers[{index}].name",
                shown(receiver),
                "a receiver that one of alerts.routes names",
                "with routes given, nobody hears who is in none of them",
                "name it in a route, or remove it",
            )
    own = (draft.environment, draft.namespace)
    if routes and all((route.environment, route.namespace) != own for route in routes.values()):
        yield Fault(
            "alerts.routes",
            ", ".join(f"{route.environment}/{route.namespace}" for route in routes.values()),
            f"a route of environment {draft.environment} and namespace {draft.namespace}",
            "the alerts of this very stack carry these, and no route takes them: nobody hears",
            "add such a route, or leave routes out for one to all receivers",
        )
    for index, route in routes.items():
        if route.environment != draft.environment:
            yield Fault(
                f"alerts.routes[{index}].environment",
                route.environment,
                f"{draft.environment}, the stack's own",
                f"alerts of {route.environment} come here only from a stack of {route.environment} in the same cluster "
                "whose monitoring.kube_prometheus_stack is false",
                f"move the route to the stack of {route.environment}, unless the two share this Alertmanager",
            )


def readable(settings: Settings, encrypted: Collection[str]) -> Iterator[Fault]:
    """Secrets that stand readable in the stack file; `encrypted` are the settings that are, by their paths.

    The engine tells it of a setting of the first level as a whole, which then stands for all that is in it: one
    readable secret beside an encrypted one is not noticed. `make preflight` reads the file and tells all.
    """
    if settings.environment == "local":
        return
    alerts, monitoring = settings.alerts, settings.monitoring
    places = [
        *(
            f"alerts.receivers[{index}].{name}"
            for index, receiver in enumerate(alerts.receivers)
            for name, value in receiver
            if isinstance(value, SecretStr)
        ),
        *(["alerts.dead_mans_switch"] if alerts.dead_mans_switch else []),
        *(["monitoring.grafana_password"] if monitoring.grafana_password else []),
    ]
    for place in places:
        if place not in encrypted and place.partition(".")[0] not in encrypted:
            yield Fault(
                place,
                "readable in the stack file",
                "an encrypted value",
                "whoever reads the repository can use it",
                f"replace it, and run `pulumi config set --secret --path '{names.CONFIG_NAMESPACE}:{place}'`",
            )


def _receivers(draft: Draft) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for index, name in draft.receiver_names:
        where = f"alerts.receivers[{index}].name"
        if name in alert_routing.RESERVED:
            yield Fault(
                where,
                shown(name),
                f"a name other than {' and '.join(sorted(alert_routing.RESERVED))}",
                "the program has receivers of these names: one that tells nobody, one for the sign of life",
                "choose another name",
            )
        elif name and name in first:
            yield Fault(
                where,
                shown(name),
                "a name of its own",
                f"alerts.receivers[{first[name]}] has that name, and routes find a receiver by it",
                "rename one of the two",
            )
        first.setdefault(name, index)
    for index, receiver in draft.receivers.items():
        if not isinstance(receiver, EmailReceiver) or (receiver.username is None) == (receiver.password is None):
            continue
        there, absent = ("username", "password") if receiver.password is None else ("password", "username")
        yield Fault(
            f"alerts.receivers[{index}].{absent}",
            "nothing",
            f"both username and password, or neither; {there} is given",
            "the mail server is told both at once, and mail would fail only when there is something to tell",
            f"add {absent}, or remove {there}",
        )


def _route(where: str, route: Route, draft: Draft) -> Iterator[Fault]:
    known = list(dict.fromkeys(name for _, name in draft.receiver_names if name))
    for number, receiver in enumerate(route.receivers):
        if receiver in route.receivers[:number]:
            yield Fault(
                f"{where}.receivers[{number}]",
                shown(receiver),
                "each receiver once",
                "it would be told everything twice",
                "remove one of the two",
            )
        elif receiver not in known:
            close = difflib.get_close_matches(receiver, known, n=1)
            yield Fault(
                f"{where}.receivers[{number}]",
                shown(receiver),
                f"one of {', '.join(known)}" if known else "the name of a receiver of alerts.receivers; there is none",
                "Alertmanager refuses a configuration that names a receiver it does not know",
                f"did you mean '{close[0]}'?" if close else "add the receiver to alerts.receivers, or name one of them",
            )


def _overlaps(draft: Draft) -> Iterator[Fault]:
    taken: dict[tuple[str, str, str], int] = {}
    for index, route in draft.routes.items():
        severities = dict.fromkeys(route.severities)
        twice = [one for one in severities if (route.environment, route.namespace, one) in taken]
        if twice:
            other = taken[route.environment, route.namespace, twice[0]]
            yield Fault(
                f"alerts.routes[{index}]",
                f"{route.environment}/{route.namespace}, {', '.join(twice)}",
                "an environment, namespace and severity that no other route takes",
                f"alerts.routes[{other}] takes these alerts, and an alert goes by one route alone",
                "put the receivers of both into one route, or part them by severities",
            )
        for severity in severities:
            taken.setdefault((route.environment, route.namespace, severity), index)


def _no_alertmanager(draft: Draft) -> Iterator[Fault]:
    if draft.monitoring is None or draft.monitoring.kube_prometheus_stack:
        return
    given = [
        name
        for name, there in (
            ("receivers", draft.receiver_names),
            ("routes", draft.routes),
            ("dead_mans_switch", draft.dead_mans_switch),
        )
        if there
    ]
    for name in given:
        yield Fault(
            f"alerts.{name}",
            "given",
            "nothing, where monitoring.kube_prometheus_stack is false",
            "the Alertmanager of this cluster is another's, and this stack does not change its configuration: nobody "
            "would hear",
            "configure it in the stack that installs kube-prometheus-stack, with a route of this environment and "
            "namespace",
        )
