"""Finds out how a model writes calls, by what its chat template makes of calls that are known."""

import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shepherd.backends.output import notation as n
from shepherd.backends.output.catalog import ParsedCall
from shepherd.backends.output.style import OutputStyle, ThinkMarkers
from shepherd.messages import JsonObject, Message, ToolCall, ToolSpec

_SPACINGS = ((", ", ": "), (",", ":"), (",", ": "))
_BEGUN_MARKER = re.compile(r"<[^<>\s]*\Z|<\|(?:open|close)\|>[^<>]*\Z|\[[A-Z_]+\Z")
_MARKER_REST = re.compile(r"[^<>]*<\|sep\|>|[^<>\s]*>|[A-Z_]+\]")

_THOUGHT_OPEN = re.compile(r"([<\[][^<>\[\]\s]*think[^<>\[\]\s]*[>\]])\s*\Z")
_THOUGHT_CLOSE = re.compile(r"\s*([<\[][^<>\[\]\s]+[>\]])(\n{0,2})")

CONTENT, _REASONING = "zq8content", "zq8reasoning"
_NAMES = ("zq8first", "zq8second")
_IDS = ("zq8id1aaa", "zq8id2bbb")
_TEXT, _NUMBER, _MARKUP = "zq8text", 71729, "zq8a\nb <c> & zq8d"
_ARGUMENTS: JsonObject = {
    "zq8ka": _TEXT,
    "zq8kb": _NUMBER,
    "zq8kc": True,
    "zq8kd": None,
    "zq8ke": ["zq8item", 3, True],
    "zq8kf": {"zq8in": "zq8inner", "zq8io": {"zq8ip": 4}},
    "zq8kg": _MARKUP,
    "zq8kh": 25,
}
"""An argument of each type; the keys are in order, because some templates sort them."""

_TYPES = ("string", "integer", "boolean", "null", "array", "object", "string", "integer")
_SECOND = {"zq8kb": 5, "zq8ka": "more"}
"""Those of the second call, in another order."""
PROBE_CALLS = tuple(map(ToolCall, _IDS, _NAMES, (_ARGUMENTS, _SECOND)))
_SCHEMAS: JsonObject = {
    key: {"type": [kind, "null"] if kind == "null" else kind}
    for key, kind in zip(_ARGUMENTS, _TYPES, strict=True)
}
PROBE_TOOLS = tuple(
    ToolSpec(
        call.name,
        "",
        {"type": "object", "properties": {key: _SCHEMAS[key] for key in call.arguments}},
    )
    for call in PROBE_CALLS
)
"""The tools of the probe's calls."""

Render = Callable[[Message | None], str]
"""Renders a conversation that ends with this message of the assistant, or as a prompt for one; ""
if the template fails."""


def with_separator(style: OutputStyle, render: Render) -> OutputStyle:
    """The style with the whitespace that the template really writes between content and a call."""
    rendered = render(Message.assistant(CONTENT, tool_calls=PROBE_CALLS[:1]))
    _, _, behind = rendered.partition(CONTENT)
    if not behind:
        return style  # the template leaves the content out
    blank = behind[: len(behind) - len(behind.lstrip())]
    return replace(style, separator=blank)


def with_thought(style: OutputStyle, render: Render) -> OutputStyle:
    """The style with the markers that the template writes around reasoning, if it knows none."""
    for calls in ((), PROBE_CALLS[:1]):
        message = Message.assistant(CONTENT, reasoning=_REASONING, tool_calls=calls)
        before, reasoning, behind = render(message).partition(_REASONING)
        opening, closing = _THOUGHT_OPEN.search(before), _THOUGHT_CLOSE.match(behind)
        if not (reasoning and opening and closing):
            continue
        if any(known.open == opening[1] for known in style.think):
            return style
        own = ThinkMarkers(opening[1], closing[1], after=len(closing[2]))
        return replace(style, think=(own, *style.think))
    return style


