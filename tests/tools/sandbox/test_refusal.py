"""What a box refused is read from the messages of programs."""

from pathlib import Path

import pytest
from msgspec.structs import replace

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


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("OSError: [Errno 18] Invalid cross-device link: 'old' -> 'new'", Refused.LAYER),
        ("fatal: renaming 'old' failed: Invalid cross-device link", Refused.LAYER),
        ("EXDEV: cross-device link not permitted, rename '/work/project/a'", Refused.LAYER),
        ("ln: failed to create hard link '/tmp/x' => 'f': Invalid cross-device link", None),
        ("ln: failed to create hard link 'here' => 'there': Invalid cross-device link", None),
        ("OSError: [Errno 18] Invalid cross-device link: 'f' -> '/tmp/x'", None),
    ],
)
def test_only_what_a_layer_alone_refuses_runs_without_one(
    message: str, kind: Refused | None
) -> None:
    refusal = read_refusal("", message, 1, replace(PROFILE, layer=Path("/state/layer-1")))
    assert (refusal and refusal.kind) == kind
