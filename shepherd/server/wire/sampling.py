"""The fields of a request that control sampling, with the names of OpenAI and llama.cpp."""

from functools import cache
from typing import Annotated, Any, cast, get_args

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    model_validator,
)

from shepherd.sampling import (
    EXTRA_SAMPLERS,
    MAX_BIASES,
    MAX_STOP_STRINGS,
    RANGES,
    SAMPLERS,
    Sampling,
)
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError
from shepherd.server.wire.unsupported import check_fields

_SAMPLER_ALIASES = {"typ_p": "typical_p", "typical": "typical_p", "temp": "temperature"}
_TOO_MANY_BIASES = f"takes at most {MAX_BIASES} tokens"
MAX_BIAS_CHARACTERS = 256
_BIAS_FORM = (
    f"must map tokens, by number or text of at most {MAX_BIAS_CHARACTERS} characters, to numbers"
)

_SAME_NAMES = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "min_keep",
    "typical_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "dynatemp_range",
    "dynatemp_exponent",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "logit_bias",
    "ignore_eos",
    "seed",
)
_TEXTS = ("stop", "samplers", "dry_sequence_breakers")
_PARAMETERS = {
    **{name: name for name in (*_SAME_NAMES, *_TEXTS)},
    "repetition_penalty": "penalty_repeat",
    "frequency_penalty": "penalty_freq",
    "presence_penalty": "penalty_present",
    "repeat_last_n": "penalty_last_n",
}
"""The names in `Sampling` by the names of fields."""

_UNSET = Sampling()


RANDOM_SEED = -1
"""llama.cpp's word for a seed of its own choice."""

_NUMBERS = {int, float}


@cache
def _number_names(model: type[BaseModel]) -> frozenset[str]:
    """All names with which a request may send a number."""
    names: set[str] = set()
    for name, field in model.model_fields.items():
        if _NUMBERS & set(get_args(field.annotation)):
            alias = field.validation_alias
            names |= (
                {name, *(str(c) for c in alias.choices)}
                if isinstance(alias, AliasChoices)
                else {name}
            )
    return frozenset(names)


def ranged(name: str, description: str, *aliases: str) -> Any:
    """A number in the range of the sampling parameter `name`."""
    low, high = RANGES[name]
    alias = AliasChoices(*aliases) if aliases else None
    return Field(default=None, ge=low, le=high, validation_alias=alias, description=description)


def _stop_strings(value: object) -> object:
    """A list, without empty strings: several programs send "" for none."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list):
        return [item for item in cast(list[object], value) if item != ""]
    return value


def _sampler_names(value: object) -> object:
    if not isinstance(value, list):
        return value
    names = [str(name).replace("-", "_") for name in cast(list[object], value)]
    return [_SAMPLER_ALIASES.get(name, name) for name in names]


def _biases(value: object) -> object:
    """Pairs of an object or a list of pairs; digits are a token's number, `false` is a ban."""
    if value is None:
        return None
    if isinstance(value, dict):
        pairs = list(cast(dict[object, object], value).items())
    elif isinstance(value, list):
        pairs = [_pair(item) for item in cast(list[object], value)]
    else:
        raise ValueError(_BIAS_FORM)
    if len(pairs) > MAX_BIASES:
        raise ValueError(_TOO_MANY_BIASES)
    return tuple((_token(token), _bias(bias)) for token, bias in pairs) or None


def _pair(item: object) -> tuple[object, object]:
    if not isinstance(item, list) or len(pair := cast(list[object], item)) != 2:
        raise ValueError(_BIAS_FORM)
    return pair[0], pair[1]


def _token(token: object) -> int | str:
    if isinstance(token, str) and 0 < len(token) <= MAX_BIAS_CHARACTERS:
        return int(token) if token.isascii() and token.isdigit() and len(token) < 20 else token
    if isinstance(token, int) and not isinstance(token, bool):
        return token
    raise ValueError(_BIAS_FORM)


def _bias(bias: object) -> float:
    if bias is False:
        return -100.0
    if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
        raise ValueError("a bias must be a number from -100 to 100")
    return float(bias)


