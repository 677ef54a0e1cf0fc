"""A program that tries to compile a grammar, and that its parent may kill.

It reads the grammar from its input and writes the problem; nothing if there is none.
"""

import resource
import sys

from shepherd.backends.inprocess.grammar.matcher import (
    BYTES,
    compile_grammar,
    tokenizer_for,
    walk,
)
from shepherd.errors import InvalidRequestError

MAX_CPU_SECONDS = 2
MAX_BYTES = 1 << 30


def main() -> int:
    """Try the grammar within the limits."""
    _limit()
    grammar = sys.stdin.buffer.read().decode()
    try:
        walk(compile_grammar(grammar, tokenizer_for(BYTES)))
    except InvalidRequestError as error:
        sys.stdout.buffer.write(str(error).encode())
    return 0


def _limit() -> None:
    if sys.platform == "win32":
        return  # the parent process has a time limit

    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    sys.exit(main())
