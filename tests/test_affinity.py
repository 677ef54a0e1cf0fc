"""The choice of a replica by the beginnings of prompts."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shepherd.affinity import (
    ENTRY_BYTES,
    AffinityRouter,
    Balance,
    Prefix,
    PrefixIndex,
    body_prefix,
    prefix_of,
    with_response,
)

PARTS = st.lists(st.sampled_from(["a", "b", "cc", "", "d" * 9]), max_size=6)
IDLE = {"x": 0.0, "y": 0.0, "z": 0.0}


def chain(*texts: str) -> Prefix:
    return prefix_of([], texts, block_characters=4)


def common(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = list(zip(first, second, strict=False))
    return next((i for i, (one, other) in enumerate(pairs) if one != other), len(pairs))


@given(PARTS, PARTS)
def test_a_longer_conversation_begins_with_the_chain_of_the_shorter_one(
    first: list[str], more: list[str]
) -> None:
    short, long = chain(*first), chain(*first, *more)
    assert long.hashes[: len(short.hashes)] == short.hashes
    assert sum(map(len, first)) == (short.ends[-1] if short.ends else 0)
    moved = chain("x", *first)
    assert common(moved.hashes, short.hashes) == 0


def test_the_beginning_of_a_long_text_is_shared() -> None:
    text = "".join(map(chr, range(200, 300)))
    one, other = prefix_of([], [text + "!" * 40], 10), prefix_of([], [text + "?"], 10)
    assert common(one.hashes, other.hashes) == 10


def test_the_key_of_a_conversation_stays_as_it_grows() -> None:
    first = prefix_of(["system"], ["hello"])
    assert first.key == prefix_of(["system"], ["hello", "hi", "more"]).key
    assert first.key != prefix_of(["system"], ["good day"]).key
    assert Prefix().key == 0


@given(st.lists(st.tuples(PARTS, st.sampled_from("xyz")), max_size=12), PARTS)
def test_the_index_finds_the_longest_beginning_as_a_comparison_does(
    recorded: list[tuple[list[str], str]], searched: list[str]
) -> None:
    index = PrefixIndex[str]()
    for parts, replica in recorded:
        index.record(chain(*parts), replica)
    prefix = chain(*searched)
    known = {
        name: max(
            (common(chain(*p).hashes, prefix.hashes) for p, r in recorded if r == name), default=0
        )
        for name in "xyz"
    }
    longest = max(known.values())
    holders = {name for name in "xyz" if longest and known[name] == longest}
    assert (index.longest(prefix)[0], set(index.longest(prefix)[1])) == (longest, holders)
    assert {name: index.common(prefix, name) for name in "xyz"} == known
    index.forget("x")
    assert index.common(prefix, "x") == 0
    assert index.longest(prefix, ["y", "z"]) == (0, [])


@given(st.lists(st.tuples(PARTS, st.sampled_from("xyz")), max_size=40), st.integers(1, 20))
@example([([], "x"), (["a", "a"], "y")], 2)
def test_the_memory_is_limited_and_beginnings_stay(
    recorded: list[tuple[list[str], str]], blocks: int
) -> None:
    index = PrefixIndex[str](blocks * ENTRY_BYTES)
    joined = set[str]()
    for parts, replica in recorded:
        prefix = chain(*parts)
        index.record(prefix, replica)
        joined.add(replica)  # it has its share of the memory, also after an empty prompt
        assert len(index) <= max(blocks, len({r for _, r in recorded}))
        kept = index.common(prefix, replica)
        assert kept == min(len(prefix.hashes), max(1, blocks // len(joined)))


def test_each_of_many_replicas_keeps_a_conversation() -> None:
    """Its cache does, too; without this, a thousand of them would forget all."""
    router = AffinityRouter[int](Balance(), max_bytes=ENTRY_BYTES)
    prompts = [chain(f"{number}", "x" * 400) for number in range(20)]
    for number, prompt in enumerate(prompts):
        router.record(prompt, number)
    loads = dict.fromkeys(range(20), 0.0)
    assert [router.choose(prompt, loads).replica for prompt in prompts] == list(range(20))
    assert len(router.index) == 20 * len(prompts[0].hashes)


def test_the_prompt_that_was_used_last_stays() -> None:
    index = PrefixIndex[str](4 * ENTRY_BYTES)
    old, used, new = chain("a", "b"), chain("c", "d"), chain("e", "f")
    for prefix in (old, used, old, used, new):
        index.record(prefix, "x")
    assert [index.common(prefix, "x") for prefix in (old, used, new)] == [0, 2, 2]


def test_a_conversation_meets_its_cache_unless_the_replica_is_too_busy() -> None:
    router = AffinityRouter[str](Balance(factor=2, slack=1))
    router.record(chain("a", "b"), "x")
    router.record(chain("a"), "y")
    prefix = chain("a", "b", "c")
    assert router.choose(prefix, {"x": 3, "y": 1, "z": 1}).replica == "x"
    second = router.choose(prefix, {"x": 4, "y": 2, "z": 1})
    assert (second.replica, second.blocks, second.characters) == ("y", 1, 1)
    none = router.choose(prefix, {"x": 4, "y": 4, "z": 1})
    assert (none.replica, none.blocks) == ("z", 0)
    assert router.choose(prefix, {"y": 9, "z": 9}).replica == "y"
    with pytest.raises(ValueError, match="empty"):
        router.choose(prefix, {})


def test_the_forgotten_replica_is_new_to_every_conversation() -> None:
    router = AffinityRouter[str]()
    router.record(chain("a", "b"), "x")
    router.forget("x")
    assert router.choose(chain("a", "b"), IDLE).blocks == 0
    assert len(router.index) == 0


@settings(max_examples=30)
@given(st.lists(PARTS, max_size=20))
def test_routers_choose_alike(prompts: list[list[str]]) -> None:
    one, other = (AffinityRouter[str]() for _ in range(2))
    for parts in prompts:
        choices = [router.choose(chain(*parts), IDLE) for router in (one, other)]
        assert choices[0] == choices[1]
        one.record(chain(*parts), choices[0].replica)
        other.record(chain(*parts), choices[0].replica)


TURNS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), *[st.integers(0, 2)] * 3))


@settings(max_examples=30)
@given(TURNS)
def test_routers_that_see_a_part_each_send_a_conversation_to_one_home(
    turns: list[tuple[int, ...]],
) -> None:
    routers = [AffinityRouter[str](beside_others=True) for _ in range(3)]
    homes: dict[int, str] = {}
    for conversation, router, *loads in turns:
        prefix = prefix_of(["the system message"], [f"question {conversation}"])
        busy = dict(zip(IDLE, map(float, loads), strict=True))  # none is over the balance
        chosen = routers[router].choose(prefix, busy).replica
        routers[router].record(prefix, chosen)
        assert homes.setdefault(conversation, chosen) == chosen


def test_new_conversations_spread_over_idle_replicas() -> None:
    router = AffinityRouter[int]()
    loads = dict.fromkeys(range(4), 0.0)
    chosen = [router.choose(chain(f"question {i}"), loads).replica for i in range(400)]
    assert min(chosen.count(replica) for replica in loads) > 60


def test_a_common_system_message_does_not_gather_all_conversations_in_one_cache() -> None:
    router = AffinityRouter[str]()
    for number in range(600):
        prefix = prefix_of(["the system message"], [f"question {number}", "answer", "thanks"])
        router.record(prefix, router.choose(prefix, IDLE).replica)
    held = sorted(router.index.blocks(name) for name in IDLE)
    assert held[0] > 0
    assert held[-1] <= router.balance.factor * held[0] + 4


CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "system", "content": "s"}]}


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (CHAT, {"messages": [*CHAT["messages"], {"role": "user", "content": "hi"}]}),
        ({"prompt": "a" * 2048}, {"prompt": "a" * 2048 + "b"}),
        ({"prompt": ["a"]}, {"prompt": ["a", "b"]}),
        ({"input": [{"role": "user", "content": "x"}], "instructions": "i"}, {"temperature": 1}),
        ({"contents": [{"role": "user"}], "systemInstruction": {"role": "x"}}, {"stream": True}),
    ],
)
def test_the_prefix_of_a_body_grows_with_its_messages(
    body: Mapping[str, Any], more: Mapping[str, Any]
) -> None:
    short, long = body_prefix(body), body_prefix({**body, **more})
    known = [h for h in short.hashes if h in long.hashes]
    assert len(known) >= max(1, len(short.hashes) - (body.get("prompt") == "a" * 2048))


def test_the_opening_of_a_body_is_its_system_messages_and_tools() -> None:
    body = {**CHAT, "tools": [{"name": "t"}]}
    messages = [*CHAT["messages"], {"role": "user", "content": "hi"}]
    assert body_prefix({**body, "messages": messages}).opening == 3
    other = body_prefix({**body, "tools": [], "messages": messages})
    assert other.hashes[-1] != body_prefix({**body, "messages": messages}).hashes[-1]


def test_marks_that_move_with_the_newest_message_do_not_count() -> None:
    def body(*marked: bool) -> Any:
        mark = {"cache_control": {"type": "ephemeral"}}
        blocks = [[{"type": "text", "text": "t", **(mark if m else {})}] for m in marked]
        return {"messages": [{"role": "user", "content": content} for content in blocks]}

    first, second = body_prefix(body(True)), body_prefix(body(False, True))
    assert second.hashes[:1] == first.hashes


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["messages", "tools", "input", "prompt", "model"]), JSON))
def test_no_body_raises(body: dict[str, Any]) -> None:
    assert body_prefix(body) == body_prefix(dict(reversed(list(body.items()))))


@given(st.lists(st.text(), min_size=2, max_size=6), st.sampled_from("xyz"))
def test_a_request_that_continues_a_response_goes_where_that_was_made(
    inputs: list[str], home: str
) -> None:
    """Whatever the conversation says, and although a request holds only what is new."""
    router = AffinityRouter[str](Balance())
    body: dict[str, Any] = {"instructions": "Count.", "input": inputs[0]}
    for turn, text in enumerate(inputs):
        prefix = with_response(body_prefix(body), f"resp_{turn}")
        assert list(prefix.ends) == sorted(prefix.ends)
        assert len(prefix.ends) == len(prefix.hashes)
        if turn:
            assert router.choose(prefix, IDLE).replica == home
            assert router.choose(prefix, IDLE).blocks == 1
        router.record(prefix, home)
        body = {"input": text, "previous_response_id": f"resp_{turn}"}
    other = body_prefix({**body, "previous_response_id": "resp_other"})
    assert router.choose(other, IDLE).blocks == 0


def test_only_requests_of_responses_continue_one() -> None:
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
    assert body_prefix({**chat, "previous_response_id": "resp_1"}) == body_prefix(chat)
    assert body_prefix({"input": "hi", "previous_response_id": 5}) == body_prefix({"input": "hi"})
    assert (
        body_prefix({"previous_response_id": "resp_1"}).hashes
        == with_response(Prefix(), "resp_1").hashes
    )


def test_a_body_that_is_too_deep_or_not_an_object_has_no_prefix() -> None:
    nested: Any = []
    for _ in range(10_000):
        nested = [nested]
    assert body_prefix({"messages": [nested]}) == Prefix()
    assert body_prefix(None) == Prefix()
