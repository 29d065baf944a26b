"""Java servers for tests: their jars from Maven Central, and an archive of classes to start faster.

It takes Java 17 and Maven; jars and archives are made once, in FRESHET_CACHE or ~/.cache/freshet.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

POM = Path(__file__).parents[1] / "apache-kafka" / "pom.xml"
"""Which jars."""
RESOLVE_SECONDS = 900.0
"""The jars are 100 MB."""
OPTIONS = (
    "-Xms64m",
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-Dorg.apache.logging.log4j.level=WARN",
)
"""An archive of classes is good for these alone."""

log = structlog.get_logger(__name__)


class ApacheKafkaUnavailableError(RuntimeError):
    """Java or Maven is missing, or the jars could not be fetched."""


def why_unavailable() -> str | None:
    """Return what is missing for Apache Kafka on this machine, None if nothing is."""
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def resolve_jars(pom: Path = POM) -> Path:
    """Return the folder with Apache Kafka's jars, fetched from Maven Central if need be.

    Safe to call from several processes at once. Raises ApacheKafkaUnavailableError.

    Args:
        pom: names the jars; another one than Apache Kafka's stands in a folder that says what it
            is of.
    """
    reason = why_unavailable()
    if reason is not None:
        raise ApacheKafkaUnavailableError(f"this needs Java and Maven; {reason}")
    name, digest = pom.parent.name, hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    jars = _cache() / f"{name}-{digest}"
    with _alone(name):
        if not jars.is_dir():
            _fetch(pom, jars)
    return jars


def class_archive(jars: Path, run: Callable[[str], None]) -> Path | None:
    """Return the archive of what a server loads from jars; with it one starts in half the time.

    Safe to call from several processes at once.

    Args:
        jars: their folder.
        run: starts and stops the server with an option more, and raises OSError or RuntimeError
            if that fails; then there is no archive, and None is returned.
    """
    java = Path(shutil.which("java") or "java").resolve()
    made_by = f"{java} {java.stat().st_mtime_ns} {OPTIONS}"
    digest = hashlib.sha256(made_by.encode()).hexdigest()[:12]
    archive = jars.with_name(f"{jars.name}-{digest}.jsa")
    with _alone(archive.name):
        if not archive.exists():
            unfinished = archive.with_suffix(".new")
            unfinished.unlink(missing_ok=True)
            try:
                run(f"-XX:ArchiveClassesAtExit={unfinished}")
                unfinished.rename(archive)
            except (OSError, RuntimeError) as error:
                log.warning("no archive of classes: servers start slowly", error=str(error))
                return None
    return archive


def _cache() -> Path:
    cache = Path(os.environ.get("FRESHET_CACHE") or Path.home() / ".cache" / "freshet")
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@contextmanager
def _alone(name: str) -> Iterator[None]:
    with (_cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(pom: Path, jars: Path) -> None:
    log.info("fetching jars from Maven Central", folder=str(jars))
    unfinished = jars.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(pom), "dependency:copy-dependencies"]
    try:
        subprocess.run(  # noqa: S603
            [*command, f"-DoutputDirectory={unfinished}", "-DincludeScope=runtime"],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=RESOLVE_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        output = (error.stdout or b"").decode(errors="replace")
        raise ApacheKafkaUnavailableError(
            f"Maven could not fetch the jars; is Maven Central reachable?\n{output}"
        ) from error
    unfinished.rename(jars)
