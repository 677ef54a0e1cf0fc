"""What the evaluation uses is not in training: words, phrasings, clients' tools."""

import json
import random
from itertools import chain

from training import lists
from training.phrasing import load, unfold
from training.task import REQUESTS
from training.toolbox import client_tool
from training.words import Words, is_held


def drawn(*, held: bool) -> set[str]:
    words = Words(random.Random(1), held=held)
    return {words.word() for _ in range(3000)}


def test_words_are_disjoint() -> None:
    assert not drawn(held=True) & drawn(held=False)
    assert not set(lists.words("held out")) & set(lists.words("train"))


def test_made_words_are_split_by_hash() -> None:
    made = drawn(held=False) - set(lists.words("train"))
    assert made
    assert not any(is_held(word) for word in made)


def test_phrasings_are_disjoint() -> None:
    rng = random.Random(1)
    for each in chain(load("requests").values(), load("talk").values()):
        assert each.train
        assert each.held
    for each in chain(REQUESTS.values(), load("talk").values()):
        held = unfold(each.held)
        assert not any(each.pick(rng, held=False).lower() in held for _ in range(60))


def test_client_tools_are_disjoint() -> None:
    names = {
        held: {client_tool(Words(random.Random(seed), held=held)).name for seed in range(600)}
        for held in (False, True)
    }
    assert not names[True] & names[False]


def test_every_token_of_letters_is_copied_in_training() -> None:
    vocabulary = json.loads((lists.FOLDER.parent / "tokenizer.json").read_text())["model"]["vocab"]
    letters = {t for t in vocabulary if t.isascii() and t.isalpha() and t.islower() and len(t) > 1}
    assert set(lists.words("fragments")) == letters
