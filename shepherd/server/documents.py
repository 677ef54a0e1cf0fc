"""The texts of PDFs in a request, in the place of the PDFs, since models read texts and images.

The module is also the program that reads PDFs. Its input is a list of them in base64.
"""

import io
import json
import re
import sys
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from shepherd.bounded import limit_resources, run_bounded
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject

HAS_PDF = re.compile(rb"application\\?/pdf|JVBERi0")
"""In the bytes of a request: the type, or how a PDF begins in base64."""

MAX_PAGES = 1_000
MAX_CHARACTERS = 4_000_000
MAX_CPU_SECONDS = 10
MAX_BYTES = 1 << 30
MAX_SECONDS = 60.0
"""The limit on a busy machine; the program limits its own processor time."""

_TYPE = "application/pdf"
_URL_ALPHABET = str.maketrans("-_", "+/")
_INSIDE = ("messages", "input", "content", "contents", "parts", "output", "functionResponse")
"""Fields in which parts of content stand."""

_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What pypdf raises beside its own errors for structures that are wrong."""


class _Pdf(NamedTuple):
    """A part of a request that is a PDF: what is said about it, and the type of a text instead."""

    part: JsonObject
    where: str
    data: str
    about: tuple[Any, ...] = ()
    type: str = "text"


async def read_documents(request: JsonObject) -> None:
    """Put texts in place of the PDFs; raises InvalidRequestError for one that can't be read."""
    pdfs = list(_pdfs(request, ""))
    if not pdfs:
        return
    data = json.dumps([pdf.data for pdf in pdfs]).encode()
    answer = await run_bounded(__name__, data, seconds=MAX_SECONDS)
    if answer is None:
        message = "reading the PDF takes too much time or memory; send its text."
        raise InvalidRequestError(f"{pdfs[0].where}: {message}", pdfs[0].where)
    for pdf, (text, problem) in zip(pdfs, json.loads(answer), strict=True):
        if problem:
            raise InvalidRequestError(f"{pdf.where}: the PDF {problem}.", pdf.where)
        lines = (line for line in (*pdf.about, text) if isinstance(line, str) and line)
        pdf.part.clear()
        pdf.part.update({"type": pdf.type} if pdf.type else {}, text="\n".join(lines))


def _pdfs(value: object, where: str) -> Iterator[_Pdf]:
    """The PDFs in a part of a request."""
    if isinstance(value, list):
        for index, item in enumerate(cast(list[object], value)):
            yield from _pdfs(item, f"{where}.{index}")
    elif isinstance(value, dict):
        part = cast(JsonObject, value)
        pdf = _pdf(part, where)
        if pdf is not None:
            yield pdf
            return
        for key in part.keys() & _INSIDE:
            yield from _pdfs(part[key], f"{where}.{key}" if where else key)


def _pdf(part: JsonObject, where: str) -> _Pdf | None:
    """The part if it is a PDF in the words of any API."""
    match part:
        case {"type": "document", "source": {"media_type": "application/pdf", "data": str(data)}}:
            return _Pdf(part, where, data, (part.get("title"), part.get("context")))
        case {"type": "input_file", "file_data": str(url)}:
            file, kind = part, "input_text"
        case {"type": "file", "file": {"file_data": str(url)}}:
            file, kind = part["file"], "text"
        case {"inlineData": {"mimeType": "application/pdf", "data": str(data)}}:
            return _Pdf(part, where, data, type="")
        case {"inline_data": {"mime_type": "application/pdf", "data": str(data)}}:
            return _Pdf(part, where, data, type="")
        case _:
            return None
    head, _, data = url.rpartition(",")
    is_pdf = head.startswith(f"data:{_TYPE}") or data.startswith("JVBERi0")
    return _Pdf(part, where, data, (file.get("filename"),), kind) if is_pdf else None


def _text(data: str) -> tuple[str, str]:
    """The text of a PDF and "", or "" and what is wrong with it."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError
    except ImportError:
        return "", "can't be read: run `pip install pypdf` on the server"
    pages: list[str] = []
    try:
        reader = PdfReader(io.BytesIO(b64decode(data.translate(_URL_ALPHABET))))
        if len(reader.pages) > MAX_PAGES:
            return "", f"has more than {MAX_PAGES:,} pages; send a part of it"
        for page in reader.pages:
            pages.append(page.extract_text())
            if sum(map(len, pages)) > MAX_CHARACTERS:
                return "", f"has more than {MAX_CHARACTERS:,} characters; send a part of it"
    except (FileNotDecryptedError, DependencyError):
        return "", "is encrypted; send it without a password"
    except (PyPdfError, *_DAMAGED) as error:
        return "", f"is damaged ({type(error).__name__}); save it again, or send its text"
    text = "\n\n".join(filter(str.strip, pages))
    return text, "" if text else "has no text, perhaps only images; send its pages as images"


def main() -> int:
    """Read the PDFs within the limits."""
    limit_resources(MAX_CPU_SECONDS, MAX_BYTES)
    sys.stdout.write(json.dumps([_text(data) for data in json.load(sys.stdin)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
