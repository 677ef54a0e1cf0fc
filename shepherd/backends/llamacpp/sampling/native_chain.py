"""A request's samplers as a chain of llama.cpp's own."""

import ctypes
import math
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.errors import InvalidRequestError
from shepherd.sampling import BIAS_RANGE, Sampling, check_sampling

KEYS = {
    **dict.fromkeys(("temp", "top_p", "min_p", "xtc_probability", "xtc_threshold"), float),
    **dict.fromkeys(("penalty_repeat", "mirostat_tau", "mirostat_eta"), float),
    **dict.fromkeys(("top_k", "penalty_last_n", "mirostat"), int),
}
"""`general.sampling.*` of the GGUF format, with the kinds of numbers."""

RANDOM_SEED = 0xFFFFFFFF

_REORDERING = frozenset({"dry", "typical_p", "xtc", "penalties", "infill"})
"""Samplers that can make another token the best one."""

_MIROSTAT_TOKENS = 100
"""Of the likeliest tokens, from which mirostat estimates; llama.cpp's own value."""
_POSSIBLE = 1e-37
"""Only impossible tokens have less than this share of the likeliest token's probability."""


def resolve_biases(sampling: Sampling, vocab: Vocab) -> Sampling:
    """The parameters with token numbers instead of texts in `logit_bias`.

    Raises InvalidRequestError for an unknown token, or if all tokens are banned.
    """
    resolved = replace(sampling, logit_bias=tuple(_numbered(sampling, vocab)))
    impossible = [t for t, bias in token_biases(resolved, vocab).items() if bias == -math.inf]
    if len(impossible) >= vocab.size:
        raise InvalidRequestError("logit_bias bans every token of the model", "logit_bias")
    return resolved


def token_biases(sampling: Sampling, vocab: Vocab) -> dict[int, float]:
    """The biases that are added to logits; the minimum of the range bans a token."""
    biases = {
        token: -math.inf if bias <= BIAS_RANGE[0] else bias
        for token, bias in sampling.logit_bias or ()
        if isinstance(token, int)
    }
    banned = [*vocab.suppressed, *(vocab.ends if sampling.ignore_eos else ())]
    return biases | dict.fromkeys(banned, -math.inf)


def _numbered(sampling: Sampling, vocab: Vocab) -> Iterator[tuple[int, float]]:
    """The biases by number of token; a text biases all of its tokens."""
    for token, bias in sampling.logit_bias or ():
        if isinstance(token, str):
            yield from ((number, bias) for number in vocab.tokenize(token))
        elif 0 <= token < vocab.size:
            yield token, bias
        else:
            last = vocab.size - 1
            message = f"logit_bias: there is no token {token}; this model has tokens 0 to {last}"
            raise InvalidRequestError(message, "logit_bias")


def recommended_sampling(metadata: Callable[[str], str]) -> Sampling:
    """The parameters in a file's header, which `metadata` reads; invalid values are ignored."""
    values: dict[str, Any] = {}
    for key, kind in KEYS.items():
        name = "temperature" if key == "temp" else key
        text = metadata(f"general.sampling.{key}")  # "" if it is missing, which is no number
        try:
            value: Any = kind(text)
            check_sampling(Sampling(**{name: value}))
        except (ValueError, InvalidRequestError):
            continue
        values[name] = value
    return Sampling(**values)


