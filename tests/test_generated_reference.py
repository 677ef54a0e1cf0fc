"""The generated pages and the sample settings are current."""

from scripts.generate_reference import outdated


def test_generated_files_are_current() -> None:
    assert outdated() == [], "run: python -m scripts.generate_reference"
