import pytest
from hypothesis import example, given

from shepherd.cli.render.markdown_stream import Block, BlockKind, MarkdownStream
from tests.cli_repl.texts import CUTS, MARKDOWN, split


def _whole(text: str) -> list[Block]:
    stream = MarkdownStream()
    return stream.feed(text) + stream.finish()


@given(MARKDOWN, CUTS)
@example("```py\nx = 1\n", [3])
def test_any_chunking_gives_the_same_blocks_and_loses_nothing(text: str, cuts: list[int]) -> None:
    stream = MarkdownStream()
    committed: list[Block] = []
    fed = ""
    for chunk in split(text, cuts):
        committed += stream.feed(chunk)
        fed += chunk
        assert "".join(b.text for b in committed) + stream.tail == fed
    committed += stream.finish()
    assert stream.tail == ""
    assert "".join(b.text for b in committed) == text
    assert committed == _whole(text)


@given(MARKDOWN, MARKDOWN)
def test_what_is_finished_does_not_depend_on_what_follows(text: str, more: str) -> None:
    stream = MarkdownStream()
    first = stream.feed(text)
    assert (first + stream.feed(more) + stream.finish())[: len(first)] == first


@given(MARKDOWN)
def test_inside_a_fence_at_most_the_current_line_is_open(text: str) -> None:
    stream = MarkdownStream()
    for character in text:
        stream.feed(character)
        if stream.in_code:
            assert "\n" not in stream.tail


@given(MARKDOWN)
def test_a_finished_stream_starts_afresh(text: str) -> None:
    stream = MarkdownStream()
    stream.feed(text)
    stream.finish()
    assert stream.feed("# T\n") == [Block(BlockKind.HEADING, "# T\n")]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a\nb\n\nc", "paragraph blank paragraph"),
        ("a\n# T\nb", "paragraph heading paragraph"),
        ("Title\n=====\ntext", "paragraph paragraph"),
        ("a\n\n---\nb", "paragraph blank rule paragraph"),
        ("- a\n- b\n  - c\n\n  more\n\nend", "item item paragraph"),
        ("1. a\n   ```sh\n   x\n\n   y\n   ```\n2. b", "item item"),
        ("1. a\n   ```sh\n   x\n```\n2. b", "item item"),
        ("1. a\n```sh\nx\n```\n2. b", "item fence_open code fence_close item"),
        ("say\n- a", "paragraph item"),
        ("in\n2024. was", "paragraph"),
        ("> a\nlazy\n\nb", "quote blank paragraph"),
        ("t\n| a |\n|---|\n| 1 |\nend", "paragraph table paragraph"),
        ("| a | b\nno table", "paragraph"),
        ("```a\n~~~\n```", "fence_open code fence_close"),
        ("````\n```\n````\n", "fence_open code fence_close"),
        ("``` not `a` fence\n", "paragraph"),
        ("    x\n    y\nz", "indented paragraph"),
        ("- - -\n- a", "rule item"),
    ],
)
def test_kinds(text: str, kinds: str) -> None:
    assert " ".join(b.kind for b in _whole(text)) == kinds
