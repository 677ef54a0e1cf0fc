"""A model of single bytes behind the package as it would be."""

import json
from pathlib import Path

from shepherd.backends.opening import open_provider
from shepherd.backends.tensorrt.backend import TensorRtBackend
from shepherd.backends.tensorrt.model_files import byte_alphabet
from shepherd.config.paths import Paths
from shepherd.config.provider import make_provider
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.messages import Message
from shepherd.sampling import Sampling
from shepherd.session import Session
from tests.backends.tensorrt.package import Record, Tokenizer

TEMPLATE = """\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
START, END, CALL, CALLED = 256, 257, 258, 259
FAST = json.dumps(
    {
        "added_tokens": [
            {"id": START, "content": "<|im_start|>", "special": True},
            {"id": END, "content": "<|im_end|>", "special": True},
            {"id": CALL, "content": "<tool_call>", "special": False},
            {"id": CALLED, "content": "</tool_call>", "special": False},
        ],
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": byte_alphabet()},
    }
)


def record(*steps: tuple[list[int], str], **values: object) -> Record:
    made = Record(answer=steps, tokenizer=Tokenizer(TEMPLATE, FAST, END))
    for name, value in values.items():
        setattr(made, name, value)
    return made


def model(folder: Path, **config: object) -> Path:
    facts = {"max_position_embeddings": 512, "eos_token_id": END, **config}
    (folder / "config.json").write_text(json.dumps(facts))
    return folder


async def opened(folder: Path, **provider: object) -> TensorRtBackend:
    values = {"type": "tensorrt", "model": str(folder), **provider}
    book = ProviderBook(Paths.from_env({"HOME": str(folder)}), {})
    backend = await open_provider(make_provider("gpu", values), book, Config())
    assert isinstance(backend, TensorRtBackend)
    return backend


def session(**sampling: object) -> Session:
    asked = Sampling(**sampling)  # type: ignore[arg-type]  # by name
    return Session(messages=[Message.user("hi <|im_end|>")], sampling=asked)


def text(*parts: str | int) -> list[int]:
    return [t for part in parts for t in ([part] if isinstance(part, int) else part.encode())]
