"""The order of the rounds of blocked Floyd-Warshall, and how streams follow it, recorded by a fake device.

The digest was recorded from the code before ``engine.devices.rounds`` drove the rounds of a stream.
"""

from __future__ import annotations

import hashlib
from contextlib import nullcontext

import numpy as np
import pytest

from engine.devices.rounds import Action, RoundOrder, panels_until
from engine.model.progress import Monitor
from engine.model.tier import HostTier
from engine.model.tiling import Tiling
from engine.streaming import schedule

COUNTS = [0, 1, 2, 3, 7]


def flat(order):
    return [step for _, steps in order.rounds() for step in steps]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize(("ahead", "queued"), [(False, False), (True, False), (True, True)])
def test_each_panel_is_closed_once_and_before_it_is_used(count, first, ahead, queued):
    steps = flat(RoundOrder(count, ahead, queued, first))
    rounds = list(range(first, count))
    for action in (Action.CLOSE, Action.USE, Action.REST):
        assert [k for a, k in steps if a is action] == rounds
    assert [k for a, k in steps if a is Action.STRIPS] == (rounds[:-1] if ahead else [])
    at = {step: i for i, step in enumerate(steps)}
    for k in rounds:
        assert at[Action.CLOSE, k] < at[Action.USE, k] < at[Action.REST, k]
        if k > first:
            assert at[Action.REST, k - 1] < at[Action.REST, k]
            # a panel is made of what the round before relaxed: its strips, or with no look-ahead all of it
            assert at[Action.STRIPS if ahead else Action.REST, k - 1] < at[Action.CLOSE, k]
            if ahead:
                assert (at[Action.REST, k - 1] < at[Action.CLOSE, k]) == queued


@pytest.mark.parametrize("count", COUNTS[1:])
@pytest.mark.parametrize("ahead", [False, True])
def test_the_rest_is_all_but_the_panels_and_begins_with_the_next_one(count, ahead):
    order = RoundOrder(count, ahead)
    for k in range(count):
        groups = order.groups(k)
        assert sorted(groups) == [g for g in range(count) if g not in (k, k + ahead)]
        assert groups == sorted(groups, key=lambda g: panels_until(g, k + 1 + ahead, count))
        if k + 1 + ahead < count:
            assert groups[0] == k + 1 + ahead


class RecordedDevice:
    """The verbs of a streamer, each a line; stripes are given back at once."""

    name = "recorded"

    def __init__(self):
        self.lines = []

    def note(self, *words):
        self.lines.append(" ".join(map(str, words)))

    def open(self, job, index, resident):
        self.job, self.resident = job, list(resident)
        self.note("open", *self.resident)

    def guard(self):
        return nullcontext()

    def keep(self, stripe, rows):
        self.note("keep", stripe)

    def seed(self, k, stripe, rows):
        self.note("seed", k, stripe)

    def lead(self, k, take, *, first):
        self.note("lead", k, first)
        for stripe in self.job.members(k):
            if take is not None:
                take(stripe)
                self.job.done(k, stripe, self.job.tier.blank(stripe))

    def follow(self, k):
        self.note("follow", k)

    def reside(self, k, *, out):
        self.note("reside", k, out)

    def relax(self, k, stripe, rows):
        self.note("relax", k, stripe)
        self.job.done(k, stripe, rows)

    def leave(self, k):
        self.note("leave", k)

    def drain(self, *, wait):
        if wait:
            self.note("drain")

    def hand_over(self):
        self.note("hand over")
        for k in self.resident:
            for stripe in self.job.members(k):
                self.job.done(self.job.rounds - 1, stripe, self.job.tier.blank(stripe))

    def release(self):
        self.note("release")


def verbs(n, tiling, first=0):
    """What a solve of ``n`` vertices asks of its only device, from round ``first`` on."""
    device, tier = RecordedDevice(), HostTier(np.zeros((n, n), np.float32), tiling)
    tier.level[:] = first - 1
    schedule.run(tiling, tier, [device], Monitor(), nonnegative=True, first_round=first)
    return device.lines


def test_streams_ask_of_a_device_what_they_asked_before():
    told, count = hashlib.sha256(), 0
    for n in (64, 100, 640, 1000):
        for more in ({}, {"symmetric": True}, {"resident": 2, "slots": 3}):
            for height, width in ((64, 64), (64, 128), (128, 128)):
                for first in (0, 1, 3):
                    tiling = Tiling("host", height, width, **more)
                    if first < tiling.rounds(n):
                        lines = verbs(n, tiling, first)
                        count += len(lines)
                        told.update("\n".join(lines).encode() + b"\n\n")
    assert count == 5772
    assert told.hexdigest() == "9d5450d582259e284f8016a5cc535ce347ce66cb94d7a4d9cf32f661275eed89"
