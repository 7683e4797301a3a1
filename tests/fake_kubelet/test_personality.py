"""Personalities: every version has one, any switch can be set, the documentation follows."""

from __future__ import annotations

from dataclasses import fields

import pytest

from fake_kubelet import personality as p


def test_every_version_has_a_value_for_every_switch() -> None:
    assert p.versions()[0] == "1.19"
    assert p.versions()[-1] == "1.37"
    names = {field.name for field in fields(p.Personality)} - {"version", "release"}
    assert names == set(p.switches())
    for version in p.versions():
        made = p.personality(version)
        assert made.version == version
        for name in names:
            assert getattr(made, name) in p.values(name)


@pytest.mark.parametrize(
    ("version", "switch", "value"),
    [
        ("1.24", "register_mode", "async"),
        ("1.25", "register_mode", "sync"),
        ("1.36", "stale_stream_disconnect", "by_name"),
        ("1.37", "stale_stream_disconnect", "by_socket"),
        ("1.28", "disconnect_nil_panic", "on"),
        ("1.29", "disconnect_nil_panic", "off"),
        ("1.22", "no_topology_numa_key", "0"),
        ("1.23", "no_topology_numa_key", "-1"),
        ("1.31", "checkpoint_reads_v1", "off"),
        ("1.33", "dir_cleanup", "sockets"),
        ("1.34", "podres_list_scope", "active"),
    ],
)
def test_versions_differ_where_they_did(version: str, switch: str, value: str) -> None:
    assert getattr(p.personality(version), switch) == value


def test_patch_releases_and_overrides() -> None:
    made = p.personality("v1.28.15", {"register_mode": "async"})
    assert (made.version, made.release, made.register_mode) == ("1.28", "v1.28.15", "async")
    assert p.personality().version == p.DEFAULT_VERSION == "1.28"


@pytest.mark.parametrize(
    ("version", "overrides", "said"),
    [
        ("1.18", {}, "wanted 1.19 to 1.37"),
        ("two", {}, "version 'two' is unknown"),
        ("1.28", {"colour": "on"}, "switch 'colour' is unknown"),
        ("1.28", {"register_mode": "later"}, "wanted async or sync"),
    ],
)
def test_unknown_words_are_named(version: str, overrides: dict[str, str], said: str) -> None:
    with pytest.raises(p.UnknownPersonality, match=said):
        p.personality(version, overrides)
