"""The differences between servers of chat completions, and between OpenAI's models.

A strict server refuses unknown fields, and the protocol does not tell which fields a server needs.
Each known kind gets the fields that it accepts; an unknown one gets those of OpenAI's own API.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from urllib.parse import urlsplit

from msgspec import Struct, field, structs

from shepherd.backends.api import adapter, history, parameters
from shepherd.backends.api.http.client import Endpoint
from shepherd.backends.api.model_list import listed_model
from shepherd.config.section import Effort
from shepherd.json_text import as_flag, as_object, as_objects, as_text, as_texts
from shepherd.messages import JsonObject
from shepherd.sampling import Sampling


class Switch(StrEnum):
    """The field that turns reasoning on or off."""

    UNSAID = "unsaid"
    EFFORT = "effort"  # reasoning_effort
    TEMPLATE = "template"  # the chat template's variables, and reasoning_effort
    THINKING = "thinking"  # DeepSeek's {"thinking": {"type": …}}


STRICT_SAMPLING = parameters.named(
    *("temperature", "top_p", "seed", "stop"),
    penalty_freq="frequency_penalty",
    penalty_present="presence_penalty",
)
"""The sampling parameters of OpenAI's API, and its names for them."""

_OPENAI_NAMES = {*STRICT_SAMPLING.values(), "logit_bias", "logprobs"}
_EXTENDED_SAMPLING = {
    **parameters.named(*(f.name for f in structs.fields(Sampling))),
    **STRICT_SAMPLING,
    "penalty_repeat": "repetition_penalty",
    "penalty_last_n": "repeat_last_n",
}
_TENSORRT_SAMPLING = {
    **STRICT_SAMPLING,
    **parameters.named("top_k", "min_p", "ignore_eos", penalty_repeat="repetition_penalty"),
}

_ANY_NAME = r"(?s).+"
_STRICT = history.Rules()
_LENIENT = history.Rules(user_first=True, merge=True, call_id=_ANY_NAME, tool_name=_ANY_NAME)


class Dialect(Struct, frozen=True):
    """The fields that one kind of server accepts; the defaults are those of a strict server.

    `aliases`: parameters that are also sent under a second name for some servers. `thoughts`: the
    fields in which it wants the reasoning of earlier answers back; `every_thought`: also an empty
    one. `kept`: further fields of answers that it wants back. `usage_option`: it knows
    `stream_options`. `text_bias`: `logit_bias` may name texts. `grammar`: it accepts one.
    `official`: its models never print calls as text. `probed`: requests beyond its list of models
    describe a model. `stop_texts`: the number that it accepts.
    """

    name: str = "openai"
    sampling: Mapping[str, str] = field(default_factory=lambda: STRICT_SAMPLING)
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    rules: history.Rules = _STRICT
    switch: Switch = Switch.EFFORT
    thoughts: tuple[str, ...] = ()
    every_thought: bool = False
    kept: tuple[str, ...] = ()
    usage_option: bool = True
    text_bias: bool = False
    grammar: bool = False
    official: bool = False
    probed: bool = False
    key_header: str = "Authorization"
    stop_texts: int = 4

    @property
    def extras(self) -> frozenset[str]:
        """The fields beyond OpenAI's API, for a server that may know them."""
        if self.name not in (EXTENDED.name, TENSORRT.name):  # a vendor's own API is known
            return frozenset()
        names = {*self.sampling.values(), *self.aliases.values(), *self.thoughts}
        if self.switch is Switch.TEMPLATE:
            names |= {"chat_template_kwargs", _BUDGET}
        if self.grammar:
            names.add("grammar")
        return frozenset(names - _OPENAI_NAMES)

    @property
    def plain(self) -> "Dialect":
        """`PLAIN`, with the same form of conversations, for a server that has refused an extra."""
        return structs.replace(PLAIN, rules=self.rules, stop_texts=self.stop_texts)


_BUDGET = "thinking_budget_tokens"
"""llama.cpp's and Shepherd's limit of reasoning."""

PLAIN = Dialect()
OPENAI = Dialect(official=True)
AZURE = Dialect(name="azure", official=True, key_header="api-key")
EXTENDED = Dialect(
    name="extended",
    sampling=_EXTENDED_SAMPLING,
    aliases={"repetition_penalty": "repeat_penalty"},  # llama.cpp's name
    rules=_LENIENT,
    switch=Switch.TEMPLATE,
    thoughts=("reasoning_content", "reasoning"),
    text_bias=True,
    grammar=True,
    probed=True,
    stop_texts=16,
)
"""vLLM, SGLang, llama.cpp's server, LM Studio, Shepherd: they ignore unknown fields.

Their templates may require alternation that begins with the user. llama.cpp and Shepherd read
`reasoning_content`, vLLM reads `reasoning`.
"""
TENSORRT = Dialect(name="tensorrt", sampling=_TENSORRT_SAMPLING, rules=_LENIENT, stop_texts=16)
DEEPSEEK = Dialect(
    name="deepseek", switch=Switch.THINKING, thoughts=("reasoning_content",), every_thought=True
)
MISTRAL = Dialect(
    name="mistral",
    sampling={**STRICT_SAMPLING, "seed": "random_seed"},
    rules=history.Rules(user_last=True, call_id="[A-Za-z0-9]{9}", call_id_length=9),
    switch=Switch.UNSAID,
    usage_option=False,
)
OPENROUTER = Dialect(name="openrouter", kept=("reasoning_details",))
XAI = Dialect(name="xai", switch=Switch.UNSAID)

