"""Handlers in containerd configurations of every version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.runtime.containerd_config import (
    BadConfig,
    UnknownHandler,
    add_handler,
    default_config,
    parse,
    remove_handler,
)

BINARY = "/usr/local/Ascend/Ascend-Docker-Runtime/ascend-docker-runtime"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_handler_is_added_beside_runc_and_removed_again(version: int) -> None:
    text = "# a comment\n" + default_config(version)
    added = add_handler(text, "ascend", BINARY)
    config = parse(added)
    assert config.version == version
    assert config.default == "runc"
    assert config.resolve("").binary == "runc"
    assert config.resolve("ascend").binary == BINARY
    assert "# a comment" in added
    with pytest.raises(UnknownHandler, match='no runtime for "ascend" is configured'):
        parse(remove_handler(added, "ascend")).resolve("ascend")


def test_vendor_installer_makes_it_the_default() -> None:
    config = parse(add_handler(default_config(), "ascend", BINARY, make_default=True))
    assert config.resolve("").binary == BINARY


@pytest.mark.parametrize("text", ["", "version = 2", "version = 'x'", "[plugins]\ncri = 3"])
def test_empty_and_odd_configurations_have_no_handler(text: str) -> None:
    assert parse(text).handlers == {}
    assert parse(add_handler("version = 2", "ascend", BINARY)).resolve("ascend").binary == BINARY


@given(st.text(max_size=60))
def test_no_text_makes_it_crash(text: str) -> None:
    try:
        parse(text)
    except BadConfig as error:
        assert str(error).startswith("not valid TOML")  # noqa: PT017 - either outcome is fine
