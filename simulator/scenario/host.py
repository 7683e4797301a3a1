"""The cards of a scenario's node."""

from __future__ import annotations

from fake_dcmi.host_files import BREAKS
from simulator.errors import ScenarioError
from simulator.hardware.model import Hardware
from simulator.scenario.profiles import find_profile
from simulator.scenario.schema import Scenario


def expected_chips(scenario: Scenario) -> int:
    """How many devices the node should show when nothing is broken."""
    profile, cards = find_profile(scenario.node.profile), scenario.node.cards
    return (profile.cards if cards is None else cards) * profile.chips_per_card


def host_breaks(scenario: Scenario) -> frozenset[str]:
    """What is wrong with the host's files; `library:` is the short way to say some of it."""
    settings = scenario.node
    breaks = set(settings.breaks)
    if settings.library != "ok":
        breaks.add(f"library-{settings.library}")
    unknown = breaks - set(BREAKS)
    if unknown:
        raise ScenarioError(
            f"{scenario.name}: node: breaks: {', '.join(sorted(unknown))} unknown, "
            f"allowed: {', '.join(BREAKS)}."
        )
    return frozenset(breaks)


def make_hardware(scenario: Scenario, seed: int) -> Hardware:
    """The hardware model as the scenario's `node:` describes it."""
    settings = scenario.node
    try:
        hardware = Hardware(
            find_profile(settings.profile),
            cards=settings.cards,
            driver_version=settings.driver_version,
            seed=seed,
            phy_ids=settings.phy_ids,
        )
        if settings.listed_cards is not None:
            hardware.list_only(settings.listed_cards)
    except ValueError as error:
        raise ScenarioError(f"{scenario.name}: node: {error}.") from None
    hardware.logs_calls = settings.log_calls
    host_breaks(scenario)
    return hardware
