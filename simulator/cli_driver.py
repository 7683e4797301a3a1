"""Commands about the driver and the cards: calls, hccn, profiles, faults, bench."""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simulator.directory import directory_of, read_description
from simulator.errors import HostError, ScenarioError

FOLLOW_S = 0.2


def add_commands(commands: Any) -> None:
    """Put this module's commands on the command line."""
    calls = commands.add_parser("calls", help="who called which driver function, with what result")
    calls.add_argument("--follow", action="store_true", help="go on until interrupted")
    calls.add_argument("--function", help="only this function")
    calls.add_argument("--json", action="store_true", help="print JSON, a line each")
    calls.add_argument("--dir", type=Path, help="the testbed's directory")
    calls.set_defaults(run=_calls)

    # The tool's own options start with a dash, so ours must not be looked for among them.
    hccn = commands.add_parser(
        "hccn", help="hccn_tool of the running testbed's node", prefix_chars="+", add_help=False
    )
    hccn.add_argument("arguments", nargs="*", metavar="[--dir DIR] ARGUMENT")
    hccn.set_defaults(run=_hccn)

    profiles = commands.add_parser("profiles", help="the products a node can have")
    profiles.add_argument("--json", action="store_true", help="print JSON")
    profiles.set_defaults(run=_profiles)

    faults = commands.add_parser("faults", help="the fault codes, with name, level and severity")
    faults.add_argument("word", nargs="?", default="", help="only those that hold this text")
    faults.add_argument("--json", action="store_true", help="print JSON")
    faults.set_defaults(run=_faults)

    bench = commands.add_parser("bench", help="measure this machine against our numbers")
    bench.add_argument("what", choices=("dcmi", "kubelet"))
    bench.add_argument("--peer", metavar="LIBRARY:ADAPTER", help="another library to compare with")
    bench.add_argument("--quick", action="store_true", help="fewer calls, rougher numbers")
    bench.add_argument("--json", action="store_true", help="print JSON")
    bench.set_defaults(run=_bench)


def _root(arguments: argparse.Namespace) -> Path:
    return Path(read_description(directory_of(arguments.dir))["root"])


def _calls(arguments: argparse.Namespace) -> int:
    from fake_dcmi import api, host_files
    from fake_dcmi.call_log import CallLog, LoggedCall

    wanted = arguments.function
    if wanted is not None and wanted not in api.functions():
        raise ScenarioError(f"calls: {wanted!r} is none of the driver's functions.")
    log = CallLog(_root(arguments) / host_files.IMAGE)

    def show(call: LoggedCall) -> None:
        if wanted is not None and call.name != wanted:
            return
        if arguments.json:
            row = {
                "at": call.at_s,
                "pid": call.pid,
                "program": call.program,
                "function": call.name,
                "card": call.card_id,
                "chip": call.device_id,
                "code": call.code,
            }
            print(json.dumps(row), flush=True)
            return
        at = datetime.fromtimestamp(call.at_s, UTC).strftime("%H:%M:%S.%f")[:-3]
        where = "" if call.card_id is None else f"card {call.card_id} chip {call.device_id or 0}"
        who = f"{call.program}[{call.pid}]"
        print(f"{at}  {who:24}  {call.name:44}  {where:16}  {call.code}", flush=True)

    try:
        found = log.read_all()
        if not found and not arguments.follow:
            print("no calls are logged. Next: npu-testbed inject call-log", file=sys.stderr)
        for call in found:
            show(call)
        while arguments.follow:
            time.sleep(FOLLOW_S)
            for call in log.read():
                show(call)
    finally:
        log.close()
    return 0


def _hccn(arguments: argparse.Namespace) -> int:
    import subprocess

    from fake_dcmi import host_files

    words = list(arguments.arguments)
    given = None
    if words[:1] == ["--dir"]:
        given, words = (Path(words[1]) if len(words) > 1 else None), words[2:]
    program = Path(read_description(directory_of(given))["root"]) / host_files.HCCN_TOOL
    if not program.is_file():
        raise HostError(f"{program}: is missing on this node. Next: see node.breaks.")
    return subprocess.run([str(program), *words], check=False).returncode


def _profiles(arguments: argparse.Namespace) -> int:
    import dataclasses

    from simulator.hardware.profile import load_profile, names

    found = [load_profile(name) for name in names()]
    if arguments.json:
        print(json.dumps([dataclasses.asdict(profile) for profile in found]))
        return 0
    for profile in found:
        chips = f"{profile.cards} x {profile.chips_per_card}"
        memory = f"{(profile.hbm_mb or profile.ddr_mb) // 1024} GB"
        print(
            f"{profile.name:26} {profile.family:6} {profile.chip_name:12} {chips:7} {memory:7}"
            f" {profile.aicore_count:3} cores  {profile.product}"
        )
    return 0


def _faults(arguments: argparse.Namespace) -> int:
    from simulator.hardware.faults import names, switch_faults

    word = arguments.word.lower()
    rows = [
        {
            "code": f"{kind.code:08X}",
            "name": name,
            "level": kind.level,
            "severity": kind.severity.name.lower(),
            "description": kind.description,
        }
        for name, kind in sorted(names().items(), key=lambda pair: pair[1].code)
    ]
    rows += [
        {"code": fault.code, "name": "", "level": fault.level, "severity": "", "description": ""}
        for fault in switch_faults().values()
    ]
    rows = [row for row in rows if word in " ".join(row.values()).lower()]
    if arguments.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        print(f"{row['code']:28} {row['level']:18} {row['severity']:9} {row['name']}")
        if row["description"]:
            print(f"    {row['description']}")
    if not rows:
        print(f"no fault holds {arguments.word!r}", file=sys.stderr)
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from simulator import bench

    peer = None
    if arguments.peer is not None and arguments.what != "dcmi":
        raise ScenarioError(f"bench {arguments.what}: --peer is for dcmi only.")
    if arguments.peer is not None:
        path, colon, adapter = arguments.peer.rpartition(":")
        if not colon:
            raise ScenarioError(f"bench: --peer {arguments.peer!r}, wanted LIBRARY:ADAPTER.")
        peer = (path, adapter)

    def say(text: str) -> None:
        if not arguments.json:
            print(f"... {text}", file=sys.stderr, flush=True)

    if arguments.what == "kubelet":
        lines = bench.kubelet(quick=arguments.quick, say=say)
    else:
        lines = bench.dcmi(peer=peer, quick=arguments.quick, say=say)
    if arguments.json:
        print(
            json.dumps(
                [
                    {"what": line.what, "value": line.value, "unit": line.unit, "limit": line.limit}
                    for line in lines
                ]
            )
        )
    else:
        for line in lines:
            limit = "" if line.limit is None else f"limit {line.limit:g} {line.unit}"
            mark = "ok" if line.holds else "OVER"
            print(f"{line.what:36} {line.value:10.1f} {line.unit:4} {mark:5} {limit}")
    return 0 if all(line.holds for line in lines) else 1
