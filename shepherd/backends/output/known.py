"""Ways of writing calls that are read from every model, also where its template is not known."""

from msgspec.structs import replace

from shepherd.backends.output.notation import (
    FROM_1,
    ID,
    KEY,
    NAME,
    TYPE,
    Fields,
    Language,
    Notation,
)

_DSEEK_BEGIN, _DSEEK_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_DSEEK_CALL, _DSEEK_CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_STEP_BEGIN, _STEP_END = "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"
_STEP_CALL, _STEP_CLOSE = "<｜tool_call_begin｜>", "</steptml:invoke><｜tool_call_end｜>"
_STEP = Fields('<steptml:parameter name="', '">', "</steptml:parameter>")
_K3_BEGIN, _K3_END = "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"
_K3_CALL, _K3_NAMED = '<|open|>call tool="', f'" index="{FROM_1}"<|sep|>'
_K3_JSON, _K3_CLOSE = '<|open|>json type="object"<|sep|>', "<|close|>call<|sep|>"
_K3 = Fields(
    '<|open|>argument key="', f'" type="{TYPE}"<|sep|>', "<|close|>argument<|sep|>",
    types=(("string", "string"),),
)  # fmt: skip
_M3 = "]<]minimax[>["
_PLAMO_BEGIN, _PLAMO_END = (f"<|plamo:{word}_tool_requests:plamo|>" for word in ("begin", "end"))
_PLAMO_CALL = "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>"
_PLAMO_NAMED = "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
_PLAMO_CLOSE = "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
_SOLAR_CALL = f"<|tool_call:begin|>{ID}<|tool_call:name|>"

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
    ("", "[TOOL_CALLS]", f"[CALL_ID]{ID}[ARGS]", "", ""),
    ("", "[TOOL_CALLS]", "[ARGS]", "", ""),
    ("", "[TOOL_CALLS]", "", "", ""),
)
"""Sections of calls with arguments as JSON: before all, before a name, behind it, and the ends."""

SPACES = ("｜DSML｜", "｜｜DSML｜｜", "｜GCML｜")
"""What stands before the names of elements of DeepSeek and GigaChat 3.5."""

_ARGUMENT = Fields("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>")
_PYTHON = Fields("", "=", "", between=", ", quote="'", language=Language.PYTHON)
_BARE = Fields("", ":", "", between=",", quote='<|"|>', language=Language.BARE)

OBJECT = Notation('{"name": "', '", "arguments": ', "}")
ELEMENT = Notation("<", "", "", fields=Fields(" ", '="', "", language=Language.ATTRIBUTES))
_PYTHON_LIST = Notation("", "(", ")", begin="[", between=", ", end="]", fields=_PYTHON)
_FUNCTIONS = tuple(
    Notation(f"<{space}{tag}", end, f"</{space}{name}>", fields=fields)
    for space in ("", *SPACES)
    for tag, name, end in (
        ("function=", "function", ">"),
        ('function name="', "function", '">'),
        ('invoke name="', "invoke", '">'),
    )
    for fields in (
        Fields(
            f'<{space}parameter name="',
            f'" string="{TYPE}">',
            f"</{space}parameter>",
            types=(("string", "true"),),
        ),
        Fields(f'<{space}parameter name="', '">', f"</{space}parameter>"),
        Fields(f"<{space}parameter name=", ">", f"</{space}parameter>"),
        Fields(f"<{space}parameter=", ">", f"</{space}parameter>"),
        Fields('<param name="', '">', "</param>", cdata=True),
        Fields("<", ">", f"</{KEY}>"),
        None,
    )
)
_BODIES = (
    OBJECT,
    Notation("", "(", ")", fields=_PYTHON),
    _PYTHON_LIST,
    Notation("call:", "{", "}", fields=_BARE),
    *_FUNCTIONS,
    *(
        Notation(f"<{tag}>", f"</{tag}>{more}", end, fields=fields)
        for tag in ("function", "name", "tool_name")
        for more, end, fields in (
            ("\n<arguments>", "</arguments>", None),
            ("\n<parameters>", "</parameters>", None),
            ("", "", None),
            ("", "", Fields("<", ">", f"</{KEY}>")),
        )
    ),
    Notation("", "", "", fields=_ARGUMENT),
    Notation("", "", ""),
    Notation("function\n", "", ""),  # Step-Audio 2
    ELEMENT,
)
"""What stands between tags."""

