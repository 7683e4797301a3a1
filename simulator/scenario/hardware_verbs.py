"""What each verb about cards does to the hardware model, and how the journal names it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fake_dcmi import api, layout
from simulator.driver import occupy_slice
from simulator.errors import ScenarioError
from simulator.faces import container_hash
from simulator.hardware import faults
from simulator.hardware.model import (
    IN_BAND,
    Chip,
    FaultEvent,
    Hardware,
    Process,
    ResetRules,
)
from simulator.hardware.script import Rule
from simulator.scenario.schema import (
    ChangeLink,
    ClearCalls,
    CreateSlice,
    DestroySlice,
    DropCard,
    EndProcess,
    HoldCard,
    InjectFault,
    LeaveSlice,
    LogCalls,
    PinReading,
    RecoverFault,
    ReleaseCard,
    ResetBehaviour,
    ResetChip,
    RestartDriver,
    ReturnCard,
    ScriptCall,
    StartProcess,
    Step,
    SwitchFault,
    SwitchRecover,
    UnpinReading,
    UseSlice,
)
from simulator.testbed import Change

Found = tuple[str, Mapping[str, Any], Change]


def change_of(step: Step) -> Found | None:
    """(journal entry, its fields, the change); None for a verb that is about something else."""
    match step:
        case InjectFault(card=card, code=code, chip=chip, once=once):
            kind = faults.parse(code)
            fields: dict[str, Any] = {"card": card, "code": f"{kind.code:08X}"} | _chip_field(chip)
            if once:
                return "fault.notice", fields, lambda hw, now: hw.notice(card, kind, chip=chip)
            return (
                "fault.inject",
                fields,
                lambda hw, now: hw.inject(card, kind, chip=chip, now=now),
            )
        case RecoverFault(card=card, code=code, chip=chip):
            kind = faults.parse(code)
            fields = {"card": card, "code": f"{kind.code:08X}"} | _chip_field(chip)
            return "fault.recover", fields, lambda hw, now: hw.recover(card, kind.code, chip=chip)
        case SwitchFault(code=code):
            fault = faults.parse_switch(code)
            return _quiet(
                "switch.fault",
                {"code": fault.code},
                lambda hw, now: hw.raise_switch_fault(fault, now),
            )
        case SwitchRecover(code=code):
            fault = faults.parse_switch(code)
            return _quiet(
                "switch.recover",
                {"code": fault.code},
                lambda hw, now: hw.clear_switch_fault(fault.code),
            )
        case DropCard(card=card, answers=answers):
            number = _code(answers)
            return _quiet("card.drop", {"card": card}, lambda hw, now: hw.drop(card, code=number))
        case ReturnCard(card=card):
            return _quiet("card.return", {"card": card}, lambda hw, now: hw.restore(card))
        case ResetChip(card=card, chip=chip):
            fields = {"card": card} | _chip_field(chip)
            return _quiet(
                "card.reset", fields, lambda hw, now: _reset(hw.chip(card, chip), hw, now)
            )
        case RestartDriver():
            return _quiet("driver.restart", {}, lambda hw, now: hw.restart_driver(now))
        case ResetBehaviour():
            return _quiet(
                "card.reset-behaviour", {"card": step.card}, lambda hw, now: _rules(hw, step)
            )
        case PinReading(card=card, field=name, value=value, chip=chip):
            _check_field(name)
            return _quiet(
                "card.pin",
                {"card": card, "field": name, "value": value},
                lambda hw, now: hw.chip(card, chip).pins.__setitem__(name, value),
            )
        case UnpinReading(card=card, field=name, chip=chip):
            return _quiet(
                "card.unpin",
                {"card": card, "field": name},
                lambda hw, now: hw.chip(card, chip).pins.pop(name, None),
            )
        case HoldCard(card=card, container=container, answers=answers):
            return _quiet(
                "card.hold",
                {"card": card, "container": container},
                lambda hw, now: _hold(hw, card, container, _code(answers)),
            )
        case ReleaseCard(card=card):
            return _quiet("card.release", {"card": card}, lambda hw, now: _hold(hw, card, "", 0))
        case ChangeLink(card=card, state=state):
            return _quiet(
                "link", {"card": card, "state": state}, lambda hw, now: _link(hw, step, now)
            )
        case _:
            return _process_or_slice(step) or _calls(step)


def _process_or_slice(step: Step) -> Found | None:
    match step:
        case StartProcess(card=card, chip=chip, pid=pid, name=name, memory_mb=memory_mb):
            process = Process(pid=pid, name=name, memory_mb=memory_mb)
            return _quiet(
                "process.start",
                {"card": card, "pid": pid},
                lambda hw, now: hw.start_process(hw.chip(card, chip), process, now),
            )
        case EndProcess(card=card, chip=chip, pid=pid):
            return _quiet(
                "process.end",
                {"card": card, "pid": pid},
                lambda hw, now: hw.end_process(hw.chip(card, chip), pid, now),
            )
        case CreateSlice(card=card, chip=chip, template=template):
            return _quiet(
                "vnpu.create",
                {"card": card, "template": template},
                lambda hw, now: _must(
                    "vnpu-create", hw.chip(card, chip).slices.create(template)[0]
                ),
            )
        case DestroySlice(card=card, chip=chip, vdev=vdev):
            return _quiet(
                "vnpu.destroy",
                {"card": card, "vdev": vdev},
                lambda hw, now: _must("vnpu-destroy", hw.chip(card, chip).slices.destroy(vdev)),
            )
        case UseSlice(card=card, vdev=vdev, container=container):
            return _quiet(
                "vnpu.use",
                {"card": card, "vdev": vdev, "container": container},
                lambda hw, now: _use(hw, step),
            )
        case LeaveSlice(card=card, chip=chip, container=container):
            return _quiet(
                "vnpu.leave",
                {"card": card, "container": container},
                lambda hw, now: _leave(hw.chip(card, chip), container),
            )
        case _:
            return None


def _calls(step: Step) -> Found | None:
    match step:
        case ScriptCall():
            fields = {
                "function": step.function or "*",
                "answers": step.answers,
                "card": step.card,
                "hang": step.hang,
            }
            rule = _rule(step)
            return _quiet("calls.script", fields, lambda hw, now: _add_rule(hw, rule))
        case ClearCalls():
            return _quiet("calls.clear", {}, lambda hw, now: _clear_rules(hw))
        case LogCalls(on=on):
            return _quiet("calls.log", {"on": on}, lambda hw, now: setattr(hw, "logs_calls", on))
        case _:
            return None


def _quiet(
    kind: str, fields: Mapping[str, Any], change: Callable[[Hardware, float], object]
) -> Found:
    """A change of which the driver tells nobody."""

    def carry_out(hardware: Hardware, now: float) -> list[FaultEvent]:
        change(hardware, now)
        return []

    return kind, fields, carry_out


def _chip_field(chip: int) -> dict[str, Any]:
    return {"chip": chip} if chip else {}


def _code(text: str) -> int:
    known = api.return_codes()
    try:
        code = int(text)
    except ValueError:
        code = 1
    if code not in known:
        raise ScenarioError(
            f"driver code {text!r} is unknown, allowed: {', '.join(map(str, known))}."
        )
    return code


def _must(what: str, code: int) -> None:
    if code:
        meaning = api.return_codes().get(code, "unknown code")
        raise ScenarioError(f"{what}: the driver answers {code} ({meaning}).")


def _reset(chip: Chip, hardware: Hardware, now: float) -> None:
    _must("reset", hardware.reset(chip, IN_BAND, now))


def _rules(hardware: Hardware, step: ResetBehaviour) -> None:
    chip = hardware.chip(step.card, step.chip)
    chip.settings["outband"] = int(step.outband)
    chip.reset_rules = ResetRules(
        fails=step.fails,
        never_boots=step.never_boots,
        faults_return_after_s=step.faults_return_after,
        boot_s=step.boot_s,
    )


def _check_field(name: str) -> None:
    field, _, index = name.partition(".")
    kind, count = layout.CHIP_FIELDS.get(field, ("char", 0))
    if kind == "char" or (count > 1 and not index) or (index and not index.isdigit()):
        numbers = [
            f if n == 1 else f"{f}.0" for f, (k, n) in layout.CHIP_FIELDS.items() if k != "char"
        ]
        raise ScenarioError(f"pin: field {name!r} is unknown, allowed: {', '.join(numbers)}.")
    if index and int(index) >= count:
        raise ScenarioError(f"pin: {field} has {count} elements, got {name!r}.")


def _hold(hardware: Hardware, card: int, container: str, code: int) -> None:
    hardware.chip(card)
    for chip in hardware:
        if chip.card_id == card:
            chip.holder = container
    if code:
        hardware.busy_code = code


def _link(hardware: Hardware, step: ChangeLink, now: float) -> None:
    settings = hardware.chip(step.card, step.chip).settings
    is_up = step.state == "up"
    if settings.get("link_up", True) != is_up:
        settings["link_changes"] = (*settings.get("link_changes", ()), (int(now), is_up))
    settings["link_up"] = is_up
    if step.network_health is not None:
        settings["network_health"] = step.network_health


def _use(hardware: Hardware, step: UseSlice) -> None:
    chip = hardware.chip(step.card, step.chip)
    if chip.slices.get(step.vdev) is None:
        known = ", ".join(str(one.vdev_id) for one in chip.slices) or "none"
        raise ScenarioError(f"vnpu-use: vNPU {step.vdev} does not exist, this chip has: {known}.")
    occupy_slice(chip, step.vdev, step.container)
    chip.slices.set_leaking(step.vdev, step.leaks)


def _leave(chip: Chip, container: str) -> None:
    chip.slices.release(container_hash(container))


def _rule(step: ScriptCall) -> Rule:
    if step.function is not None and step.function not in api.functions():
        raise ScenarioError(
            f"call-script: {step.function!r} is none of the {len(api.functions())} functions "
            "of libdcmi.so. Next: see docs/dcmi-functions.md."
        )
    if not 0 < step.chance <= 1:
        raise ScenarioError(
            f"call-script: `chance` is {step.chance}, wanted more than 0, at most 1."
        )
    return Rule(
        number=0,
        function=step.function,
        card=step.card,
        device=step.chip,
        code=_code(step.answers),
        delay_s=step.delay,
        hang=step.hang,
        first=step.first,
        last=step.last,
        chance=step.chance,
    )


def _add_rule(hardware: Hardware, rule: Rule) -> None:
    if len(hardware.rules) >= layout.MAX_RULES:
        raise ScenarioError(f"call-script: there are {layout.MAX_RULES} rules already.")
    hardware.add_rule(rule)


def _clear_rules(hardware: Hardware) -> None:
    hardware.rules = ()
    hardware.releases += 1