class Derived(Struct, frozen=True):
    """How a template writes calls, and what it made of the probe's calls behind the `prompt`."""

    notation: n.Notation
    written: str
    prompt: str = ""

    def is_read_as(self, calls: Sequence[ParsedCall]) -> bool:
        """Whether these are the probe's calls, but for what the template leaves out."""
        probe = PROBE_CALLS if self.notation.many else PROBE_CALLS[:1]
        probe_calls = [
            (c.name, {k: v for k, v in c.arguments.items() if k in self.written}) for c in probe
        ]
        return [(c.name, c.arguments) for c in calls] == probe_calls


class _Call(Struct, frozen=True):
    """What follows a name: `middle`, the arguments as JSON or `fields`, and the text `behind`."""

    middle: str
    behind: str
    fields: n.Fields | None = None
    comma: str = ", "
    colon: str = ": "


def derive(render: Render, ends: Sequence[str] = ()) -> Derived | None:
    """The notation of a template; None if it writes no calls, or in a way that has no description.

    `ends` are the texts of the tokens that end an answer.
    """
    plain, prompt = render(Message.assistant(CONTENT)), render(None)
    single = _without_ids(render(Message.assistant("", tool_calls=PROBE_CALLS[:1])))
    several = _without_ids(render(Message.assistant("", tool_calls=PROBE_CALLS)))
    header = _common_start(plain, single)
    turn_end = plain.partition(CONTENT)[2]
    before, begun = _behind_prompt(prompt, header), prompt.removeprefix(header)

    def answer(rendered: str) -> str:
        return before + rendered[len(header) :].removeprefix(begun).lstrip("\n")

    lead, name, behind_name = answer(single).partition(_NAMES[0])
    call = (_with_json(behind_name) or _with_fields(behind_name)) if name else None
    if call is None or CONTENT not in plain:
        return None
    tail = _without_end(call.behind, turn_end, ends)
    only = n.Notation(lead, call.middle, tail, many=False, fields=call.fields)
    only = replace(only, comma=call.comma, colon=call.colon)
    notation = _several(only, answer(several), turn_end, ends) or only
    written = answer(several if notation.many else single)
    if not lead:  # the prompt has begun the calls
        notation = _with_prompted(notation, prompt)
    written = _without_end(written, turn_end, ends)
    return Derived(_with_names(notation), written, (before and prompt) or header)


def _with_prompted(notation: n.Notation, prompt: str) -> n.Notation:
    """The notation with the end of the prompt, if that also stands between two calls."""
    prompted = _common_end(prompt, notation.between)
    between = notation.between.removesuffix(prompted)
    return replace(notation, open=prompted, between=between, prompted=prompted)


def _behind_prompt(prompt: str, header: str) -> str:
    """What stands between the prompt and a call, if that is no reasoning."""
    missing = header.removeprefix(prompt) if header.startswith(prompt) else ""
    return "" if "think" in missing else missing.rstrip("\n") if missing.strip() else ""


def _with_names(notation: n.Notation) -> n.Notation:
    """The notation with a hole for each name that is repeated."""
    parts = {
        part: getattr(notation, part).replace(_NAMES[0], n.NAME).replace(_NAMES[1], n.NAME)
        for part in ("begin", "open", "middle", "close", "between", "end")
    }
    return replace(notation, **parts)


def _several(only: n.Notation, text: str, turn_end: str, ends: Sequence[str]) -> n.Notation | None:
    """The notation for several calls, from the text of two; None if each is a message."""
    lead, _, behind_name = text.partition(_NAMES[0])
    body, _, behind_second = behind_name.partition(_NAMES[1])
    first = _with_json(body) or _with_fields(body)
    if first is None or not all(key in behind_second for key in _SECOND):
        return None
    gap = first.behind
    if gap != _without_end(gap, turn_end, ends, inside=True):
        return None
    middle = _numbered(first.middle, _middle_of_second(behind_second, first))
    if middle is None:
        return None
    a, b = (behind_second.find(key) for key in sorted(_SECOND))
    lead, gap, opening = _common_opening(lead, gap)
    rest = gap.removesuffix(opening)
    close = _common_start(rest, only.close)
    return replace(
        only,
        begin=lead.removesuffix(opening),
        open=opening,
        middle=middle,
        close=close,
        between=rest.removeprefix(close),
        end=only.close.removeprefix(close),
        many=True,
        ordered=a < b,
    )


