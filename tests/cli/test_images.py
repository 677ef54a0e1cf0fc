"""--image, with the real program."""

import pytest

from tests.cli.program import Program
from tests.pictures import png


def test_an_image_goes_with_the_question(program: Program) -> None:
    (program.work / "photo.png").write_bytes(png(64, 48))
    done = program.run_scripted("text: A cat.\n", "-e", "What is this?", "--image", "photo.png")
    assert (done.returncode, done.stdout) == (0, "A cat.\n"), done.stderr
    (saved,) = program.sessions
    shown = program.run("sessions", "show", saved.stem)
    assert "> [image photo.png, 64×48]\nWhat is this?" in shown.stdout


@pytest.mark.parametrize(
    ("script", "name", "told"),
    [
        ("vision: no\ntext: Never.\n", "photo.png", "script can't see images"),
        ("text: Never.\n", "todo.txt", "todo.txt is no PNG"),
        ("text: Never.\n", "missing.png", "missing.png can't be read: No such file"),
    ],
)
def test_what_can_not_be_shown_is_one_sentence(
    program: Program, script: str, name: str, told: str
) -> None:
    (program.work / "photo.png").write_bytes(png())
    done = program.run_scripted(script, "-e", "What is this?", "--image", name)
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
