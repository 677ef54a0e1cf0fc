"""The differences between servers of chat completions.

A strict server refuses unknown fields, and the protocol does not tell which fields a server needs.
Each known kind gets the fields that it accepts; an unknown one gets those of OpenAI's own API.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import urlsplit

from shepherd.backends.api.history import Rules
from shepherd.sampling import Sampling


class Switch(StrEnum):
    """The field that turns reasoning on or off."""

    UNSAID = "unsaid"
    EFFORT = "effort"  # reasoning_effort
    TEMPLATE = "template"  # the chat template's variables, and reasoning_effort
    THINKING = "thinking"  # DeepSeek's {"thinking": {"type": …}}


STRICT_SAMPLING: Mapping[str, str] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "penalty_freq": "frequency_penalty",
    "penalty_present": "presence_penalty",
    "seed": "seed",
    "stop": "stop",
}
"""The sampling parameters of OpenAI's API, and its names for them."""

_OWN_NAMES = {*STRICT_SAMPLING.values(), "logit_bias", "logprobs"}
_EVERY_NAME = {f.name: f.name for f in fields(Sampling)}
_EXTENDED_SAMPLING: Mapping[str, str] = _EVERY_NAME | {
    **STRICT_SAMPLING,
    "penalty_repeat": "repetition_penalty",
    "penalty_last_n": "repeat_last_n",
}
_TENSORRT_SAMPLING: Mapping[str, str] = {
    **STRICT_SAMPLING,
    "top_k": "top_k",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
    "ignore_eos": "ignore_eos",
}

_ANY_NAME = r"(?s).+"
_STRICT = Rules()
_LENIENT = Rules(user_first=True, merge=True, call_id=_ANY_NAME, tool_name=_ANY_NAME)


@dataclass(frozen=True, slots=True)
class Dialect:
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
    rules: Rules = _STRICT
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
        if self.name not in (EXTENDED.name, TENSORRT.name):
            return frozenset()
        names = {*self.sampling.values(), *self.aliases.values(), *self.thoughts}
        template = (
            {"chat_template_kwargs", _BUDGET} if self.switch is Switch.TEMPLATE else set[str]()
        )
        grammar = {"grammar"} if self.grammar else set[str]()
        return frozenset(names | template | grammar) - _OWN_NAMES

    @property
    def plain(self) -> "Dialect":
        """`PLAIN`, with the same form of conversations, for a server that has refused an extra."""
        return replace(PLAIN, rules=self.rules, stop_texts=self.stop_texts)


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
    rules=Rules(user_last=True, call_id="[A-Za-z0-9]{9}", call_id_length=9),
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
    return EXTENDED if _is_near(host) else PLAIN


def _is_near(host: str) -> bool:
    try:
        return ip_address(host).is_private
    except ValueError:
        return bool(host) and ("." not in host or host.endswith((".local", ".lan", ".internal")))
