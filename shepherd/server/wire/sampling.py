"""The fields of a request that control sampling, with the names of OpenAI and llama.cpp."""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

from msgspec import structs
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, create_model, model_validator

from shepherd import sampling
from shepherd.json_text import as_list, as_object
from shepherd.server.errors import invalid
from shepherd.server.wire import fields

_SAMPLER_ALIASES = {"typ_p": "typical_p", "typical": "typical_p", "temp": "temperature"}
MAX_BIAS_CHARACTERS = 256
_MAX_DIGITS = 20
"""No number of a token has so many; such digits are a text."""

_BIAS_FORM = (
    f"must map tokens, by number or text of at most {MAX_BIAS_CHARACTERS} characters, to numbers"
)

_TEXTS = ("stop", "samplers", "dry_sequence_breakers")
"""Parameters that are lists of texts, which `Sampling` has as tuples."""

_PARAMETERS = {
    **{p.names[0]: name for name, p in sampling.PARAMETERS.items() if name != "logprobs"},
    **{name: name for name in (*_TEXTS, "logit_bias", "ignore_eos")},
}
"""The names in `Sampling` by the names of fields."""

RANDOM_SEED = -1
"""llama.cpp's word for a seed of its own choice."""


@cache
def _number_names(model: type[BaseModel]) -> frozenset[str]:
    """All names with which a request may send a number, such as `top_k` and `temp`."""
    names: set[str] = set()
    for name, field in model.model_fields.items():
        types = set(get_args(field.annotation))  # those of `int | None`
        if types & {int, float}:
            names |= fields.field_names(name, field)
    return frozenset(names)


def _stop_strings(value: object) -> object:
    """A list, without empty strings; a text stands for a list of one."""
    return fields.without_empty([value] if isinstance(value, str) else value)


def _sampler_names(value: object) -> object:
    """Names of samplers in any of llama.cpp's spellings: `top-k`, `temp`, `typ_p`."""
    if not isinstance(value, list):  # pydantic refuses it
        return value
    names = [str(name).replace("-", "_") for name in cast(list[object], value)]
    return [_SAMPLER_ALIASES.get(name, name) for name in names]


def _biases(value: object) -> object:
    """The biases in `{"15": -1}` or `[[15, -1]]`, None for none; raises ValueError.

    Digits are a token's number, and `false` is a ban.
    """
    if value is None:
        return None
    if isinstance(value, dict):
        pairs = list(cast(dict[object, object], value).items())
    elif isinstance(value, list):
        pairs = [_pair(item) for item in cast(list[object], value)]
    else:
        raise ValueError(_BIAS_FORM)
    if len(pairs) > sampling.MAX_BIASES:
        raise ValueError(f"takes at most {sampling.MAX_BIASES} tokens")
    return tuple((_token(token), _bias(bias)) for token, bias in pairs) or None


def _pair(item: object) -> tuple[object, object]:
    """A token and its bias; raises ValueError for anything else."""
    pair = as_list(item)
    if len(pair) != 2:
        raise ValueError(_BIAS_FORM)
    return pair[0], pair[1]


def _token(token: object) -> int | str:
    """A token by its number, which may be in digits, or by its text."""
    if isinstance(token, str) and 0 < len(token) <= MAX_BIAS_CHARACTERS:
        is_number = token.isascii() and token.isdigit() and len(token) < _MAX_DIGITS
        return int(token) if is_number else token
    if isinstance(token, int) and not isinstance(token, bool):
        return token
    raise ValueError(_BIAS_FORM)


def _bias(bias: object) -> float:
    """The bias in a request; `false` is the lowest one, which bans the token."""
    lowest, highest = sampling.BIAS_RANGE
    if bias is False:
        return lowest
    if isinstance(bias, int | float) and bias is not True and lowest <= bias <= highest:
        return float(bias)
    raise ValueError(f"a bias must be a number from {lowest:g} to {highest:g}")


_OTHERS = ("seed", "logprobs")
"""Numbers that requests write in another way."""


def _number(parameter: sampling.Parameter) -> Any:
    """The field of a parameter; it may be called by any of the parameter's names."""
    names = parameter.names
    return Field(
        default=None,
        ge=parameter.low,
        le=parameter.high,
        validation_alias=AliasChoices(*names) if len(names) > 1 else None,
        description=parameter.help + "".join(f" Also `{other}`." for other in names[1:]),
    )


_FIELDS: Any = {
    parameter.names[0]: (parameter.kind | None, _number(parameter))
    for name, parameter in sampling.PARAMETERS.items()
    if name not in _OTHERS
}
if TYPE_CHECKING:
    _Numbers = fields.OwnControls
else:  # a field for each number of `Sampling`
    _Numbers = create_model("_Numbers", __base__=fields.OwnControls, **_FIELDS)


class DecodingFields(_Numbers):
    """The sampling parameters of a request; the settings supply missing ones."""

    dry_sequence_breakers: list[str] | None = None
    """Texts across which DRY sees no repetition."""
    samplers: Annotated[
        list[str] | None,
        BeforeValidator(_sampler_names),
        Field(
            description="The samplers that are applied, in order: "
            f"{', '.join((*sampling.SAMPLERS, *sampling.EXTRA_SAMPLERS))}."
        ),
    ] = None
    seed: int | None = None
    """Random seed; taken modulo 2^32, -1: another one each time."""
    stop: Annotated[
        Annotated[list[str], Field(max_length=sampling.MAX_STOP_STRINGS)] | None,
        BeforeValidator(_stop_strings),
        Field(description=f"A text, or up to {sampling.MAX_STOP_STRINGS}, that end the answer."),
    ] = None
    logit_bias: Annotated[tuple[tuple[int | str, float], ...] | None, BeforeValidator(_biases)] = (
        None
    )
    """Added to the logits of tokens, named by number (as OpenAI does) or text: from -100, a ban, to
    100.
    """
    ignore_eos: bool | None = None
    """Go on to the limit: the model can't end its answer."""

    @model_validator(mode="before")
    @classmethod
    def _no_booleans(cls, value: Any) -> object:
        """Refuse `true` and `false` for numbers; pydantic would accept them as 1 and 0."""
        sent = as_object(value)
        for name in sent.keys() & _number_names(cls):
            if isinstance(sent[name], bool):
                raise invalid(name, "must be a number, not true or false")
        return cast(object, value)

    def to_sampling(self) -> sampling.Sampling:
        """The parameters that the request sets, by the names of `Sampling`."""
        values: dict[str, Any] = {}
        for name, value in vars(self).items():  # pydantic keeps fields there
            if value is not None and name in _PARAMETERS:
                values[_PARAMETERS[name]] = tuple(value) if name in _TEXTS else value
        if self.seed == RANDOM_SEED:
            del values["seed"]  # the engine then draws one
        elif self.seed is not None:
            values["seed"] = self.seed % 2**32
        return sampling.Sampling(**values)


class SamplingFields(DecodingFields):
    """The sampling parameters, and OpenAI's log probabilities."""

    logprobs: bool | None = None
    """Tell the log probability of each token of the content."""
    top_logprobs: Annotated[int | None, fields.in_range("logprobs")] = None
    """Tell so many of the likeliest tokens too; `logprobs` must be true."""

    def to_sampling(self) -> sampling.Sampling:
        """The parameters that the request sets; raises ApiError if two exclude each other."""
        count = fields.logprob_count(requested=self.logprobs, top=self.top_logprobs)
        return structs.replace(super().to_sampling(), logprobs=count)
