"""The chat template and the tokenizer of the shipped GGUF, against the training's own text."""

from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from training.chat import Template, as_messages, as_tools
from training.dialogue import Message, render
from training.dialogues import dialogue

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "shepherd" / "models" / "pup.gguf"
TEMPLATE = (ROOT / "training" / "template.jinja").read_text().replace("\n", "")


@pytest.fixture(scope="module")
def vocabulary() -> Any:
    return llama_cpp.Llama(str(MODEL), vocab_only=True, verbose=False)


def test_the_template_renders_what_was_trained() -> None:
    template = Template(TEMPLATE)
    for seed in range(60):
        made = dialogue(seed, lambda text: len(text) // 3, 600, held=seed % 2 == 0)
        for i, message in enumerate(made.messages):
            if message.role != "assistant":
                continue
            before = made.messages[:i]
            think = message.thought is not None
            prompt = template.render(made.system, made.tools, before, think=think)
            trained = "".join(text for text, _ in render(made.system, made.tools, before))
            opening = "<|im_start|>assistant\n" + ("<think>\n" if think else "")
            assert prompt == trained + opening


def test_tools_without_a_system_message_make_one() -> None:
    made = dialogue(1, lambda text: len(text) // 3, 600)
    prompt = Template(TEMPLATE).render("", made.tools, [Message("user", "hi")])
    assert prompt.startswith("<|im_start|>system\n# Tools\n")
    assert Template(TEMPLATE).render("", [], [Message("user", "hi")]) == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_requests_have_openai_shape() -> None:
    made = dialogue(2, lambda text: len(text) // 3, 600)
    for tool in as_tools(made.tools):
        required = set(tool["function"]["parameters"]["required"])
        assert required <= set(tool["function"]["parameters"]["properties"])
    roles = {message["role"] for message in as_messages("x", made.messages)}
    assert roles <= {"system", "user", "assistant", "tool"}


def test_the_model_carries_this_template_and_its_licence() -> None:
    model = llama_cpp.Llama(str(MODEL), vocab_only=True, verbose=False)
    assert model.metadata["tokenizer.chat_template"] == TEMPLATE
    assert model.metadata["general.license"] == "Apache-2.0"
    assert model.metadata["general.name"] == "Pup"
    assert MODEL.stat().st_size <= 8_000_000


def test_text_survives_the_tokenizer(vocabulary: Any) -> None:
    for seed in range(20):
        made = dialogue(seed, lambda text: len(text) // 3, 600, held=True)
        text = "".join(piece for piece, _ in made.pieces()) + " – ünïcode 你好 🐑"
        tokens = vocabulary.tokenize(text.encode(), add_bos=False, special=True)
        assert vocabulary.detokenize(tokens, special=True).decode() == text


@pytest.mark.parametrize("before", ["", " ", '"', "/", " '", "`", "_", "(", "\n"])
@pytest.mark.parametrize("word", ["notes", "lantern", "qzvbl", "Stroankleesh"])
def test_a_word_has_the_same_tokens_everywhere(vocabulary: Any, before: str, word: str) -> None:
    alone = vocabulary.tokenize(word.encode(), add_bos=False)
    after = vocabulary.tokenize((before + word).encode(), add_bos=False)
    assert after[len(after) - len(alone) :] == alone
