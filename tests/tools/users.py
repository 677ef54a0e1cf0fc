"""Another user than the one of the tests, where that is root."""

import os
from collections.abc import Callable
from pathlib import Path


def as_ordinary_user(base: Path, work: Callable[[], None]) -> None:
    """Do something as a user to whom all that is in a directory belongs, and who is not root."""
    if os.geteuid() != 0:
        work()
        return
    for path in (base, *base.rglob("*")):
        os.lchown(path, 65_534, 65_534)
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65_534)
            os.setuid(65_534)
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
