"""Errors by whose fault they are; the command line maps each to its exit code.

A message says what happened, where, what was found, what was wanted and what to do next.
"""

from __future__ import annotations


class TestbedError(Exception):
    """Base of all errors the testbed raises on purpose."""

    __test__ = False  # the name starts with Test; pytest must not collect it
    exit_code = 70


class ScenarioError(TestbedError):
    """Your file or arguments: the message names the place, the value and what is allowed."""

    exit_code = 2


class ConsumerError(TestbedError):
    """The program under test broke protocol."""

    exit_code = 3


class HostError(TestbedError):
    """This machine cannot do it; the message carries the command that fixes it."""

    exit_code = 4


class InternalError(TestbedError):
    """Our bug; please report it with the journal."""

    exit_code = 70
