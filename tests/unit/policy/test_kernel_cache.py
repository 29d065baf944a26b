"""Machine code that is kept on disk is never older than what it was made from."""

import os
import subprocess
import sys
from collections import defaultdict
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from shutil import copyfile

import numpy as np
import pytest

from shared.policy import kernel_cache
from shared.policy.sources import PROJECT, fingerprint_of, sources_of

KERNEL = """
from shared.policy.compiled import compiled
from near import NEAR
from folder.deep.far import far

@compiled
def total():
    return NEAR + far()

print(total(), sum(total.stats.cache_hits.values()))
"""

FAR = """
from shared.policy.compiled import compiled
from folder.constants import FAR

@compiled
def far():
    return FAR
"""


@pytest.fixture
def project(tmp_path):
    """A kernel that takes a constant from a module beside it, and one at third hand."""
    deep = tmp_path / "folder" / "deep"
    deep.mkdir(parents=True)
    for folder in (tmp_path / "folder", deep):
        (folder / "__init__.py").write_text("")
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "near.py").write_text("NEAR = 1\n")
    (deep / "far.py").write_text(FAR)
    (tmp_path / "folder" / "constants.py").write_text("FAR = 10\n")
    return tmp_path


def run(project: Path) -> tuple[int, int]:
    """What the kernel says in a process of its own, and how often it was found in the cache."""
    environment = os.environ | {
        "PYTHONPATH": f"{PROJECT}:{project}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(project / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "kernel.py"],
        cwd=project,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    value, hits = done.stdout.split()
    return int(value), int(hits)


@pytest.mark.slow(5)
def test_a_constant_that_changes_in_another_file_changes_what_runs(project):
    assert run(project) == (11, 0)
    assert run(project) == (11, 1), "nothing has changed: nothing is compiled"
    (project / "near.py").write_text("NEAR = 2\n")
    assert run(project) == (12, 0)
    (project / "folder" / "constants.py").write_text("FAR = 20\n")
    assert run(project) == (22, 0)
    (project / "folder" / "constants.py").write_text("FAR = 10\n")
    assert run(project) == (12, 1), "what was compiled for the older sources is still right"


DOUBLED = """
from shared.policy.compiled import compiled

@compiled
def doubled(values):
    return 2 * values[0]
"""


@pytest.fixture
def kernel_of(tmp_path, monkeypatch):
    """A kernel as a process would have it that keeps machine code in a folder."""
    source = tmp_path / "doubling.py"
    source.write_text(DOUBLED)

    def load(cache: Path):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
        kernel_cache._base_folder.cache_clear()
        kernel_cache.cache_folder.cache_clear()
        spec = spec_from_file_location("doubling", source)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.doubled

    yield load
    kernel_cache._base_folder.cache_clear()
    kernel_cache.cache_folder.cache_clear()


def test_processes_that_compile_at_once_never_run_each_others_machine_code(tmp_path, kernel_of):
    whole, half = np.array([3]), np.array([1.5])
    assert kernel_of(tmp_path / "one")(whole) == 6
    assert kernel_of(tmp_path / "other")(half) == 3.0
    written = defaultdict(list)
    for process in (tmp_path / "one", tmp_path / "other"):
        for path in filter(Path.is_file, process.rglob("*")):
            written[path.relative_to(process)].append(path)
    # Either may be the last to write a file, each time.
    for number, last in enumerate(product(*written.values())):
        shared = tmp_path / f"shared-{number}"
        for name, path in zip(written, last, strict=True):
            (shared / name).parent.mkdir(parents=True, exist_ok=True)
            copyfile(path, shared / name)
        kernel = kernel_of(shared)
        assert (kernel(whole), kernel(half)) == (6, 3.0)
        assert sum(kernel.stats.cache_hits.values()) == 2, "what one compiled is there for all"


def test_what_was_compiled_as_it_was_installed_is_not_compiled_again(
    tmp_path, kernel_of, monkeypatch
):
    whole, half = np.array([3]), np.array([1.5])
    monkeypatch.setattr(kernel_cache, "_INSTALLED", tmp_path / "installed")
    assert kernel_of(tmp_path / "installed")(whole) == 6

    kernel = kernel_of(tmp_path / "own")
    assert (kernel(whole), kernel(half)) == (6, 3.0)
    assert sum(kernel.stats.cache_hits.values()) == 1, "the installer's is not looked for"
    assert len(list((tmp_path / "own").rglob("*.nbc"))) == 1, "what it had not is kept here"
    assert len(list((tmp_path / "installed").rglob("*.nbc"))) == 1, "the installer's is only read"


def test_all_that_a_kernel_may_depend_on_is_followed():
    found = {
        str(path.relative_to(PROJECT)) for path in sources_of(PROJECT / "shared/policy/value.py")
    }
    assert "shared/policy/kernels/noisy.py" in found
    assert "shared/policy/kernels/special.py" in found
    assert not any(name.startswith("services/") for name in found)


@pytest.mark.parametrize(
    "line",
    [
        "import other",
        "import json, other as o",
        "from other import VALUE",
        "from other import (\n    VALUE,  # of (old)\n    MORE,\n)",
        "from package import inner",
        "from package.inner import VALUE",
        "def late():\n    from other import VALUE",
    ],
)
def test_every_way_to_import_is_seen(tmp_path, line):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("VALUE = 1\n")
    (tmp_path / "other.py").write_text("VALUE = 1\nMORE = 2\n")
    source = tmp_path / "source.py"
    source.write_text(f"{line}\n")
    names = {path.name for path in sources_of(source)}
    assert names & {"other.py", "inner.py"}


def test_relative_imports_are_followed(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 1\n")
    (package / "inner.py").write_text("from . import sister\nfrom .cousin import VALUE\n")
    for name in ("sister", "cousin"):
        (package / f"{name}.py").write_text("VALUE = 1\n")
    names = {path.name for path in sources_of(package / "inner.py")}
    assert names == {"inner.py", "sister.py", "cousin.py", "__init__.py"}


def test_another_compiler_or_processor_has_a_cache_of_its_own(monkeypatch):
    source = PROJECT / "shared/policy/value.py"
    here = kernel_cache.cache_folder.__wrapped__(source)
    assert kernel_cache.cache_folder.__wrapped__(source) == here
    for other in ("numba 99", "another processor"):
        monkeypatch.setattr(kernel_cache, "_machine", lambda other=other: other)
        assert kernel_cache.cache_folder.__wrapped__(source) != here


def test_kernels_for_any_processor_are_found_on_each(monkeypatch):
    def machines() -> set[str]:
        found = set()
        for processor in ("skylake-avx512", "znver4"):
            monkeypatch.setattr(kernel_cache.binding, "get_host_cpu_name", lambda p=processor: p)
            found.add(kernel_cache._machine.__wrapped__())
        return found

    monkeypatch.setattr(kernel_cache.numba.config, "CPU_NAME", None)
    assert len(machines()) == 2
    monkeypatch.setattr(kernel_cache.numba.config, "CPU_NAME", "generic")
    monkeypatch.setattr(kernel_cache.numba.config, "CPU_FEATURES", "")
    [generic] = machines()
    monkeypatch.setattr(kernel_cache.platform, "machine", lambda: "another architecture")
    assert machines() != {generic}


def test_the_order_of_files_does_not_matter(tmp_path):
    (tmp_path / "a.py").write_text("import b\n")
    (tmp_path / "b.py").write_text("import a\n")
    assert fingerprint_of(tmp_path / "a.py") == fingerprint_of(tmp_path / "b.py")


def test_nobody_counts_the_calls_of_llvm():
    asked = """
from shared.policy import compiled
from llvmlite.binding import ffi
print(ffi.lib._lock._cblist)
"""
    run = [sys.executable, "-c", asked]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow(0.5)
def test_linear_algebra_that_no_kernel_uses_is_not_loaded():
    asked = """
import sys
from numba.core.registry import cpu_target
from shared.policy import compiled
cpu_target.target_context.refresh()  # as the first kernel does
print("scipy.linalg" in sys.modules)
"""
    run = [sys.executable, "-c", asked]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
