"""Custom commands: their names, their arguments, and `/init`."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.errors import InvalidRequestError
from shepherd.knowledge.commands import CustomCommand
from tests.examples import examples
from tests.knowledge.places import Places


def command(text: str) -> CustomCommand:
    return CustomCommand(name="c", of_user=True, place=Path("c.md"), summary="", hint="", text=text)


@pytest.mark.parametrize(
    ("text", "argument", "expected"),
    [
        ("Review $ARGUMENTS.", "a b", "Review a b."),
        ("From $1 to $2$3.", "'a b' c", "From a b to c."),
        ("Costs \\$5 of $1", "x", "Costs $5 of x"),
        ("Costs $10", "", "Costs $10"),
        ("Plain", "more", "Plain\n\nmore"),
        ("Plain", "", "Plain"),
        ("$1 $ARGUMENTS", "it's", "it's it's"),
        ("$1!", "$2 $ARGUMENTS", "$2!"),
        ("!`touch x` $1", "y", "!`touch x` y"),
    ],
)
def test_arguments_replace_their_places_once(text: str, argument: str, expected: str) -> None:
    assert command(text).expanded(argument) == expected


@settings(max_examples=examples(200), deadline=None)
@given(st.text(), st.text())
def test_an_argument_is_never_lost_or_expanded(text: str, argument: str) -> None:
    before = text.replace("$", "").replace("\\", "")
    assert command(f"{before}$ARGUMENTS").expanded(argument) == before + argument


def test_commands_are_found_and_expanded_by_their_line(places: Places) -> None:
    front = "---\ndescription: Look at it\nargument-hint: [file] [why]\n---\n"
    places.write("part/.shepherd/commands/review.md", f"{front}Review $1.")
    places.write("~/.config/shepherd/commands/greet.md", "# Say hello\nHello $ARGUMENTS")
    knowledge = places.load()
    greet, review = knowledge.commands
    assert (review.summary, review.hint) == ("Look at it", "[file] [why]")
    assert (greet.summary, greet.hint, greet.of_user) == ("Say hello", "[TEXT]", True)
    assert knowledge.expanded("/review a.py now") == "Review a.py."
    assert knowledge.expanded("  /greet Ann\nand Bob") == "# Say hello\nHello Ann\nand Bob"
    for other in ("/other", "review", "/etc/passwd", "/Review x", "a /review"):
        assert knowledge.expanded(other) is None


def test_the_users_command_wins_and_bad_names_are_left_out(places: Places) -> None:
    places.write("~/.config/shepherd/commands/deploy.md", "mine")
    places.write(".claude/commands/deploy.md", "evil")
    for name in ("Big.md", "a b.md", "9.md", "init.md", "empty.md", "note.txt"):
        places.write(f".claude/commands/{name}", "" if name == "empty.md" else "text")
    places.write("~/secret", "secret")
    (places.root / ".claude/commands/out.md").symlink_to(places.home / "secret")
    knowledge = places.load()
    assert [c.text for c in knowledge.commands] == ["mine"]
    assert len(knowledge.problems) == 7
    assert len(places.warnings) == 6


def test_init_never_replaces_a_file_unasked(places: Places) -> None:
    knowledge = places.load()
    assert "Write a file AGENTS.md" in (knowledge.expanded("/init") or "")
    places.write("part/AGENTS.md", "rules")
    with pytest.raises(InvalidRequestError, match="/init improve"):
        knowledge.expanded("/init")
    assert "Improve the file" in (knowledge.expanded("/init improve") or "")
    with pytest.raises(InvalidRequestError, match="takes"):
        knowledge.expanded("/init now")