class NativeChain:
    """Builds the chain of one request; `sampling` has no None where there is a default.

    Biases and bans come first, then the samplers in the requested order, then the selection. As in
    llama.cpp, mirostat replaces everything except the biases and the temperature.
    """

    def __init__(self, sampling: Sampling, vocab: Vocab, context_size: int) -> None:
        self._lib = bindings()
        self._sampling = sampling
        self._vocab = vocab
        self._context_size = context_size
        self._seed = RANDOM_SEED if sampling.seed is None else sampling.seed

    def build(self) -> Any:
        """The chain; the caller must free it."""
        params = self._lib.llama_sampler_chain_default_params()
        chain = self._lib.llama_sampler_chain_init(params)
        for sampler in self._samplers():
            self._lib.llama_sampler_chain_add(chain, sampler)
        return chain

    @property
    def looks_back(self) -> int:
        """The number of tokens before the answer that the samplers need; 0 for none."""
        lengths = [0]
        if "penalties" in self._active:
            lengths.append(self._last_n(self._sampling.penalty_last_n))
        if "dry" in self._active:
            lengths.append(self._last_n(self._sampling.dry_penalty_last_n))
        return max(lengths)

    @property
    def leaders(self) -> int:
        """How many of the tokens with the highest logits decide; 0 if all may."""
        if self._uses_mirostat:
            return 0
        active = self._active
        if not active:  # without a temperature, the selection takes the best token
            return 0 if self._sampling.temperature else 1
        if active[0] != "top_k":  # what comes before it may make any token one of the best
            return 0
        return self._sampling.top_k or 0

    @property
    def biases(self) -> dict[int, float]:
        """What is added to the logits of tokens before all samplers."""
        return token_biases(self._sampling, self._vocab)

    @property
    def _uses_mirostat(self) -> bool:
        """Whether mirostat takes the place of all samplers; the best token needs none."""
        return bool(self._sampling.mirostat and self._sampling.temperature)

    @property
    def _active(self) -> list[str]:
        """The samplers with an effect; in greedy selection, only those that can change it."""
        if self._uses_mirostat:
            return []
        active = [name for name in self._sampling.samplers or () if self._has_effect(name)]
        # Without a temperature only another order of the tokens changes which one is the best.
        if self._sampling.temperature or not _REORDERING.isdisjoint(active):
            return active
        return []

    def _has_effect(self, name: str) -> bool:
        """Whether a sampler's parameters change anything."""
        s = self._sampling
        effects = {
            "dry": s.dry_multiplier and s.dry_penalty_last_n,
            "top_n_sigma": (s.top_n_sigma or 0) > 0,
            "top_k": s.top_k,
            "typical_p": s.typical_p != 1.0,
            "top_p": s.top_p != 1.0,
            "min_p": s.min_p,
            "xtc": s.xtc_probability,
            "penalties": s.penalty_last_n
            and (s.penalty_repeat != 1.0 or s.penalty_freq or s.penalty_present),
            "temperature": s.temperature and (s.temperature != 1.0 or s.dynatemp_range),
            "infill": True,
        }
        return bool(effects[name])

    def _samplers(self) -> Iterator[Any]:
        """The samplers of the chain in their order."""
        lib, s = self._lib, self._sampling
        if biases := self.biases:
            pairs = [lib.llama_logit_bias(t, b) for t, b in biases.items()]
            array = (lib.llama_logit_bias * len(pairs))(*pairs)
            yield lib.llama_sampler_init_logit_bias(self._vocab.size, len(pairs), array)
        if self._uses_mirostat:
            yield lib.llama_sampler_init_temp(s.temperature)
            yield self._possible_only()
            yield self._mirostat()
            return
        for name in self._active:
            if name == "typical_p":  # it takes the logarithm of each probability
                yield self._possible_only()
            yield self._sampler(name)
        if s.temperature:
            yield lib.llama_sampler_init_dist(self._seed)
        else:
            yield lib.llama_sampler_init_greedy()

    def _possible_only(self) -> Any:
        """Drops impossible tokens, of whose probability a sampler would take the logarithm."""
        return self._lib.llama_sampler_init_min_p(_POSSIBLE, 1)

    def _mirostat(self) -> Any:
        """The sampler of mirostat 1.0 or 2.0, which selects, too."""
        s, size = self._sampling, self._vocab.size
        tau, eta = s.mirostat_tau, s.mirostat_eta
        if s.mirostat == 1:
            return self._lib.llama_sampler_init_mirostat(
                size, self._seed, tau, eta, _MIROSTAT_TOKENS
            )
        return self._lib.llama_sampler_init_mirostat_v2(self._seed, tau, eta)

    def _sampler(self, name: str) -> Any:
        """The sampler with this name in the requested order."""
        lib, s, keep = self._lib, self._sampling, self._sampling.min_keep or 0
        makers: dict[str, Callable[[], Any]] = {
            "dry": self._dry,
            "top_n_sigma": lambda: lib.llama_sampler_init_top_n_sigma(s.top_n_sigma),
            "top_k": lambda: lib.llama_sampler_init_top_k(s.top_k),
            "typical_p": lambda: lib.llama_sampler_init_typical(s.typical_p, keep),
            "top_p": lambda: lib.llama_sampler_init_top_p(s.top_p, keep),
            "min_p": lambda: lib.llama_sampler_init_min_p(s.min_p, keep),
            "xtc": lambda: lib.llama_sampler_init_xtc(
                s.xtc_probability, s.xtc_threshold, keep, self._seed
            ),
            "penalties": self._penalties,
            "temperature": lambda: lib.llama_sampler_init_temp_ext(
                s.temperature, s.dynatemp_range, s.dynatemp_exponent
            ),
            "infill": lambda: lib.llama_sampler_init_infill(self._vocab.handle),
        }
        return makers[name]()

    def _penalties(self) -> Any:
        """The sampler against tokens that came before."""
        s = self._sampling
        return self._lib.llama_sampler_init_penalties(
            self._vocab.size,
            self._last_n(s.penalty_last_n),
            s.penalty_repeat,
            s.penalty_freq,
            s.penalty_present,
        )

    def _dry(self) -> Any:
        """The sampler against repeated sequences of tokens."""
        s = self._sampling
        breakers = [b.encode("utf-8", "replace") for b in s.dry_sequence_breakers or ()]
        return self._lib.llama_sampler_init_dry(
            self._vocab.handle,
            s.dry_multiplier,
            s.dry_base,
            s.dry_allowed_length,
            self._last_n(s.dry_penalty_last_n),
            (ctypes.c_char_p * len(breakers))(*breakers),
            len(breakers),
        )

    def _last_n(self, setting: int | None) -> int:
        """How many tokens a sampler looks back; negative numbers and None mean the context.

        Never more than the context has, because the memory is reserved.
        """
        if setting is None or setting < 0:
            return self._context_size
        return min(setting, self._context_size)
