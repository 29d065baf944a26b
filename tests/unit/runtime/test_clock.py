"""Clocks: the wall's, a simulated one behind its gate, and one that a test moves."""

import time

import pytest

from shared.runtime import clock as clock_module
from shared.runtime import wall_time
from shared.runtime.clock import AcceleratedClock, ManualClock, SystemClock, open_gate
from shared.runtime.wall_time import SLEW, STEP_SECONDS, WallTime

HOUR = 3600.0


class Machine:
    """A machine's two clocks; somebody may set the one that people look at."""

    def __init__(self, unix: float = 1.7e9, steady: float = 5000.0) -> None:
        self.unix, self.steady = unix, steady

    def advance(self, seconds: float) -> None:
        self.unix += seconds
        self.steady += seconds

    def use(self, monkeypatch) -> None:
        monkeypatch.setattr(time, "time", lambda: self.unix)
        monkeypatch.setattr(wall_time, "steady", lambda: self.steady)


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    machine.use(monkeypatch)
    return machine


@pytest.fixture
def wall(machine, monkeypatch):
    """The time of a process on that machine."""
    wall = WallTime()
    monkeypatch.setattr(clock_module, "WALL", wall)
    return wall


def go_by(wall: WallTime, machine: Machine, broker: float, error: float = 0.0) -> float:
    offset = broker - machine.steady
    return wall.steer(offset - error, offset + error)


def test_the_system_clock_is_the_walls():
    assert SystemClock().now() == pytest.approx(time.time(), abs=60.0)
    assert SystemClock().span(3.0) == 3.0


def test_a_simulated_clock_stands_at_its_origin_until_the_gate_opens(tmp_path, machine, wall):
    gate = tmp_path / "gate"
    clocks = [AcceleratedClock(50.0, 100.0, gate) for _ in range(2)]
    machine.advance(10.0)
    assert [clock.now() for clock in clocks] == [50.0, 50.0]
    open_gate(gate)
    assert clocks[0].now() == 50.0
    machine.advance(2.5)
    assert [clock.now() for clock in clocks] == [300.0, 300.0]
    gate.write_text(repr(machine.unix + 5.0))
    assert AcceleratedClock(50.0, 100.0, gate).now() == 50.0, "never before its origin"


@pytest.mark.parametrize("step", [HOUR, -HOUR])
@pytest.mark.parametrize("is_measured", [True, False])
@pytest.mark.parametrize("speed", [1.0, 1000.0])
def test_whoever_sets_the_machines_clock_sets_no_other(
    step, is_measured, speed, machine, wall, tmp_path
):
    clock = SystemClock()
    if speed != 1.0:
        clock = AcceleratedClock(1e9, speed, tmp_path / "gate")
        open_gate(tmp_path / "gate")
        clock.now()
    if is_measured:
        go_by(wall, machine, broker=machine.unix)
    before = clock.read()
    machine.advance(1.0)
    machine.unix += step
    assert clock.read() == pytest.approx((before.now + speed, before.stepped), abs=1e-3)


def test_a_simulated_clock_tells_of_the_steps_that_moved_it(machine, wall, tmp_path):
    gate = tmp_path / "gate"
    clock = AcceleratedClock(1e9, 1000.0, gate)
    clock.now()
    go_by(wall, machine, machine.unix + HOUR)
    assert clock.read() == (1e9, 0.0), "it stood at its origin"
    open_gate(gate)
    assert clock.read() == (1e9, 0.0)
    go_by(wall, machine, machine.unix + HOUR + 10.0)
    assert clock.read() == pytest.approx((1e9 + 10_000.0, 10_000.0), abs=1e-2)


def test_a_time_that_is_not_proven_wrong_is_left_alone(machine, wall):
    for error in (0.5, 0.01, 0.003):
        machine.advance(2.0)
        assert go_by(wall, machine, machine.unix + 0.002, error) == 0.0
        assert wall.now() == pytest.approx(machine.unix, abs=1e-6)


@pytest.mark.parametrize("error", [0.19, -0.19])
def test_a_small_error_is_worked_off_and_the_time_never_goes_back(error, machine, wall):
    assert go_by(wall, machine, machine.unix + error) == 0.0
    shown = [wall.now()]
    for _ in range(100):
        machine.advance(0.1)
        shown.append(wall.now())
        passed = shown[-1] - shown[-2]
        assert (1 - SLEW) * 0.1 - 1e-6 <= passed <= (1 + SLEW) * 0.1 + 1e-6
    assert shown[-1] == pytest.approx(machine.unix + error, abs=1e-3)
    assert wall.read()[1] == 0.0


@pytest.mark.parametrize("error", [STEP_SECONDS + 0.01, HOUR, -HOUR])
def test_a_large_error_is_set_right_at_once_and_told(error, machine, wall):
    assert go_by(wall, machine, machine.unix + error) == pytest.approx(error)
    now, stepped = wall.read()
    assert now == pytest.approx(machine.unix + error)
    assert stepped == pytest.approx(error)


def test_processes_on_machines_whose_clocks_disagree_have_one_time(monkeypatch):
    times = []
    for off, up_for in ((-HOUR, 10.0), (0.0, 1e6), (0.15, 7e4)):
        machine = Machine(1.7e9 + off, up_for)
        machine.use(monkeypatch)
        wall = WallTime()
        go_by(wall, machine, broker=1.7e9, error=0.004)
        machine.advance(10.0)
        times.append(wall.now())
    assert max(times) - min(times) <= 0.008 + 1e-6


def test_a_gate_that_cannot_be_read_yet_is_no_gate(tmp_path):
    gate = tmp_path / "gate"
    gate.write_text("")
    assert AcceleratedClock(7.0, 2.0, gate).now() == 7.0


def test_a_manual_clock_only_moves_when_told():
    clock = ManualClock(10.0, speed=3.0)
    clock.advance(5.0)
    assert clock.now() == 15.0
    assert clock.span(2.0) == pytest.approx(6.0)
    clock.step(-7.0)
    assert clock.read() == (8.0, -7.0)
