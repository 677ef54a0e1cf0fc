"""Writes the generated pages of docs/reference/ and config/config.toml; --check only compares."""

import sys
from pathlib import Path

from scripts import (
    generate_commands,
    generate_endpoints,
    generate_events,
    generate_json,
    generate_packages,
    generate_python,
    generate_settings,
)

ROOT = Path(__file__).parents[1]
PAGES = (
    generate_commands,
    generate_endpoints,
    generate_events,
    generate_json,
    generate_python,
    generate_packages,
    generate_settings,
)


def generated() -> dict[Path, str]:
    """Every generated file and its contents."""
    files = {ROOT / "docs" / "reference" / page.PAGE: page.render() for page in PAGES}
    files[ROOT / generate_settings.SAMPLE] = generate_settings.render_sample()
    return {path: text.rstrip() + "\n" for path, text in files.items()}


def outdated() -> list[Path]:
    """The files whose contents are outdated."""
    return [
        path
        for path, text in generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main() -> int:
    """Write outdated files; with --check, print their names and return 1."""
    paths = outdated()
    if "--check" in sys.argv[1:]:
        for path in paths:
            print(
                f"{path.relative_to(ROOT)} is outdated; run: python -m scripts.generate_reference"
            )
        return 1 if paths else 0
    texts = generated()
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
