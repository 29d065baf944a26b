"""Rows that are read by their keys are asked for ahead where that is seen to take less time."""

from shared.store.read_ahead import ReadAhead

DISK = {False: 120e-6, True: 60e-6}
MEMORY = {False: 12e-6, True: 16e-6}


def ways(reads, seconds_a_row, ahead):
    """How some reads of 40 rows are made that take so long, by whether they are ahead."""
    found = []
    for _ in range(reads):
        is_ahead = ahead.choose()
        ahead.note(40, 40 * seconds_a_row[is_ahead], is_ahead=is_ahead)
        found.append(is_ahead)
    return found


def test_rows_on_the_disk_are_asked_for_ahead():
    found = ways(320, DISK, ReadAhead())
    assert 0.95 < sum(found) / 320 < 0.98


def test_rows_in_memory_are_not():
    found = ways(320, MEMORY, ReadAhead())
    assert 0.02 < sum(found) / 320 < 0.05


def test_it_is_noticed_when_rows_leave_memory_and_when_they_are_back():
    ahead = ReadAhead()
    ways(320, MEMORY, ahead)
    assert sum(ways(640, DISK, ahead)[320:]) > 300
    assert sum(ways(960, MEMORY, ahead)[640:]) < 20


def test_a_single_slow_read_changes_little():
    ahead = ReadAhead()
    ways(100, MEMORY, ahead)
    ahead.note(1, 40e-6, is_ahead=False)
    assert sum(ways(64, MEMORY, ahead)) < 32


def test_how_many_are_read_at_once_does_not_matter():
    ahead = ReadAhead()
    for _ in range(64):
        is_ahead = ahead.choose()
        rows = 400 if is_ahead else 40
        ahead.note(rows, rows * DISK[is_ahead], is_ahead=is_ahead)
    assert sum(ways(64, DISK, ahead)) > 60
