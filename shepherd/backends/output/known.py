"""Ways of writing calls that are read from every model, also where its template is not known."""

from functools import lru_cache

from msgspec.structs import replace

from shepherd.backends.output import notation as n

_DSEEK_BEGIN, _DSEEK_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_DSEEK_CALL, _DSEEK_CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_STEP_BEGIN, _STEP_END = "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"
_STEP_CALL, _STEP_CLOSE = "<｜tool_call_begin｜>", "</steptml:invoke><｜tool_call_end｜>"
_STEP = n.Fields('<steptml:parameter name="', '">', "</steptml:parameter>")
_K3_BEGIN, _K3_END = "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"
_K3_CALL, _K3_NAMED = '<|open|>call tool="', f'" index="{n.FROM_1}"<|sep|>'
_K3_JSON, _K3_CLOSE = '<|open|>json type="object"<|sep|>', "<|close|>call<|sep|>"
_K3 = n.Fields(
    '<|open|>argument key="', f'" type="{n.TYPE}"<|sep|>', "<|close|>argument<|sep|>",
    types=(("string", "string"),),
)  # fmt: skip
_M3 = "]<]minimax[>["
_PLAMO_BEGIN, _PLAMO_END = (f"<|plamo:{word}_tool_requests:plamo|>" for word in ("begin", "end"))
_PLAMO_CALL = "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>"
_PLAMO_NAMED = "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
_PLAMO_CLOSE = "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
_SOLAR_CALL = f"<|tool_call:begin|>{n.ID}<|tool_call:name|>"

_SECTIONS = (
    ("<|tool_calls|>", _SOLAR_CALL, "<|tool_call:args|>", "<|tool_call:end|>", ""),
    (_K3_BEGIN, _K3_CALL, _K3_NAMED + _K3_JSON, f"<|close|>json<|sep|>{_K3_CLOSE}", _K3_END),
    (_PLAMO_BEGIN, _PLAMO_CALL, _PLAMO_NAMED, _PLAMO_CLOSE, _PLAMO_END),
    (_PLAMO_BEGIN, _PLAMO_CALL, f"{_PLAMO_NAMED}<|plamo:msg|>", _PLAMO_CLOSE, _PLAMO_END),
    (
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ),
    *(
        (begin, _DSEEK_CALL + kind, middle, close + _DSEEK_CLOSE, end)
        for begin, end in ((_DSEEK_BEGIN, _DSEEK_END), (_STEP_BEGIN, _STEP_END))
        for kind, middle, close in (
            ("function<｜tool▁sep｜>", "\n```json\n", "\n```"),
            ("function<｜tool▁sep｜>", "\n", ""),
            ("", "<｜tool▁sep｜>", ""),
        )
    ),
    ("", "[TOOL_CALLS]", f"[CALL_ID]{n.ID}[ARGS]", "", ""),
    ("", "[TOOL_CALLS]", "[ARGS]", "", ""),
    ("", "[TOOL_CALLS]", "", "", ""),
)
"""Sections of calls with arguments as JSON: before all, before a name, behind it, and the ends."""

SPACES = ("｜DSML｜", "｜｜DSML｜｜", "｜GCML｜")
"""What stands before the names of elements of DeepSeek and GigaChat 3.5."""


def _arguments(space: str = "", mark: str = "", kind: str = "") -> n.Fields:
    """Arguments as an element for the key and one for the value."""
    middle = f"</{space}arg_key{mark}>{kind}\n<{space}arg_value{mark}>"
    return n.Fields(f"<{space}arg_key{mark}>", middle, f"</{space}arg_value{mark}>")


def _tagged(
    opening: str, close: str, middle: str = "", around: str = "", fields: n.Fields | None = None
) -> n.Notation:
    """Calls between tags, with an element around all of them."""
    begin, end = (f"<{around}>", f"</{around}>") if around else ("", "")
    return n.Notation(opening, middle, close, begin=begin, end=end, fields=fields)


_MINIMAX3 = n.Notation(
    f'{_M3}<invoke name="', '">', f"{_M3}</invoke>",
    begin=f"{_M3}<tool_call>", end=f"{_M3}</tool_call>",
    fields=n.Fields(f"{_M3}<", ">", f"{_M3}</{n.KEY}>", language=n.Language.ELEMENTS),
)  # fmt: skip
_SOLAR = n.Fields("<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>")
_CHILDREN = n.Fields("<", ">", f"</{n.KEY}>")
_PYTHON = n.Fields("", "=", "", between=", ", quote="'", language=n.Language.PYTHON)
_BARE = n.Fields("", ":", "", between=",", quote='<|"|>', language=n.Language.BARE)

OBJECT = n.Notation('{"name": "', '", "arguments": ', "}")
ELEMENT = n.Notation("<", "", "", fields=n.Fields(" ", '="', "", language=n.Language.ATTRIBUTES))
_PYTHON_LIST = n.Notation("", "(", ")", begin="[", between=", ", end="]", fields=_PYTHON)
_TRUE = (("string", "true"),)
_FUNCTIONS = tuple(
    n.Notation(f"<{space}{tag}", end, f"</{space}{name}>", fields=fields)
    for space in ("", *SPACES)
    for tag, name, end in (
        ("function=", "function", ">"),
        ('function name="', "function", '">'),
        ('invoke name="', "invoke", '">'),
    )
    for opening, closing in ((f"<{space}parameter", f"</{space}parameter>"),)
    for fields in (
        n.Fields(f'{opening} name="', f'" string="{n.TYPE}">', closing, types=_TRUE),
        n.Fields(f'{opening} name="', '">', closing),
        n.Fields(f"{opening} name=", ">", closing),
        n.Fields(f"{opening}=", ">", closing),
        n.Fields('<param name="', '">', "</param>", cdata=True),
        _CHILDREN,
        None,
    )
)
_BODIES = (
    OBJECT,
    n.Notation("", "(", ")", fields=_PYTHON),
    _PYTHON_LIST,
    n.Notation("call:", "{", "}", fields=_BARE),
    *_FUNCTIONS,
    *(
        n.Notation(f"<{tag}>", f"</{tag}>{more}", end, fields=fields)
        for tag in ("function", "name", "tool_name")
        for more, end, fields in (
            ("\n<arguments>", "</arguments>", None),
            ("\n<parameters>", "</parameters>", None),
            ("", "", None),
            ("", "", _CHILDREN),
        )
    ),
    n.Notation("", "", "", fields=_arguments()),
    n.Notation("", "", ""),
    n.Notation("function\n", "", ""),  # Step-Audio 2
    ELEMENT,
)
"""What stands between tags."""

