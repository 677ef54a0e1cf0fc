"""The text of the profile for sandbox-exec; no Mac runs it here."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.errors import ToolError
from shepherd.tools.sandbox.boxes.macos import quoted, sandbox_profile
from shepherd.tools.sandbox.profile import Profile


def _profile(root: Path, network: str = "") -> Profile:
    (root / "sub").mkdir(parents=True)
    (root / ".env").touch()
    protected, hidden = (root / ".git", root / "sub" / ".git"), (root / ".env",)
    return Profile(root, root, Path("/Users/a"), protected, hidden, network=bool(network))


def _balanced(text: str) -> bool:
    """Whether the parentheses outside of strings match."""
    depth, inside, escaped = 0, False, False
    for character in text:
        if escaped:
            escaped = False
        elif inside:
            escaped, inside = character == "\\", character != '"'
        elif character == '"':
            inside = True
        else:
            depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0 and not inside


def test_everything_is_denied_that_is_not_named(tmp_path: Path) -> None:
    text = sandbox_profile(
        _profile(tmp_path / "p"), Path("/private/tmp/x"), [Path("/Users/a/.nvm")]
    )

    assert text.startswith("(version 1)\n(deny default)\n")
    assert "network" not in text
    assert f'(subpath "{tmp_path}/p")' in text
    assert '(subpath "/Users/a/.nvm")' in text
    assert '(subpath "/Users/a")' not in text
    assert _balanced(text)


def test_later_rules_protect_and_hide(tmp_path: Path) -> None:
    text = sandbox_profile(_profile(tmp_path / "p"), Path("/private/tmp/x"), [])

    allowed = text.index("(allow file-write* (subpath")
    kept = text.index("(deny file-write* (subpath")
    hidden = text.index("(deny file-read* file-write* (subpath")
    assert allowed < kept < hidden
    assert f'"{tmp_path}/p/.git"' in text[kept:hidden]
    assert f'(deny file-write-unlink (literal "{tmp_path}/p/sub"))' in text
    assert f'"{tmp_path}/p/.env"' in text[hidden:]


def test_the_network_is_named_where_it_is_on(tmp_path: Path) -> None:
    text = sandbox_profile(_profile(tmp_path / "p", "on"), Path("/private/tmp/x"), [])

    assert '(allow network-outbound (remote ip "*:*"))' in text
    assert _balanced(text)


@pytest.mark.parametrize("name", ['a"b', "a\\", 'x") (allow default) (', "(", "ü 漢 '", "#t ;"])
def test_paths_can_not_add_rules(tmp_path: Path, name: str) -> None:
    text = sandbox_profile(_profile(tmp_path / name), Path("/private/tmp/x"), [])

    assert _balanced(text)
    outside = "".join(text.split('"')[::2]) if "\\" not in text else ""
    assert "allow default" not in outside


@given(st.text())
def test_quoting_is_undone_by_reading(text: str) -> None:
    try:
        written = quoted(text)
    except ToolError:
        assert any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) < 0xE000 for c in text)
        return
    except UnicodeEncodeError:
        pytest.fail("an error of another kind")

    body, read, position = written[1:-1], "", 0
    while position < len(body):
        position += body[position] == "\\"
        assert read is not None
        read += body[position]
        position += 1
    assert read == text
    assert written[0] == written[-1] == '"'
