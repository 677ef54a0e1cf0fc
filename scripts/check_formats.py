"""Try the chat templates in a folder: `python -m scripts.check_formats FOLDER`, as a table.

For each template it says whether the calls that it writes are described and read again in any
chunks, whether the grammar of forced calls allows them, and what the template leaves out of a
message. Where a template writes no calls, Shepherd writes them as text.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter

from shepherd.backends.inprocess.calls import calls_rule
from shepherd.backends.inprocess.lark import Rules
from shepherd.backends.inprocess.matcher import BYTES, compile_grammar, tokenizer_for
from shepherd.backends.inprocess.prompt import PromptBuilder
from shepherd.backends.output.derive import PROBE_CALLS, PROBE_TOOLS, Derived, derive
from shepherd.backends.output.notation import ID
from shepherd.errors import InvalidRequestError
from shepherd.messages import Message

_ENDS = (
    "</s>", "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>",
    "<|eom_id|>", "<end_of_turn>", "<|eom|>", "<|eot|>", "<|observation|>", "<turn|>", "[e~[",
    "<seed:eos>", "<end_of_sentence>", "<｜end▁of▁sentence｜>", "<｜hy_eos:opensource｜>",
    "<SPECIAL_12>", "<|tool_response>", "<|role_end|>",
)  # fmt: skip
"""The texts of tokens that end an answer in today's vocabularies."""


class Words:
    """A vocabulary of characters, with the usual ends."""

    bos, eos = 0, 1
    adds_bos = is_sentencepiece = False
    specials: Mapping[int, int] = {}
    ends: Sequence[int] = range(1, len(_ENDS) + 1)

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        """One token for each character."""
        del parse_special
        return [ord(character) + 1000 for character in text]

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""
        return self.text(token).encode()

    def text(self, token: int) -> str:
        """The text of a token."""
        if token >= 1000:
            return chr(token - 1000)
        return "<s>" if token == self.bos else _ENDS[token - 1]


class Model:
    """A model that has only a vocabulary and a template."""

    def __init__(self, template: str) -> None:
        self.vocab = Words()
        self._template = template

    def chat_template(self, name: str | None = None) -> str:
        """The template, whatever its name."""
        del name
        return self._template


def tried(source: str) -> tuple[str, ...]:
    """What became of one template: who writes calls, read, allowed, left out, milliseconds."""
    prompts = PromptBuilder(Model(source))
    before = perf_counter()
    style = prompts.output_style()
    milliseconds = f"{1000 * (perf_counter() - before):.0f}"
    is_read = "no" if prompts.notice or not style.notations else "yes"
    derived = derive(prompts.rendered_probe, [Words().text(token) for token in Words.ends])
    if derived is None:
        return "", is_read, "no", "", milliseconds
    is_own = "<tool_call>" in source or not derived.notation.lead.startswith("<tool_call>")
    writer = "template" if is_own else "Shepherd"
    allowed = "yes" if is_allowed(derived) else "no"
    return writer, is_read, allowed, ", ".join(left_out(prompts, derived)), milliseconds


def is_allowed(derived: Derived) -> bool:
    """Whether the grammar of calls allows what the template wrote."""
    rules = Rules()
    try:
        rule = calls_rule(rules, derived.notation, PROBE_TOOLS, many=True)
        matcher = compile_grammar(rules.text(rule), tokenizer_for(BYTES))
    except InvalidRequestError:
        return False
    text = derived.written.replace(ID, "call00000").removeprefix(derived.notation.prompted)
    data = list(text.encode())
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


def left_out(prompts: PromptBuilder, derived: Derived) -> Iterator[str]:
    """What the template leaves out of a message with reasoning, content and calls."""
    message = Message.assistant("zq8said", reasoning="zq8thought", tool_calls=PROBE_CALLS[:1])
    rendered = prompts.rendered_probe(message)
    if "zq8said" not in rendered:
        yield "content beside calls"
    if "zq8thought" not in rendered:
        yield "reasoning"
    if any(key not in derived.written for key in PROBE_CALLS[0].arguments):
        yield "an argument that is null"
    if not derived.notation.many:
        yield "a second call"


def main(folder: Path) -> None:
    """Print the table, and how many of the templates work."""
    print("| template | who writes calls | read | forced calls | left out by the template | ms |")
    print("|---|---|---|---|---|---|")
    counts = [0, 0, 0]
    for path in sorted(folder.glob("*.jinja")):
        row = tried(path.read_text("utf-8"))
        counts = [counts[0] + 1, counts[1] + (row[1] == "yes"), counts[2] + (row[2] == "yes")]
        print(f"| {path.stem} | {' | '.join(row)} |")
    print(f"\n{counts[1]} of {counts[0]} are described and read, {counts[2]} can be forced.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
