"""What is to happen to single calls between kubelet and plugins: hold, fail, delay, drop. Pure."""

from __future__ import annotations

from dataclasses import dataclass

METHODS = (
    "Register",
    "GetDevicePluginOptions",
    "ListAndWatch",
    "GetPreferredAllocation",
    "Allocate",
    "PreStartContainer",
)
ACTIONS = ("hold", "fail", "delay", "drop")
CODES = (
    "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
    "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange",
    "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip


class BadRule(Exception):
    """A rule that makes no sense; the text says what was got and what is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRule:
    """One rule. It takes effect from the `first` to the `last` call that fits, counted from when
    it was set; `resource` None fits all. `hold` waits for `release`; `fail` answers with `code` and
    `message` and the other side never hears of the call; `delay` waits `delay_s` seconds; `drop`
    lets the call happen and loses its answer."""

    method: str
    action: str
    resource: str | None = None
    first: int = 1
    last: int | None = None
    delay_s: float = 0.0
    code: str = "Unavailable"
    message: str = "made to fail"

    def __post_init__(self) -> None:
        for name, value, wanted in (
            ("method", self.method, METHODS),
            ("action", self.action, ACTIONS),
            ("code", self.code, CODES),
        ):
            if value not in wanted:
                raise BadRule(f"{name} is {value!r}, wanted {', '.join(wanted)}")
        if self.first < 1 or (self.last is not None and self.last < self.first):
            raise BadRule(f"first {self.first} and last {self.last}: wanted 1 <= first <= last")
        if self.delay_s < 0:
            raise BadRule(f"delay_s is {self.delay_s}, wanted 0 or more seconds")

    @property
    def error(self) -> str:
        """The failure as Go prints it."""
        return f"rpc error: code = {self.code} desc = {self.message}"


class CallRules:
    """Rules in the order they were set; the first that fits a call decides."""

    def __init__(self) -> None:
        self._rules: list[tuple[CallRule, list[int]]] = []

    def add(self, rule: CallRule) -> None:
        self._rules.append((rule, [0]))

    def clear(self) -> None:
        self._rules.clear()

    def take(self, method: str, resource: str) -> CallRule | None:
        """Count one call; the rule for it, if one takes effect."""
        chosen: CallRule | None = None
        for rule, count in self._rules:
            if rule.method != method or rule.resource not in (None, resource):
                continue
            count[0] += 1
            is_due = rule.first <= count[0] and (rule.last is None or count[0] <= rule.last)
            if is_due and chosen is None:
                chosen = rule
        return chosen
