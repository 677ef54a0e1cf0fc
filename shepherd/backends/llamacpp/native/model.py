"""A loaded model: its vocabulary, its metadata, its memory."""

import ctypes
from pathlib import Path
from typing import Any

from shepherd.backends.llamacpp.native.bindings import bindings, native_log
from shepherd.backends.llamacpp.native.mapped_files import MappedFiles
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.errors import ModelLoadError


class NativeModel:
    """Owns llama.cpp's model; `close` frees it and must come after its contexts' `close`."""

    def __init__(self, path: Path, params: Any) -> None:
        """Load the file; raises ModelLoadError with llama.cpp's own reason."""
        self._lib = bindings()
        native_log.take_errors()
        self.files = MappedFiles(path)
        self.handle: Any = self._lib.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            self.files.close()
            raise ModelLoadError(f"{path} can't be loaded: {last_error()}")
        try:
            self.vocab = Vocab(self._lib.llama_model_get_vocab(self.handle))
        except BaseException:
            self.close()
            raise
        self.trained_context: int = self._lib.llama_model_n_ctx_train(self.handle)
        self.window: int = self._lib.llama_model_n_swa(self.handle)
        """Tokens of the sliding window, 0 without one."""

    def chat_template(self, name: str | None = None) -> str:
        """The template called `name`, or the default one; "" if there is none."""
        source: bytes | None = self._lib.llama_model_chat_template(
            self.handle, name.encode() if name else None
        )
        return (source or b"").decode("utf-8", "replace")

    def metadata(self, key: str) -> str:
        """A scalar of the file's header as text, "" if it is not there."""
        buffer = ctypes.create_string_buffer(512)
        length: int = self._lib.llama_model_meta_val_str(
            self.handle, key.encode(), buffer, len(buffer)
        )
        return buffer.value.decode("utf-8", "replace") if length >= 0 else ""

    @property
    def bytes(self) -> int:
        """The size of all weights."""
        size: int = self._lib.llama_model_size(self.handle)
        return size

    @property
    def can_generate(self) -> bool:
        """False for encoders and for files without a vocabulary."""
        decodes: bool = self._lib.llama_model_has_decoder(self.handle)
        return decodes and self.vocab.size > 0

    @property
    def keeps_state(self) -> bool:
        """Whether each sequence needs memory for a state, as in recurrent and hybrid models."""
        lib = self._lib
        return bool(
            lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle)
        )

    def close(self) -> None:
        """Free the model; safe to call twice."""
        if self.handle:
            self._lib.llama_model_free(self.handle)
            self.handle = None
            self.files.close()


def last_error() -> str:
    """llama.cpp's most telling recent error, as a sentence's end."""
    errors = native_log.take_errors()
    telling = [e for e in errors if "failed to load model" not in e] or errors
    return telling[0].split(": ", 1)[-1] if telling else "llama.cpp gives no reason"