_HOSTS = {
    "api.openai.com": OPENAI,
    "azure.com": AZURE,
    "deepseek.com": DEEPSEEK,
    "mistral.ai": MISTRAL,
    "openrouter.ai": OPENROUTER,
    "x.ai": XAI,
}


def dialect_of(base_url: str) -> Dialect:
    """The dialect of the server at this address; `EXTENDED` on this machine or network."""
    host = urlsplit(base_url).hostname or ""
    for known, dialect in _HOSTS.items():
        if host == known or host.endswith("." + known):
            return dialect
    return EXTENDED if Endpoint(base_url).is_near else PLAIN


_SERIES_O = re.compile(r"o\d+(?!\w)")
_GPT = re.compile(r"gpt-(?P<major>\d)(?:\.(?P<minor>\d+))?(?!\d)")
_ONLY_RESPONSES = re.compile(r"codex|deep-research|computer-use|-pro(?!\w)")

_TOOLS_FORBID_EFFORT = (5, 2)
_TOOLS_NEED_RESPONSES = (5, 4)
_XHIGH_SINCE = (5, 2)


def reasons(model: str) -> bool:
    """Whether it is one of OpenAI's reasoning models, which do not accept a temperature."""
    name = _openai_name(model)
    if _SERIES_O.match(name) or name.startswith(("codex-mini", "computer-use")):
        return True
    return gpt_version(model) >= (5, 0) and "-chat" not in name


def gpt_version(model: str) -> tuple[int, int]:
    """The version of one of OpenAI's GPT models, (0, 0) for any other model."""
    match = _GPT.match(_openai_name(model))
    return (int(match["major"]), int(match["minor"] or 0)) if match else (0, 0)


def needs_responses(model: str) -> bool:
    """Whether chat completions lack one of OpenAI's models, or its tool calls.

    It is False for other vendors' names: routers translate by themselves.
    """
    name = _openai_name(model)
    if "/" in model or not (reasons(model) or "-deep-research" in name):
        return False
    return bool(_ONLY_RESPONSES.search(name)) or gpt_version(model) >= _TOOLS_NEED_RESPONSES


def chat_effort(model: str, effort: str, *, tools: bool) -> str | None:
    """The `reasoning_effort` of an OpenAI model in chat completions, None for other models.

    `effort` is the requested level, "" for the minimum. From GPT-5.2 on, OpenAI accepts tools there
    only without reasoning.
    """
    if not reasons(model):
        return None
    version = gpt_version(model)
    if tools and "/" not in model and version >= _TOOLS_FORBID_EFFORT:
        return "none"
    return effort_of(model, effort)


def effort_of(model: str, effort: str) -> str:
    """The level of an OpenAI reasoning model that is nearest to `effort`; "" is the minimum."""
    minimum = min_effort(model)
    if not effort:
        return minimum
    accepted = list(parameters.EFFORTS[parameters.EFFORTS.index(minimum) :])
    if minimum == parameters.NONE:
        accepted.remove(Effort.MINIMAL)  # models with `none` do not have it; only GPT-5 has
    if gpt_version(model) < _XHIGH_SINCE:
        accepted.remove(Effort.XHIGH)
    return parameters.nearest(effort, tuple(accepted))


def min_effort(model: str) -> str:
    """The minimum reasoning of one of OpenAI's reasoning models."""
    version, name = gpt_version(model), _openai_name(model)
    if "-pro" in name:
        return "medium" if version != (5, 0) else "high"
    if "codex" in name or version < (5, 0):
        return "low"
    return "none" if version >= (5, 1) else "minimal"


def parse_models(body: JsonObject) -> list[adapter.ModelEntry]:
    """The models of a list in OpenAI's format, with the extensions of other servers."""
    items = ((as_text(item.get("id")), item) for item in as_objects(body.get("data")))
    return [listed_model(name, item, vision=_vision(item)) for name, item in items if name]


def _openai_name(model: str) -> str:
    """The name without the vendor if the vendor is OpenAI; else ""."""
    name = model.lower().removeprefix("openai/")
    return "" if "/" in name else name


def _vision(item: JsonObject) -> bool | None:
    """Whether the model sees, in the formats of OpenRouter and Shepherd, Mistral and LM Studio."""
    modalities = as_texts(as_object(item.get("architecture")).get("input_modalities"))
    if modalities:
        return "image" in modalities
    flag = as_flag(as_object(item.get("capabilities")).get("vision"))
    if flag is not None:
        return flag
    return {"vlm": True, "llm": False}.get(as_text(item.get("type")))
