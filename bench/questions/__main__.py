"""`python -m bench.questions [--task WORDS] [--stored]`: how often kinds of rules ask the user."""

import argparse
import asyncio
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from bench.questions.prefixes import PrefixRules
from bench.questions.replay import Outcome, Session, replay, sessions
from bench.table import markdown
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.permissions.rules import Rule

_COLUMNS = ("lines", "prefixes", "effects, always", "effects, session")
_HEADER = ("task", "commands", *_COLUMNS, "lost bytes")
_MOST = 25


class Bench:
    """Replays sessions; with `is_stored`, those in the same kind of project share lasting rules."""

    def __init__(self, *, is_stored: bool) -> None:
        self._is_stored = is_stored
        self._rules: dict[tuple[str, str], tuple[Rule, ...]] = defaultdict(tuple)
        self._prefixes: dict[str, set[str]] = defaultdict(set)
        self.questions: dict[str, Counter[str]] = defaultdict(Counter)
        self.kinds: dict[str, Counter[str]] = defaultdict(Counter)
        self.lost: list[str] = []

    def figures(self, session: Session) -> list[int]:
        """The number of commands, of questions under each kind of rules, and of lost bytes."""
        stored = self._prefixes[session.project] if self._is_stored else set[str]()
        prefixes = PrefixRules(stored)
        by_prefix = [command for command in session.commands if prefixes.asks(command)]
        always = self._replay(session, "effects, always", Choice.ALWAYS)
        for_session = self._replay(session, "effects, session", Choice.SESSION)
        by_line = self._replay(session, "lines", Choice.ALWAYS)
        asked = (by_line.questions, by_prefix, always.questions, for_session.questions)
        for column, commands in zip(_COLUMNS, asked, strict=True):
            self.questions[column].update(_program(command) for command in commands)
        self.kinds["effects, always"].update(always.kinds)
        self.kinds["effects, session"].update(for_session.kinds)
        lost = always.lost_bytes + for_session.lost_bytes
        self.lost += [f"{session.task}: {path}" for path in (*always.lost, *for_session.lost)]
        return [len(session.commands), *map(len, asked), lost]

    def _replay(self, session: Session, column: str, widest: Choice) -> Outcome:
        key = (session.project, column)
        effects = column != "lines"
        with tempfile.TemporaryDirectory() as base:
            place, stored = Path(base).resolve(), self._rules[key]
            run = replay(session, place, effects=effects, widest=widest, stored=stored)
            outcome = asyncio.run(run)
        if self._is_stored:
            self._rules[key] += outcome.stored
        return outcome


def main() -> None:
    """Print the table, and the commands that ask most."""
    parser = argparse.ArgumentParser(prog="python -m bench.questions", description=__doc__)
    parser.add_argument("--task", default="", help="only sessions whose name has these words")
    parser.add_argument(
        "--stored", action="store_true", help="sessions in one kind of project share lasting rules"
    )
    options = parser.parse_args()
    bench = Bench(is_stored=options.stored)
    sums = [0] * (len(_HEADER) - 1)
    print(markdown(_HEADER, []), flush=True)
    for session in sessions():
        name = f"{session.project}: {session.task}"
        if options.task in name:
            figures = bench.figures(session)
            sums = [total + figure for total, figure in zip(sums, figures, strict=True)]
            print(f"| {name} | {' | '.join(map(str, figures))} |", flush=True)
    print(f"| sum | {' | '.join(map(str, sums))} |\n")
    _commands, by_lines, by_prefixes, *by_effects, _lost = sums
    for column, count in zip(_COLUMNS[2:], by_effects, strict=True):
        fewer = [f"{1 - count / other:.0%} than {kind}" for kind, other in
                 (("lines", by_lines), ("prefixes", by_prefixes)) if other]  # fmt: skip
        print(f"{column}: fewer questions by {', '.join(fewer)}")
        kinds = [[kind, str(n)] for kind, n in bench.kinds[column].most_common()]
        print(markdown(("is about", "questions"), kinds), "\n")
        most = bench.questions[column].most_common(_MOST)
        print(markdown(("asks", "questions"), [[f"`{name}`", str(n)] for name, n in most]), "\n")
    print("not restored:", *(bench.lost or ["nothing"]), sep="\n")


def _program(command: str) -> str:
    """The first words of a command."""
    return " ".join(command.split("\n")[0].split()[:2])


if __name__ == "__main__":
    main()