def _common_opening(lead: str, gap: str) -> tuple[str, str, str]:
    """The text before the first and the second name, with holes, and the end that both have."""
    best = (lead, gap, _common_end(lead, gap))
    for first, hole in enumerate((n.FROM_0, n.FROM_1)):
        numbered_lead, numbered_gap = _holed(lead, first, hole), _holed(gap, first + 1, hole)
        common = _common_end(numbered_lead, numbered_gap)
        if hole in common:
            best = (numbered_lead, numbered_gap, common)
    return best


def _numbered(first: str, second: str) -> str | None:
    """The text with a hole for the number in which the two texts differ; None if they do else."""
    if first.replace(_NAMES[0], n.NAME) == second.replace(_NAMES[1], n.NAME):
        return first
    for start, hole in enumerate((n.FROM_0, n.FROM_1)):
        numbered = _holed(first, start, hole)
        if numbered == _holed(second, start + 1, hole):
            return numbered
    return None


def _holed(text: str, number: int, hole: str) -> str:
    """The text with a hole in place of this number."""
    return re.sub(rf"(?<![\w.]){number}(?![\w.])", hole, text)


def _middle_of_second(behind_name: str, call: _Call) -> str:
    """The text between the second name and its arguments."""
    key = min(place for key in _SECOND if (place := behind_name.find(key)) >= 0)
    before = behind_name[:key]
    if call.fields is None:
        return before[: before.rfind("{")]
    return before.removesuffix(call.fields.open)


def _with_json(text: str) -> _Call | None:
    """The call whose arguments follow as an object of JSON, in any layout."""
    start = text.find("{")
    while start >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(text, start)
        except ValueError:
            value, end = None, start
        if value == _ARGUMENTS:
            return _with_layout(text[:start], text[start:end], text[end:])
        start = text.find("{", start + 1)
    return None


def _with_layout(middle: str, written: str, behind: str) -> _Call:
    """The call whose arguments are this JSON, with its separators."""
    for comma, colon in _SPACINGS:
        if written == json.dumps(_ARGUMENTS, ensure_ascii=False, separators=(comma, colon)):
            return _Call(middle, behind, comma=comma, colon=colon)
    return _Call(middle, behind, comma="", colon="")


def _with_fields(text: str) -> _Call | None:
    """The call whose arguments follow one by one."""
    keys = [key for key in _ARGUMENTS if key in text]
    types = [kind for key, kind in zip(_ARGUMENTS, _TYPES, strict=True) if key in keys]
    before, *segments = re.split("|".join(keys) or r"(?!)", text)
    if len(keys) < len(_ARGUMENTS) - 1:  # one without a value may be left out
        return None
    parts = dict(zip(keys, _parts(segments, keys), strict=True))
    middle, _, rest = parts["zq8kb"].partition(str(_NUMBER))
    _, last, behind = parts["zq8kh"].partition(str(_ARGUMENTS["zq8kh"]))
    if not rest or not last:
        return None
    opening = _common_end(before, rest)
    close = _common_start(rest.removesuffix(opening), behind)
    values = {key: part.removesuffix(rest) for key, part in parts.items()}
    values["zq8kh"] = f"{middle}{_ARGUMENTS['zq8kh']}"
    fields = n.Fields(opening, middle, close, rest.removesuffix(opening).removeprefix(close))
    if any(not value.startswith(middle) for value in values.values()):
        fields = _with_types(fields, values, types)
    else:
        values = {key: value.removeprefix(middle) for key, value in values.items()}
        fields = _with_values(fields, values)
    if fields is None:
        return None
    return _Call(before.removesuffix(opening), behind.removeprefix(close), fields)