class DecodingFields(RequestModel):
    """The sampling parameters of a request; the settings supply missing ones."""

    temperature: float | None = ranged("temperature", "Randomness; 0: the likeliest token.")
    top_p: float | None = ranged("top_p", "Keep the likeliest tokens up to this probability.")
    top_k: int | None = ranged("top_k", "Keep the K likeliest tokens; 0: all.")
    min_p: float | None = ranged("min_p", "Drop tokens below this share of the likeliest.")
    min_keep: int | None = ranged("min_keep", "Tokens that are kept at least.")
    typical_p: float | None = ranged(
        "typical_p", "Keep the most typical tokens up to this probability.", "typical_p", "typ_p"
    )
    top_n_sigma: float | None = ranged(
        "top_n_sigma", "Drop tokens so many deviations below the best logit; 0: off."
    )
    xtc_probability: float | None = ranged("xtc_probability", "How often XTC is applied; 0: off.")
    xtc_threshold: float | None = ranged(
        "xtc_threshold", "XTC drops tokens above this probability, but for the last of them."
    )
    dynatemp_range: float | None = ranged(
        "dynatemp_range", "The temperature follows the entropy, up and down by this; 0: off."
    )
    dynatemp_exponent: float | None = ranged("dynatemp_exponent", "The power of the entropy.")
    repetition_penalty: float | None = ranged(
        "penalty_repeat",
        "Repetition penalty, also `repeat_penalty`; 1: off.",
        "repetition_penalty",
        "repeat_penalty",
    )
    frequency_penalty: float | None = ranged("penalty_freq", "Frequency penalty; 0: off.")
    presence_penalty: float | None = ranged("penalty_present", "Presence penalty; 0: off.")
    repeat_last_n: int | None = ranged(
        "penalty_last_n", "Tokens that the penalties look back; -1: the context."
    )
    dry_multiplier: float | None = ranged(
        "dry_multiplier", "Strength of DRY, against repeated phrases; 0: off."
    )
    dry_base: float | None = ranged("dry_base", "How DRY grows with each repeated token.")
    dry_allowed_length: int | None = ranged(
        "dry_allowed_length", "Repeated tokens that DRY lets pass."
    )
    dry_penalty_last_n: int | None = ranged(
        "dry_penalty_last_n", "Tokens that DRY looks back; -1: the context."
    )
    dry_sequence_breakers: Annotated[
        list[str] | None, Field(description="Texts across which DRY sees no repetition.")
    ] = None
    mirostat: int | None = ranged(
        "mirostat", "1 or 2: mirostat in place of the other samplers; 0: off."
    )
    mirostat_tau: float | None = ranged("mirostat_tau", "The surprise that mirostat aims at.")
    mirostat_eta: float | None = ranged("mirostat_eta", "How fast mirostat learns.")
    samplers: Annotated[
        list[str] | None,
        BeforeValidator(_sampler_names),
        Field(
            description="The samplers that are applied, in order: "
            f"{', '.join((*SAMPLERS, *EXTRA_SAMPLERS))}."
        ),
    ] = None
    seed: Annotated[
        int | None, Field(description="Random seed; taken modulo 2^32, -1: another one each time.")
    ] = None
    stop: Annotated[
        Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)] | None,
        BeforeValidator(_stop_strings),
        Field(description=f"A text, or up to {MAX_STOP_STRINGS}, that end the answer."),
    ] = None
    logit_bias: Annotated[
        tuple[tuple[int | str, float], ...] | None,
        BeforeValidator(_biases),
        Field(
            description="Added to the logits of tokens, named by number (as OpenAI does) or text: "
            "from -100, a ban, to 100."
        ),
    ] = None
    ignore_eos: Annotated[
        bool | None, Field(description="Go on to the limit: the model can't end its answer.")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _no_booleans(cls, value: Any) -> object:
        """Refuse `true` and `false` for numbers; pydantic would accept them as 1 and 0."""
        fields = cast(dict[str, object], value) if isinstance(value, dict) else {}
        for name in fields.keys() & _number_names(cls):
            if isinstance(fields[name], bool):
                message = f"{name}: must be a number, not true or false"
                raise ApiError(400, message, "invalid_value", name)
        return cast(object, value)

    @model_validator(mode="before")
    @classmethod
    def _served(cls, value: Any) -> object:
        """Refuse known fields that are not served, which `extra` would ignore."""
        return check_fields(cls, value)

    def to_sampling(self) -> Sampling:
        """The parameters that the request sets; raises ApiError if two exclude each other."""
        values = self._parameters()
        return Sampling(**values) if values else _UNSET

    def _parameters(self) -> dict[str, Any]:
        """The values that the request sets, by the names of `Sampling`."""
        values: dict[str, Any] = {}
        for name, value in vars(self).items():
            if value is not None and name in _PARAMETERS:
                values[_PARAMETERS[name]] = tuple(value) if name in _TEXTS else value
        if self.seed == RANDOM_SEED:
            del values["seed"]
        elif self.seed is not None:
            values["seed"] = self.seed % 2**32
        return values


class SamplingFields(DecodingFields):
    """The sampling parameters, and OpenAI's log probabilities."""

    logprobs: Annotated[
        bool | None, Field(description="Tell the log probability of each token of the content.")
    ] = None
    top_logprobs: int | None = ranged(
        "logprobs", "Tell so many of the likeliest tokens too; `logprobs` must be true."
    )

    def _parameters(self) -> dict[str, Any]:
        if self.top_logprobs and not self.logprobs:
            message = "top_logprobs: logprobs must be true with it"
            raise ApiError(400, message, "invalid_value", "top_logprobs")
        values = super()._parameters()
        if self.logprobs:
            values["logprobs"] = self.top_logprobs or 0
        return values
