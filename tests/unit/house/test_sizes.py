"""Files stay as short as a reader's patience."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
MOST_LINES = 400


def too_long(root: Path) -> dict[str, int]:
    """File → its lines, of those that have too many."""
    found = {}
    for top in ("services", "shared", "deploy", "migrations", "clients", "tests"):
        for file in sorted((root / top).rglob("*.py")):
            lines = len(file.read_text().splitlines())
            if lines > MOST_LINES:
                found[str(file.relative_to(root))] = lines
    return found


def test_no_file_is_longer_than_four_hundred_lines():
    assert too_long(ROOT) == {}


def test_a_long_file_is_found_in_any_folder(tmp_path):
    folder = tmp_path / "services" / "deep" / "down"
    folder.mkdir(parents=True)
    (folder / "fits.py").write_text("x = 1\n" * MOST_LINES)
    (folder / "long.py").write_text("x = 1\n" * (MOST_LINES + 1))
    assert too_long(tmp_path) == {"services/deep/down/long.py": MOST_LINES + 1}
