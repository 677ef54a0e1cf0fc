"""Images with a question: --image with the real program, and in JSON lines."""

import json
from pathlib import Path

import pytest

from shepherd.cli.batch.protocol import InputError, UserInput, parse_input
from shepherd.cli.terminal.attachments import load_images
from shepherd.errors import ImageError
from shepherd.messages import Message
from tests.cli.program import Program
from tests.pictures import picture, png

PHOTO = picture()


def test_an_image_goes_with_the_question(program: Program) -> None:
    (program.work / "photo.png").write_bytes(png(64, 48))
    done = program.run_scripted("text: A cat.\n", "-e", "What is this?", "--image", "photo.png")
    assert (done.returncode, done.stdout) == (0, "A cat.\n"), done.stderr
    (saved,) = program.sessions
    shown = program.run("sessions", "show", saved.stem)
    assert "> [image photo.png, 64×48]\nWhat is this?" in shown.stdout


def test_a_model_that_can_not_see_is_told_of_in_one_sentence(program: Program) -> None:
    (program.work / "photo.png").write_bytes(png())
    script = "vision: no\ntext: Never.\n"
    done = program.run_scripted(script, "-e", "What is this?", "--image", "photo.png")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("script can't see images") == 1
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_image_is_named(tmp_path: Path) -> None:
    text, missing = tmp_path / "todo.txt", tmp_path / "missing.png"
    text.write_text("buy milk")
    with pytest.raises(ImageError, match=r"todo\.txt is not a PNG"):
        load_images([text])
    with pytest.raises(ImageError, match=r"missing\.png can't be read: No such file"):
        load_images([missing])
    with pytest.raises(ImageError, match="too many"):
        load_images([text] * 21)


def test_json_lines_bring_images() -> None:
    images = [{"data": PHOTO.base64, "name": PHOTO.name}, {"data": PHOTO.data_url}]
    line = json.dumps({"type": "user", "content": "What is this?", "images": images})
    given = parse_input(line.encode())
    assert isinstance(given, UserInput)
    assert given.message == Message.user("What is this?", (PHOTO, picture("")))


@pytest.mark.parametrize(
    ("images", "told"),
    [
        ("x", "must be a list"),
        ([{"name": "a.png"}], 'as its "data"'),
        ([{"data": "%", "name": "a.png"}], r"a\.png is not valid base64"),
        ([{"data": "AAAA"}], "convert it"),
        ([{"data": PHOTO.base64}] * 21, "too many"),
    ],
)
def test_what_is_no_image_in_json_lines_is_told(images: object, told: str) -> None:
    line = json.dumps({"type": "user", "content": "?", "images": images})
    with pytest.raises(InputError, match=told):
        parse_input(line.encode())