def _parts(segments: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The text behind each key, with a hole where the key itself is repeated."""
    # A repeated key splits the text too: its parts belong together again.
    if len(segments) == len(keys):
        return list(segments)
    pairs = zip(segments[::2], segments[1::2], strict=False)
    return [n.KEY.join(pair) for pair in pairs][: len(keys)]


def _with_types(fields: n.Fields, values: dict[str, str], types: Sequence[str]) -> n.Fields | None:
    """The fields with the words that name the types of values."""
    middles: dict[str, str] = {}
    for (key, value), kind in zip(values.items(), types, strict=True):
        written = _ARGUMENTS[key]
        text = written if isinstance(written, str) else json.dumps(written)
        if not value.endswith(text):
            return None
        middles[kind] = value.removesuffix(text)
    start = re.sub(r"\w+\Z", "", _common(*middles.values()))
    end = _common(*(middle[::-1] for middle in middles.values()))[::-1]
    end = re.sub(r"\A\w+", "", end)
    words = tuple(
        (kind, middle.removeprefix(start).removesuffix(end)) for kind, middle in middles.items()
    )
    return replace(fields, middle=f"{start}{n.TYPE}{end}", types=words)


def _with_values(fields: n.Fields, values: dict[str, str]) -> n.Fields | None:
    """The fields with how their values are written."""
    quote = values["zq8ka"].partition(_TEXT)[0]
    if values["zq8ka"] != f"{quote}{_TEXT}{quote}":
        return None
    markup = values["zq8kg"]
    pythons: list[str] = []
    language = n.Language.JSON
    for key, kind in (
        ("zq8kc", "boolean"),
        ("zq8kd", "null"),
        ("zq8ke", "array"),
        ("zq8kf", "object"),
    ):
        value = _ARGUMENTS[key]
        if key not in values or _is_json(values[key], value):
            continue
        if values[key] == repr(value):
            pythons.append(kind)
        elif kind in ("array", "object"):
            has_elements = fields.open in values[key] and bool(fields.open)
            language = n.Language.ELEMENTS if has_elements else n.Language.BARE
    item = re.search(re.escape(fields.open) + r"(\w+)" + re.escape(fields.middle), values["zq8ke"])
    return replace(
        fields,
        quote=quote,
        cdata=markup.startswith("<![CDATA["),
        escaped="&lt;" in markup,
        pythons=tuple(pythons),
        language=language,
        item=item[1] if item and language is n.Language.ELEMENTS else "item",
    )


def _is_json(text: str, value: Any) -> bool:
    """Whether the text is this value as JSON."""
    try:
        return json.loads(text) == value
    except ValueError:
        return False


def _without_ids(text: str) -> str:
    """The text with a hole for each id of a call, also a shortened one."""
    for written in _IDS:
        text = text.replace(written, n.ID).replace(sha256(written.encode()).hexdigest()[:9], n.ID)
    return text


def _without_end(text: str, turn_end: str, ends: Sequence[str], *, inside: bool = False) -> str:
    """The text without what ends an answer."""
    for end in filter(None, ends):
        text = text.partition(end)[0]
    if inside:
        return text.partition(turn_end)[0] if turn_end.strip() else text
    return text.removesuffix(_common_end(text, turn_end))


def _common(*texts: str) -> str:
    """The beginning that all texts have."""
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in alike)


def _common_start(one: str, other: str) -> str:
    """The beginning that both texts have, without half a marker at its end."""
    start = _common(one, other)
    if start in (one, other):
        return start
    return _BEGUN_MARKER.sub("", start)


def _common_end(one: str, other: str) -> str:
    """The end that both texts have, without half a marker at its beginning."""
    end = _common(one[::-1], other[::-1])[::-1]
    begun = any(_BEGUN_MARKER.search(text.removesuffix(end)) for text in (one, other))
    return _MARKER_REST.sub("", end, count=1) if begun and _MARKER_REST.match(end) else end