_TAGS = {
    "<tool_call>": "</tool_call>",
    "<tool_calls>": "</tool_calls>",
    "<tools>": "</tools>",
    "<function_calls>": "</function_calls>",
    "<function_call>": "</function_call>",
    "<minimax:tool_call>": "</minimax:tool_call>",
    "<seed:tool_call>": "</seed:tool_call>",
    "<TOOLCALL>": "</TOOLCALL>",
    "<|tool_call>": "<tool_call|>",
    "<start_function_call>": "<end_function_call>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|START_ACTION|>": "<|END_ACTION|>",
    "<|tools_prefix|>": "<|tools_suffix|>",
    "<|action_start|><|plugin|>": "<|action_end|>",
    "<|action_start|> <|plugin|>": "<|action_end|>",
    "-> tool/function_call\n": "<|im_end|>",
    "<longcat_tool_call>": "</longcat_tool_call>",
    "<dots_function_call>": "</dots_function_call>",
    "[TOOL_CALLS]": "[/TOOL_CALLS]",
    "<|python_start|>": "<|python_end|>",
    "<|python_tag|>": "<|eom_id|>",
    "<|tool_call|>": "<|/tool_call|>",
    "<|function_call|>": "<|message_sep|>",
    "<|message_sep|>\n\nfunction call<|role_sep|>\n": "<|message_sep|>",
    **{
        f"<{space}{word}>": f"</{space}{word}>"
        for space in SPACES
        for word in ("function_calls", "tool_calls")
    },
}
TAGS = {
    tag: tuple(replace(body, begin=tag + body.begin, end=body.end + closing) for body in _BODIES)
    for tag, closing in _TAGS.items()
}
"""The notations of calls between an opening and a closing tag, by the opening one."""

CLOSINGS = tuple(_TAGS.values())
LINES = {
    "{": (OBJECT,),
    "[": (OBJECT, _PYTHON_LIST),
    "functools[": (replace(OBJECT, begin="functools["),),
}
"""The notations of calls that begin a line, by what they begin with."""

NOTATIONS = (
    *(
        Notation(before_name, middle, close, begin=begin, end=end)
        for begin, before_name, middle, close, end in _SECTIONS
    ),
    *_FUNCTIONS,
    Notation(  # Solar Open 2
        "<|tool_call:start|>",
        "",
        "<|tool_call:end|>",
        fields=Fields("<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>"),
    ),
    *(
        Notation(  # Tencent Hy3 and Hy4
            f"<tool_call{mark}>",
            separator,
            f"</tool_call{mark}>",
            begin=f"<tool_calls{mark}>",
            end=f"</tool_calls{mark}>",
            fields=Fields(
                f"<arg_key{mark}>", f"</arg_key{mark}>\n<arg_value{mark}>", f"</arg_value{mark}>"
            ),
        )
        for mark in ("", ":opensource")
        for separator in (f"<tool_sep{mark}>", "")
    ),
    *(
        Notation(  # K2 Horizon
            "<ifm|tool_call>",
            "",
            "</ifm|tool_call>",
            begin="<ifm|tool_calls>",
            end="</ifm|tool_calls>",
            fields=Fields(
                "<ifm|arg_key>",
                f"</ifm|arg_key>{kind}<ifm|arg_value>",
                "</ifm|arg_value>",
                types=types,
            ),
        )
        for kind, types in (
            ("", ()),
            (f"<ifm|arg_type>{TYPE}</ifm|arg_type>", (("string", "string"),)),
        )
    ),
    Notation(  # MiniMax M3
        f'{_M3}<invoke name="',
        '">',
        f"{_M3}</invoke>",
        begin=f"{_M3}<tool_call>",
        end=f"{_M3}</tool_call>",
        fields=Fields(f"{_M3}<", ">", f"{_M3}</{KEY}>", language=Language.ELEMENTS),
    ),
    Notation(_K3_CALL, _K3_NAMED, _K3_CLOSE, begin=_K3_BEGIN, end=_K3_END, fields=_K3),
    *(
        Notation(
            _STEP_CALL + kind,
            f'{named}">',
            _STEP_CLOSE,
            begin=_STEP_BEGIN,
            between="<｜tool_sep｜>",
            end=_STEP_END,
            fields=_STEP,
        )
        for kind, named in (
            ("function<｜tool_sep｜>", f'\n<steptml:invoke name="{NAME}'),
            ('<steptml:invoke name="', ""),
        )
    ),
)
"""In the order in which they are tried where they begin alike."""

MUSE = Notation(
    " to=",
    f'<|message|><atem:function_calls>\n<atem:invoke name="{NAME}">',
    "\n</atem:invoke>\n</atem:function_calls>",
    many=False,
    fields=Fields('\n<atem:parameter name="', '">', "</atem:parameter>"),
)
"""The calls of models that write each into a message to the tool."""

_LFM = Notation(
    "",
    "(",
    ")",
    begin="<|tool_call_start|>[",
    between=", ",
    end="]<|tool_call_end|>",
    fields=Fields(
        "", "=", "", between=", ", quote="'", pythons=("boolean", "null", "array", "object")
    ),
)
_GRANITE = Notation(
    '{"name": "', '", "arguments": ', "}", begin="<|tool_call|>[", between=", ", end="]"
)
_UNWRITTEN = (
    (("<|tool_call|>", "available_tools"), _GRANITE),
    (("List of tools: ",), _LFM),
)


def unwritten(template: str) -> tuple[Notation, ...]:
    """How a model calls whose template offers tools and writes no calls; none if it is unknown."""
    return tuple(
        notation for texts, notation in _UNWRITTEN if all(text in template for text in texts)
    )
