"""Servers of tests have their files in memory, where there is room for them."""

from types import SimpleNamespace

import psutil
from scratch import where_files_cost_least


def test_files_are_in_memory_where_the_folder_and_the_machine_have_room(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1 << 20))
    assert where_files_cost_least(tmp_path, 1 << 20) == tmp_path
    assert where_files_cost_least(tmp_path, (1 << 20) + 1) is None, "the machine has no room"
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1 << 70))
    assert where_files_cost_least(tmp_path, 1 << 60) is None, "the folder has no room"


def test_a_machine_without_such_a_folder_has_them_elsewhere(tmp_path):
    assert where_files_cost_least(tmp_path / "missing", 0) is None
