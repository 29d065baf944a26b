"""Marks come from fixtures, long files go first, and what was left out is said last."""

import os
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

import pytest
from apache import NO_APACHE_KAFKA
from arranging import left_out, one_after_the_other, one_loads_before_the_others
from tools import NO_TOOL

ROOT = Path(__file__).parents[3]
FIXTURES = """
    import pytest

    pytest_plugins = ("arranging",)

    @pytest.fixture
    def local_broker(): pass

    @pytest.fixture
    def clients(local_broker): pass

    @pytest.fixture
    def database_url(): pass

    @pytest.fixture
    def simulated_seeds(): pass
"""
TESTS = """
    import pytest

    def test_pure(): pass
    def test_of_a_broker(local_broker): pass
    def test_of_a_client(clients): pass
    def test_of_the_database(database_url): pass
    def test_of_both(database_url, clients): pass

    def test_of_seeds(simulated_seeds): pass

    @pytest.mark.slow(20)
    def test_slow(): pass
"""


@pytest.fixture
def project(pytester, monkeypatch):
    """A project of its own with the same arrangement."""
    pytester.makeconftest(FIXTURES)
    pytester.makeini(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n"
        "    kafka\n    postgres\n    seeds\n    slow\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests'}{os.pathsep}{ROOT}")
    return pytester


def test_fixtures_that_start_a_server_mark_the_tests_that_use_them(project):
    project.makepyfile(TESTS)
    items, _ = project.inline_genitems()
    assert {item.name: {mark.name for mark in item.iter_markers()} for item in items} == {
        "test_pure": set(),
        "test_of_a_broker": {"kafka"},
        "test_of_a_client": {"kafka"},
        "test_of_the_database": {"postgres"},
        "test_of_both": {"kafka", "postgres"},
        "test_of_seeds": {"seeds"},
        "test_slow": {"slow"},
    }
    pure = project.runpytest_inprocess("-m", "not kafka and not postgres and not slow")
    pure.assert_outcomes(passed=2, deselected=5)


@pytest.mark.slow(3)
def test_workers_begin_with_the_longest_files_and_each_file_stays_together(project):
    project.makepyfile(
        test_a="def test_one(): pass\ndef test_two(): pass\n",
        test_b="""
            import pytest

            @pytest.mark.slow(9)
            def test_nine(): pass
            def test_more(): pass
        """,
        test_c="""
            import pytest

            pytestmark = pytest.mark.slow(5)
            def test_five(): pass
            def test_and_five(): pass
        """,
    )
    faults = project.mkpydir("tests").joinpath("faults")
    faults.mkdir()
    for name, seconds in (("kill", 3), ("stop", 4)):
        mark = f"import pytest\npytestmark = pytest.mark.slow({seconds})\n"
        faults.joinpath(f"test_{name}.py").write_text(f"{mark}def test_{name}(): pass\n")
    done = project.runpytest_subprocess(
        *("-n", "1", "--dist", "loadfile", "--no-loadscope-reorder", "-v", "-p", "no:cacheprovider")
    )
    done.assert_outcomes(passed=8)
    begun = [line.rpartition("::")[2].strip() for line in done.outlines if "PASSED" in line]
    order = ("five", "and_five", "nine", "more", "kill", "stop", "one", "two")
    assert begun == [f"test_{name}" for name in order]


def test_what_harms_a_system_and_what_runs_on_apache_kafka_stays_with_one_worker():
    together = {
        "tests/faults/test_kill.py::test_all": "tests/faults",
        "tests/contract/test_a.py::test_it[apache]": "on Apache Kafka",
        "tests/integration/doctor/test_b.py::test_it[gzip-apache]": "on Apache Kafka",
        "tests/contract/test_a.py::test_it[apache-2 partitions]": "on Apache Kafka",
        "tests/contract/test_a.py::test_it[local]": "tests/contract/test_a.py",
        "tests/contract/test_a.py::test_apache[local]": "tests/contract/test_a.py",
        "tests/unit/house/test_c.py::test_it[apaches]": "tests/unit/house/test_c.py",
        "tests/unit/house/test_c.py::test_it": "tests/unit/house/test_c.py",
    }
    assert {name: one_after_the_other(name) for name in together} == together


