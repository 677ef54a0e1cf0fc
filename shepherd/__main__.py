"""`python -m shepherd`: the program."""

import sys

from shepherd.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
