"""What a box refused is read from the messages of programs."""

from pathlib import Path

import pytest

from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.refusal import Refused, read_refusal, refused

ROOT = Path("/work/project")
PROFILE = Profile(root=ROOT, cwd=ROOT, home=Path("/home/me"), protected=(ROOT / ".git",), hidden=())


@pytest.mark.parametrize(
    ("output", "kind", "target"),
    [
        ("/bin/sh: 1: .git/config: Read-only file system", Refused.WRITE, ".git/config"),
        ("touch: cannot touch './.git/x': Read-only file system", Refused.WRITE, "./.git/x"),
        ("touch: cannot touch '/etc/x': Read-only file system", Refused.WRITE, "/etc/x"),
        ("cp: '/root/a': Permission denied", Refused.READ, "/root/a"),
        ("curl: (6) Could not resolve host: example.com", Refused.NETWORK, ""),
        ("strace: ptrace: Operation not permitted", Refused.SYSTEM, ""),
        ("sh: fork: Resource temporarily unavailable", Refused.LIMIT, "processes"),
    ],
)
def test_the_refusal_names_what_was_refused(output: str, kind: Refused, target: str) -> None:
    refusal = refused(output, 1, PROFILE)
    assert refusal is not None
    assert (refusal.kind, refusal.target) == (kind, target)
    assert target in refusal.text


@pytest.mark.parametrize(
    ("output", "exit_code"),
    [
        ("Read-only file system", 0),
        ("a.txt: No such file or directory", 1),
        ("sub/a.txt: Permission denied", 1),
        ("1 test failed", 1),
    ],
)
def test_what_the_box_leaves_free_is_no_refusal(output: str, exit_code: int) -> None:
    assert refused(output, exit_code, PROFILE) is None


def test_a_path_that_can_not_be_looked_at_is_no_error() -> None:
    name = "x" * 5000
    assert read_refusal("", f"cat: /{name}/x: No such file or directory", 1, PROFILE) is None