@pytest.mark.slow(3)
def test_what_was_left_out_for_want_of_java_is_the_last_line(project, monkeypatch):
    project.makepyfile(
        """
        import pytest
        from apache import need_apache_kafka

        @pytest.mark.parametrize("broker", ["local", "apache"])
        def test_of_each(broker):
            if broker == "apache":
                need_apache_kafka()

        def test_of_apache_kafka(): need_apache_kafka()
        def test_of_something_else(): pytest.skip("for a reason of its own")
        """
    )
    monkeypatch.setenv("PATH", str(project.mkdir("no-java-here")))
    done = project.runpytest_subprocess("-q", "-ra")
    done.assert_outcomes(passed=1, skipped=3)
    assert done.outlines[-1] == "left out: 2 tests on Apache Kafka: not installed: java, mvn"

    spread = project.runpytest_subprocess("-q", "-n", "2")
    assert spread.outlines[-1] == done.outlines[-1]


@pytest.mark.slow(3)
def test_what_failed_among_others_is_run_again_named_and_refused_where_it_is_much(
    project, monkeypatch
):
    project.makepyfile(
        """
        import os
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_alone(number):
            assert number > int(os.environ["LAST_THAT_FAILS"])
        """
    )
    name = "test_what_failed_among_others_is_run_again_named_and_refused_where_it_is_much"
    again = ("-q", "--last-failed", "--last-failed-no-failures", "none", "--at-most", "3")

    def run(last_that_fails, *arguments):
        monkeypatch.setenv("LAST_THAT_FAILS", str(last_that_fails))
        return project.runpytest_inprocess(*arguments)

    # Nothing has failed: what stopped the first run was no test.
    assert run(-1, *again).ret == pytest.ExitCode.NO_TESTS_COLLECTED
    run(2, "-q").assert_outcomes(passed=1, failed=3)
    passed = run(1, *again)
    assert passed.ret == pytest.ExitCode.TESTS_FAILED
    assert [line for line in passed.outlines if "unsteady" in line] == [
        f"unsteady, to be mended: {name}.py::test_alone[2]"
    ]
    assert run(-1, *again).ret == 0
    run(3, "-q").assert_outcomes(failed=4)
    assert run(-1, *again).ret == pytest.ExitCode.USAGE_ERROR


def test_nothing_is_said_where_nothing_was_left_out(project):
    project.makepyfile("import pytest\ndef test_of_something_else(): pytest.skip('its own reason')")
    done = project.runpytest_subprocess("-q")
    assert "1 skipped" in done.outlines[-1]
    assert "left out" not in done.stdout.str()


def test_what_a_worker_loads_the_others_load_after_it_and_other_files_meanwhile(tmp_path):
    files = [tmp_path / "test_a.py", tmp_path / "test_b.py"]
    for file in files:
        file.touch()
    order, first_is_ahead = [], Event()

    def load_after_the_first():
        with one_loads_before_the_others(files[0]):
            order.append("second: a")
            assert first_is_ahead.wait(60)
        with one_loads_before_the_others(files[1]):
            order.append("second: b")

    with ThreadPoolExecutor(1) as pool:
        with one_loads_before_the_others(files[0]):
            second = pool.submit(load_after_the_first)
            wait([second], timeout=0.2)
            order.append("first: a")
        with one_loads_before_the_others(files[1]):
            order.append("first: b")
            first_is_ahead.set()
        second.result()
    assert order.index("first: a") < order.index("second: a")
    assert order.index("first: b") < order.index("second: b")


def test_workers_load_their_tests_one_after_the_other(project, monkeypatch):
    project.makepyfile(
        """
        import os, time
        from pathlib import Path

        is_loaded = Path(os.environ["IS_LOADED"])
        assert not is_loaded.exists()
        is_loaded.touch()
        time.sleep(0.2)
        is_loaded.unlink()
        def test_something(): pass
        """
    )
    monkeypatch.setenv("IS_LOADED", str(project.path / "loaded"))
    project.runpytest_subprocess("-q", "-n", "3").assert_outcomes(passed=1)


def test_every_reason_is_said_once():
    without = [f"{NO_APACHE_KAFKA}no jars", f"{NO_APACHE_KAFKA}no jars", "not on this system"]
    assert left_out(without) == "left out: 2 tests on Apache Kafka: no jars"
    assert left_out(without[1:]) == "left out: 1 test on Apache Kafka: no jars"
    assert left_out(without[2:]) is None
    assert left_out([*without[1:], f"{NO_TOOL}helm", f"{NO_TOOL}helm"]) == (
        "left out: 1 test on Apache Kafka: no jars; 2 tests, not installed: helm"
    )


def test_an_unmarked_test_cannot_start_a_server(request, tmp_path):
    from deploy.local.kafka import LocalBroker
    from deploy.local.postgres import EmbeddedPostgres

    for server in (LocalBroker(tmp_path / "broker"), EmbeddedPostgres(tmp_path / "postgres")):
        with pytest.raises(pytest.fail.Exception, match="mark it"):
            server.start()
