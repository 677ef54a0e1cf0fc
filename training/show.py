"""Prints dialogues as Pup sees them: `python -m training.show [COUNT] [--held] [--size TOKENS]`."""

import argparse

from training.dialogues import dialogue


def main() -> None:
    """Reads the arguments and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=3)
    parser.add_argument("--held", action="store_true", help="from the held-out words and phrasings")
    parser.add_argument("--size", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for seed in range(args.seed, args.seed + args.count):
        made = dialogue(seed, lambda text: len(text) // 3, args.size, held=args.held)
        print("".join(text for text, _ in made.pieces()), end="\n======\n")


if __name__ == "__main__":
    main()
