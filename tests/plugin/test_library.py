"""Which libdcmi.so is accepted: the safety rules of the vendor's plugin."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.plugin.library import DRIVER_DIRECTORIES, FileFact, LibraryRefused, choose

GOOD = "usr/local/Ascend/driver/lib64/driver/libdcmi.so"
EVERY_PLACE = [
    str(p) if str(p) != "." else "" for p in [PurePosixPath(GOOD), *PurePosixPath(GOOD).parents]
]


def tree(**changed: FileFact) -> dict[str, FileFact]:
    facts = {place: FileFact(mode=0o40755, uid=0) for place in EVERY_PLACE}
    facts[GOOD] = FileFact(mode=0o100644, uid=0)
    return facts | changed


def pick(facts: dict[str, FileFact], owners: frozenset[int] = frozenset({0})) -> str:
    return choose(facts.get, owners=owners, directories=DRIVER_DIRECTORIES)


def test_root_owned_unwritable_library_is_taken() -> None:
    assert pick(tree()) == GOOD


def test_missing_library_says_where_it_looked() -> None:
    facts = tree()
    del facts[GOOD]
    with pytest.raises(LibraryRefused, match="/usr/local/Ascend/driver/lib64/driver") as refusal:
        pick(facts)
    assert refusal.value.kind == "missing"


@given(st.sampled_from(EVERY_PLACE), st.sampled_from([0o020, 0o002, 0o022]))
def test_one_writable_place_anywhere_on_the_path_refuses_it(place: str, bits: int) -> None:
    fact = tree()[place]
    with pytest.raises(LibraryRefused, match="check uid or mode failed") as refusal:
        pick(tree(**{place: FileFact(mode=fact.mode | bits, uid=0)}))
    assert refusal.value.kind == "refused"
    assert f"/{place} " in str(refusal.value)


@given(st.sampled_from(EVERY_PLACE))
def test_one_stranger_owned_place_refuses_it_unless_that_owner_runs_us(place: str) -> None:
    facts = tree(**{place: FileFact(mode=tree()[place].mode, uid=1000)})
    with pytest.raises(LibraryRefused, match="uid 1000"):
        pick(facts)
    assert pick(facts, frozenset({0, 1000})) == GOOD
