"""What a plugin's tool says of itself reaches the runner."""

from pathlib import Path

import shepherd
from shepherd.tools.function import ExtensionTool
from shepherd.tools.tool import FileChange, ToolContext


class Words(shepherd.Arguments):
    """The arguments."""

    text: str = shepherd.Field(description="Some text.")
    later: str = ""


class Write(shepherd.Tool[Words]):
    """A tool with every trait."""

    name = "write_words"
    description = "Writes words."
    arguments = Words
    parallel = True
    polls = True
    later_arguments = frozenset({"later"})

    def accesses(self, arguments: Words, context: ToolContext) -> list[shepherd.Access]:
        return []

    def change(self, arguments: Words, context: ToolContext) -> FileChange:
        return FileChange(Path("/a"), None, arguments.text)

    def goes_on(self, arguments: Words) -> bool:
        return True

    def is_live(self, arguments: Words) -> bool:
        return True

    async def run(self, arguments: Words, context: ToolContext) -> shepherd.ToolOutput:
        return shepherd.ToolOutput(arguments.text)


async def test_nothing_that_a_tool_says_is_lost(tmp_path: Path) -> None:
    own, wrapped = Write(), ExtensionTool(Write())
    context = ToolContext(cwd=tmp_path, spill_dir=tmp_path)
    words = Words(text="hi")
    assert wrapped.spec() == own.spec()
    assert wrapped.trained_spec() == own.trained_spec()
    assert "later" not in wrapped.trained_spec().parameters["properties"]
    assert wrapped.change(words, context) == own.change(words, context)
    assert (wrapped.goes_on(words), wrapped.is_live(words)) == (True, True)
    assert (await wrapped.run(words, context)).content == "hi"
