"""What the header of a model's file tells of it: above all, the memory that it takes."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from shepherd.backends.llamacpp.native import gguf, params
from shepherd.config.llamacpp import LlamaCppSection

_FLOAT = 4
"""Bytes of a number in full width."""
_LAYER = re.compile(r"blk\.(?P<number>\d+)\.")
_EXPERTS = re.compile(params.EXPERTS)
_NUMBER_BYTES = {
    "auto": 2.0, "f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q5_1": 24 / 32,
    "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32, "iq4_nl": 18 / 32,
}  # fmt: skip
"""Bytes of a number in the cache, by its format."""

_EMBEDDINGS = 4
_GATED = 3
_STATE_WIDTHS = 5
_ATTENTION_WIDTHS = 6
"""Numbers that a batch keeps for each token, in widths of the model's parts. They were chosen so
that the estimate agrees with llama.cpp's own reservations (`tests/backends/llamacpp/test_sizes.py`
says how closely)."""

_CHUNK = 64
"""Tokens that a gated delta net computes at once, each beside each."""

_LONGEST_PERIOD = 6
"""Of so many layers at least one has no window (Gemma 3), unless the header tells."""

MAX_ROLLBACK = 16
_WEIGHTS_PER_ROLLBACK = 16
"""The states that are kept for drafts may take this part of the size of the weights."""

_FORGETTING = frozenset(
    {"qwen35", "qwen35moe", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "kimi-k3"}
)
"""The architectures whose states llama.cpp rolls back (`llm_arch_supports_rs_rollback`)."""


class ModelSizes(Struct, frozen=True):
    """All sizes are bytes. `layers`, `cells` and `states` have one number for each layer.

    `layers` are weights, `cells` the cache for a token of context, and `states` the memory for a
    sequence of a recurrent model. `embedding` always stays in the memory of the CPU. `output` are
    the weights behind the layers. If they are `tied`, the embedding is used again, and a GPU gets a
    copy of it. A state that `forgets` keeps those behind earlier tokens, too. `experts` are the
    part of each layer's weights that may stay in the memory of the CPU, `expert_tensor` is the
    largest tensor of them, and a token uses `expert_share` of them. `lookup` are more embeddings,
    one for each layer, which stay in the memory of the CPU, too. The layers have bytes in several
    `kinds`, which are ggml's types, and the output in `output_kind`. Layers with a window and those
    without have `masks` of their own. Each `group` of heads shares keys and values. The other
    fields are widths in numbers.
    """

    layers: tuple[int, ...]
    embedding: int
    output: int
    tied: bool
    cells: tuple[int, ...]
    states: tuple[int, ...]
    trained_context: int
    vocabulary: int
    width: int
    heads: int
    window: int
    inner: int
    forgets: bool = False
    experts: tuple[int, ...] = ()
    expert_tensor: int = 0
    expert_share: float = 1.0
    lookup: int = 0
    kinds: Mapping[int, int] = {}
    output_kind: int = 0
    masks: int = 1
    head: int = 0
    group: int = 1

    @property
    def weights(self) -> int:
        """All weights, each once."""
        return sum(self.layers) + self.output + self.lookup + (0 if self.tied else self.embedding)

    @property
    def keeps_state(self) -> bool:
        """Whether each sequence needs memory for a state."""
        return any(self.states)

    def rollback(self, sequences: int) -> int:
        """How many tokens the states of so many sequences can forget, for drafts.

        Each of these tokens takes as much memory as all states, in which large weights leave room.
        """
        if not self.forgets:
            return 0
        states = max(1, sequences * sum(self.states))
        return min(MAX_ROLLBACK, self.weights // _WEIGHTS_PER_ROLLBACK // states)

    @property
    def traits(self) -> params.ModelTraits:
        """What a context's parameters depend on."""
        return params.ModelTraits(
            self.weights, self.heads, self.window, self.trained_context, self.head, self.group
        )

    def compute(self, context: int, ubatch: int, *, flash: bool) -> int:
        """The buffer that computing a batch needs on each device."""
        tokens = min(ubatch, context)
        # Buffers of one step are used again by the next, so that the largest step decides.
        logits = self.vocabulary + 2 * self.width
        inside = _EMBEDDINGS * self.width + self.inner
        if not any(self.cells):  # a recurrent model has no attention
            return _FLOAT * tokens * max(logits, inside)
        if flash:
            return _FLOAT * tokens * max(logits, inside + self.masks * context // 2)
        width = max(self.width, self.heads * self.head)
        scores = _ATTENTION_WIDTHS * width + (self.heads + self.masks) * context
        return _FLOAT * tokens * max(logits, inside + self.masks * context, scores)


def model_sizes(header: gguf.GgufHeader, settings: LlamaCppSection) -> ModelSizes:
    """The sizes of a model with the cache's formats of the settings."""
    values = _Values(header.values)
    count = values.number("block_count")
    layers, experts = [0] * count, [0] * count
    outside_layers, expert_tensor = 0, 0
    kinds = Counter[int]()
    for name, size in header.weights.items():
        layer = _LAYER.match(name)
        if layer is not None and int(layer["number"]) < count:
            layers[int(layer["number"])] += size
            kinds[header.kinds.get(name, 0)] += size
            if _EXPERTS.search(name):
                experts[int(layer["number"])] += size
                expert_tensor = max(expert_tensor, size)
        else:
            outside_layers += size
    embedding = header.weights.get("token_embd.weight", 0)
    lookup = header.weights.get("per_layer_token_embd.weight", 0)
    outside_layers -= lookup
    tied = "output.weight" not in header.weights
    key_bytes = _NUMBER_BYTES[settings.cache_type_k]
    value_bytes = _NUMBER_BYTES[settings.cache_type_v]
    recurrent = values.recurrent_layers(count)
    heads = values.each("attention.head_count_kv", count)
    # Without it, each head has keys and values of its own.
    heads = heads if any(heads) else values.each("attention.head_count", count)
    most_heads = max(values.each("attention.head_count", count), default=0)
    return ModelSizes(
        layers=tuple(layers),
        embedding=embedding,
        output=outside_layers if tied else outside_layers - embedding,
        tied=tied,
        cells=tuple(
            0 if has_state else round(layer_heads * (key_bytes * key + value_bytes * value))
            for layer_heads, has_state, (key, value) in zip(
                heads, recurrent, values.cell_widths(count), strict=True
            )
        ),
        states=tuple(values.state() if has_state else 0 for has_state in recurrent),
        trained_context=values.number("context_length"),
        vocabulary=header.vocabulary,
        width=values.number("embedding_length"),
        heads=most_heads,
        window=values.number("attention.sliding_window"),
        inner=values.inner(),
        forgets=values.values.get("general.architecture") in _FORGETTING,
        experts=tuple(experts),
        expert_tensor=expert_tensor,
        expert_share=values.number("expert_used_count", 1) / (values.number("expert_count") or 1),
        lookup=lookup,
        kinds=kinds,
        output_kind=header.kinds.get("token_embd.weight" if tied else "output.weight", 0),
        masks=values.masks(count),
        head=values.head_widths()[0],
        group=most_heads // max((1, *heads)),
    )


class _Values(Struct, frozen=True):
    """The numbers of a header that belong to its architecture."""

    values: Mapping[str, Any]

    def number(self, key: str, default: int = 0) -> int:
        """A number; the largest one where each layer has its own."""
        value = self._value(key)
        if isinstance(value, list):
            return max(self.each(key, 0), default=default)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def each(self, key: str, count: int) -> list[int]:
        """The number of each of `count` layers; 0 are as many as the header has."""
        value = self._value(key)
        if not isinstance(value, list):
            return [self.number(key)] * count
        numbers = [*cast(list[int], value)]
        if not count:
            return numbers
        largest = max(numbers, default=0)  # for layers that the header does not mention
        return [*numbers, *[largest] * count][:count]

    def head_widths(self) -> tuple[int, int]:
        """The widths of a head's keys and values."""
        heads = self.number("attention.head_count")
        width = self.number("embedding_length") // heads if heads else 0
        key = self.number("attention.key_length", width)
        return key, self.number("attention.value_length", width)

    def masks(self, count: int) -> int:
        """The kinds of layers with attention."""
        if not self.number("attention.sliding_window"):
            return 1
        pattern = self._value("attention.sliding_window_pattern")
        if isinstance(pattern, list):
            return len({*cast(list[int], pattern)})
        return 2 if count >= _LONGEST_PERIOD else 1

    def cell_widths(self, count: int) -> list[tuple[int, int]]:
        """The widths of each layer's keys and values, 0 for those that are not kept."""
        key, value = self.head_widths()
        if self.number("attention.key_length_mla"):  # values are computed from the keys
            return [(key, 0)] * count
        narrow = self.number("attention.key_length_swa", key)
        in_window = (narrow, self.number("attention.value_length_swa", value))
        has_window = self.each("attention.sliding_window_pattern", count)
        last = count - self.number("attention.shared_kv_layers")  # those behind it use its cells
        widths = [in_window if layer_has else (key, value) for layer_has in has_window]
        return [*widths[:last], *[(0, 0)] * (count - last)]

    def recurrent_layers(self, count: int) -> list[bool]:
        """Which layers have a state instead of cells."""
        if not self.number("ssm.state_size") and not self.number("shortconv.l_cache"):
            return [False] * count
        heads = self.each("attention.head_count_kv", count)
        every = self.number("full_attention_interval")
        if every and all(heads):  # where all layers have heads, the interval tells
            last = count - self.number("nextn_predict_layers")  # those behind it only draft
            return [(layer + 1) % every != 0 and layer < last for layer in range(count)]
        feeds = self._value("feed_forward_length")
        if isinstance(feeds, list):  # a layer that is only that has neither
            return [
                not either for either in map(max, heads, self.each("feed_forward_length", count))
            ]
        return [not layer_heads for layer_heads in heads]

    def state(self) -> int:
        """The state of one layer for one sequence, in full width as llama.cpp keeps it."""
        if convolution := self.number("shortconv.l_cache"):
            return _FLOAT * (convolution - 1) * self.number("embedding_length")
        inner, state = self.number("ssm.inner_size"), self.number("ssm.state_size")
        groups = self.number("ssm.group_count")
        # Inputs of the last tokens, which the convolution needs again, and the state itself.
        behind = max(0, self.number("ssm.conv_kernel") - 1)
        return _FLOAT * (behind * (inner + 2 * groups * state) + inner * state)

    def inner(self) -> int:
        """The numbers of a token inside of a layer."""
        feed = self.number("feed_forward_length")
        experts = self.number("expert_used_count")
        wide = max(feed, experts * self.number("expert_feed_forward_length", feed))
        width = max(_GATED * wide, _STATE_WIDTHS * self.number("ssm.inner_size"))
        if self.number("full_attention_interval"):  # the others are gated delta nets
            width += 2 * _CHUNK * self.number("ssm.time_step_rank")
        return width

    def _value(self, key: str) -> Any:
        """A value by its name without the architecture; None without it."""
        return self.values.get(f"{self.values.get('general.architecture')}.{key}")
