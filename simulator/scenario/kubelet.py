"""The kubelet a scenario asks for."""

from __future__ import annotations

from fake_kubelet.kubelet import Settings
from fake_kubelet.personality import Personality, UnknownPersonality, personality
from simulator.errors import ScenarioError
from simulator.scenario.schema import Scenario


def kubelet_settings(scenario: Scenario) -> Settings:
    """Times and policies of the node's kubelet."""
    settings = scenario.kubelet
    return Settings(
        node_status_update_s=settings.node_status_update_s,
        topology_policy=settings.topology_policy,
    )


def kubelet_personality(scenario: Scenario) -> Personality:
    """The Kubernetes version it behaves like. Raises ScenarioError for one there is none of."""
    settings = scenario.kubelet
    try:
        return personality(settings.version, settings.switches)
    except UnknownPersonality as error:
        raise ScenarioError(f"{scenario.name}: kubelet: {error}.") from None
