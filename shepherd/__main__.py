"""Runs the program for `python -m shepherd`."""

import sys

from shepherd.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
