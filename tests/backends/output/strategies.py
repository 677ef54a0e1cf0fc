"""Text that is heavy in markers, and ways to cut it."""

from hypothesis import strategies as st

MARKUP = [
    "<tool_call>", "</tool_call>", "<tools>", "</tools>", "<function_calls>", "</function_calls>",
    "<function=read_file>", "<function=", "</function>", "<parameter=path>", "</parameter>",
    '<invoke name="read_file">', "</invoke>", '<parameter name="path">', "<path>", "</path>",
    "<read_file", "<read_file>", "</read_file>", '<read_file path="a"/>', ' path="a"', "/>",
    "<arg_key>path</arg_key>", "<arg_value>", "</arg_value>", "<get_time/>",
    '{"name": "read_file", "arguments": {"path": "x"}}', '{"name": "get_time", "arguments": {}}',
    '{"name": ', '"read_file"', '"arguments"', '"path"', "{", "}", "[", "]", ":", ",", ";",
    '"', "'", "\\",
    "[read_file(path='a')]", "functools[", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]",
    '{"path": "x"}', "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>", "functions.read_file:0", "<|tool_call_argument_begin|>",
    "<|tool_call_end|>", "<|tool_calls_section_end|>", "<|tool_call>", "<tool_call|>",
    "<|tool_calls|>", "<|tool_call:begin|>a1<|tool_call:name|>", "<|tool_call:args|>",
    "<|tool_call:end|>", "<|tool_call:start|>", "<|tool_arg:start|>", "<|tool_arg:value|>",
    "<|tool_arg:end|>", '<function name="read_file">', '<param name="path">', "</param>",
    "<![CDATA[", "]]>", "<|open|>tools<|sep|>", '<|open|>call tool="read_file" index="1"<|sep|>',
    '<|open|>argument key="path" type="string"<|sep|>', "<|close|>argument<|sep|>",
    "<|close|>call<|sep|>", "<｜tool_calls_begin｜>", '<steptml:invoke name="read_file">',
    'call:read_file{path:<|"|>x<|"|>}', "read_file", "get_time", "<think>", "</think>", "```",
    "```json\n", "````", "~~~", "`", "\n", "\n\n", " ", "    ", "\t", "\r\n", "<", ">", "</", "a",
    "é", "日本",
]  # fmt: skip
HARMONY_MARKUP = [
    "<|channel|>", "<|message|>", "<|start|>assistant", "<|start|>", "<|end|>", "<|call|>",
    "<|return|>", "analysis", "final", "commentary", " to=functions.read_file", "<|constrain|>json",
]  # fmt: skip

marked_text = st.lists(
    st.sampled_from(MARKUP + HARMONY_MARKUP) | st.text(max_size=4), max_size=14
).map("".join)
cut_seeds = st.lists(st.integers(0, 10_000), max_size=8)


def cuts(text: str, seeds: list[int]) -> list[int]:
    return [seed % (len(text) + 1) for seed in seeds]


@st.composite
def text_with_words(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Markup of every kind with unique words strewn in, and those words."""
    parts: list[str] = []
    words: list[str] = []
    for fragment in draw(st.lists(st.sampled_from(MARKUP), max_size=12)):
        parts.append(fragment)
        if draw(st.booleans()):
            words.append(f"w{len(words)}w")
            space = st.sampled_from(["", " ", "\n"])
            parts += [draw(space), words[-1], draw(space)]
    return "".join(parts), words