_ELEMENTS = (
    "tool_call", "tool_calls", "tools", "function_calls", "function_call", "minimax:tool_call",
    "seed:tool_call", "TOOLCALL", "longcat_tool_call", "dots_function_call",
    *(f"{space}{word}" for space in SPACES for word in ("function_calls", "tool_calls")),
)  # fmt: skip
TAGS = {f"<{name}>": f"</{name}>" for name in _ELEMENTS} | {
    "<|tool_call>": "<tool_call|>", "<start_function_call>": "<end_function_call>",
    "<|tool_call_start|>": "<|tool_call_end|>", "<|START_ACTION|>": "<|END_ACTION|>",
    "<|tools_prefix|>": "<|tools_suffix|>", "<|action_start|><|plugin|>": "<|action_end|>",
    "<|action_start|> <|plugin|>": "<|action_end|>", "-> tool/function_call\n": "<|im_end|>",
    "[TOOL_CALLS]": "[/TOOL_CALLS]", "<|python_start|>": "<|python_end|>",
    "<|python_tag|>": "<|eom_id|>", "<|tool_call|>": "<|/tool_call|>",
    "<|function_call|>": "<|message_sep|>",
    "<|message_sep|>\n\nfunction call<|role_sep|>\n": "<|message_sep|>",
}  # fmt: skip
"""The closing tags of calls by their opening ones."""


@lru_cache(maxsize=64)
def between(tag: str) -> tuple[n.Notation, ...]:
    """The notations of calls between this opening tag and its closing one; none for other text."""
    end = TAGS.get(tag, "")
    bodies = _BODIES if end else ()
    return tuple(replace(body, begin=tag + body.begin, end=body.end + end) for body in bodies)


LINES = {
    "{": (OBJECT,),
    "[": (OBJECT, _PYTHON_LIST),
    "functools[": (replace(OBJECT, begin="functools["),),
}
"""The notations of calls that begin a line, by what they begin with."""

NOTATIONS = (
    *(
        n.Notation(before_name, middle, close, begin=begin, end=end)
        for begin, before_name, middle, close, end in _SECTIONS
    ),
    *_FUNCTIONS,
    _tagged("<|tool_call:start|>", "<|tool_call:end|>", fields=_SOLAR),
    *(
        _tagged(f"<tool_call{m}>", f"</tool_call{m}>", between, "tool_calls" + m, _arguments("", m))
        for m in ("", ":opensource")  # Tencent Hy3 and Hy4
        for between in (f"<tool_sep{m}>", "")
    ),
    *(
        _tagged("<ifm|tool_call>", "</ifm|tool_call>", "", "ifm|tool_calls", fields)  # K2 Horizon
        for fields in (
            _arguments("ifm|"),
            replace(
                _arguments("ifm|", kind=f"<ifm|arg_type>{n.TYPE}</ifm|arg_type>"),
                types=(("string", "string"),),
            ),
        )
    ),
    _MINIMAX3,
    n.Notation(_K3_CALL, _K3_NAMED, _K3_CLOSE, begin=_K3_BEGIN, end=_K3_END, fields=_K3),
    *(
        n.Notation(
            _STEP_CALL + kind,
            f'{named}">',
            _STEP_CLOSE,
            begin=_STEP_BEGIN,
            between="<｜tool_sep｜>",
            end=_STEP_END,
            fields=_STEP,
        )
        for kind, named in (
            ("function<｜tool_sep｜>", f'\n<steptml:invoke name="{n.NAME}'),
            ('<steptml:invoke name="', ""),
        )
    ),
)
"""In the order in which they are tried where they begin alike."""

MUSE = n.Notation(
    " to=", f'<|message|><atem:function_calls>\n<atem:invoke name="{n.NAME}">',
    "\n</atem:invoke>\n</atem:function_calls>", many=False,
    fields=n.Fields('\n<atem:parameter name="', '">', "</atem:parameter>"),
)  # fmt: skip
"""The calls of models that write each into a message to the tool."""

_LFM = replace(
    _PYTHON_LIST, begin="<|tool_call_start|>[", end="]<|tool_call_end|>",
    fields=n.Fields(
        "", "=", "", between=", ", quote="'", pythons=("boolean", "null", "array", "object")
    ),
)  # fmt: skip
_GRANITE = replace(OBJECT, begin="<|tool_call|>[", between=", ", end="]")
_UNWRITTEN = (
    (("<|tool_call|>", "available_tools"), _GRANITE),
    (("List of tools: ",), _LFM),
)


def unwritten(template: str) -> tuple[n.Notation, ...]:
    """How a model calls whose template offers tools and writes no calls; none if it is unknown."""
    return tuple(
        notation for texts, notation in _UNWRITTEN if all(text in template for text in texts)
    )
