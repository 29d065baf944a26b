"""Clocks: the wall's, a simulated one behind its gate, and one that a test moves."""

import time

import pytest

from shared.runtime import clock as clock_module
from shared.runtime.clock import AcceleratedClock, ManualClock, SystemClock, open_gate


def test_the_system_clock_is_the_walls():
    before = time.time()
    assert before <= SystemClock().now() <= time.time()
    assert SystemClock().span(3.0) == 3.0


def test_a_simulated_clock_stands_at_its_origin_until_the_gate_opens(tmp_path, monkeypatch):
    gate = tmp_path / "gate"
    wall = 1000.0
    monkeypatch.setattr(clock_module.time, "time", lambda: wall)
    clocks = [AcceleratedClock(50.0, 100.0, gate) for _ in range(2)]
    wall = 1010.0
    assert [clock.now() for clock in clocks] == [50.0, 50.0]
    open_gate(gate)
    assert clocks[0].now() == 50.0
    wall = 1012.5
    assert [clock.now() for clock in clocks] == [300.0, 300.0]
    wall = 1000.0
    assert clocks[0].now() == 50.0, "never before its origin"


def test_a_gate_that_cannot_be_read_yet_is_no_gate(tmp_path):
    gate = tmp_path / "gate"
    gate.write_text("")
    assert AcceleratedClock(7.0, 2.0, gate).now() == 7.0


def test_a_manual_clock_only_moves_when_told():
    clock = ManualClock(10.0, speed=3.0)
    clock.advance(5.0)
    assert clock.now() == 15.0
    assert clock.span(2.0) == pytest.approx(6.0)
