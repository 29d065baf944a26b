"""The benchmarks of value, inverse and demand run, and find the library exact."""

import pytest

from services.bench import demand, inverse, value


@pytest.mark.slow(0.5)
def test_value():
    report = value.run(pages=2000, sets=20, seed=1)
    assert report["max_relative_error"] <= 1e-12
    assert report["nan"] == 0
    assert report["ns_per_page"] > 0


def test_inverse():
    report = inverse.run(pages=2000, sets=500, seed=1)
    assert report["max_relative_error"] <= 1e-9
    assert report["compared"] > 250


@pytest.mark.slow(3)
def test_demand():
    report = demand.run(pages=5000, sets=0, seed=1, shard_pages=60_000)
    assert report["residual"] <= 1e-9
    assert report["limited_hosts"] > 0
    assert report["shard"]["max_relative_error"] <= 1e-2
    assert report["shard"]["refresh_cpu_seconds"] > 0
