"""PDFs in requests, whose texts the model reads."""

import zlib
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import httpx
import pytest
from pypdf import PdfReader, PdfWriter

from tests.examples import PROFILE
from tests.patience import PATIENCE
from tests.server.harness import RunningServer
from tests.server.held import RecordingBackend

Json = dict[str, Any]


def pdf(*pages: str, packed: bytes = b"") -> bytes:
    """A PDF with a line of text on each page; `packed` replaces the drawing of the pages."""
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, text in enumerate(pages):
        drawing = packed or zlib.compress(f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode())
        font = "/Resources << /Font << /F1 3 0 R >> >>"
        page = f"<< /Type /Page /Parent 2 0 R {font} /Contents {5 + 2 * index} 0 R >>"
        head = f"<< /Length {len(drawing)} /Filter /FlateDecode >>\nstream\n".encode()
        objects += [page.encode(), head + drawing + b"\nendstream"]
    data, places = b"%PDF-1.4\n", list[int]()
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    tail = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, len(data))
    return data + b"xref\n0 %d\n0000000000 65535 f \n" % size + table + tail


def encrypted(data: bytes) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(BytesIO(data)))
    writer.encrypt("secret", algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


REPORT = pdf("The first page.", "The second page.")


def chat(data: str) -> tuple[str, Json]:
    file = {"filename": "report.pdf", "file_data": f"data:application/pdf;base64,{data}"}
    content = [{"type": "text", "text": "Sum up"}, {"type": "file", "file": file}]
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": content}]}


def responses(data: str) -> tuple[str, Json]:
    file = {"type": "input_file", "filename": "report.pdf", "file_data": data}
    content = [{"type": "input_text", "text": "Sum up"}, file]
    return "/v1/responses", {"input": [{"role": "user", "content": content}]}


def document(data: str) -> Json:
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    return {"type": "document", "title": "report.pdf", "source": source}


def messages(data: str) -> tuple[str, Json]:
    content = [{"type": "text", "text": "Sum up"}, document(data)]
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": content}]}
    return "/v1/messages", body


def result(data: str) -> tuple[str, Json]:
    call: Json = {"type": "tool_use", "id": "1", "name": "read", "input": {}}
    found: Json = {"type": "tool_result", "tool_use_id": "1", "content": [document(data)]}
    turns: list[tuple[str, Any]] = [("user", "Sum up"), ("assistant", [call]), ("user", [found])]
    history = [{"role": role, "content": content} for role, content in turns]
    return "/v1/messages", {"max_tokens": 9, "messages": history}


def gemini(data: str) -> tuple[str, Json]:
    blob = {"mimeType": "application/pdf", "data": data.replace("+", "-").replace("/", "_")}
    parts = [{"text": "Sum up\nreport.pdf"}, {"inlineData": blob}]
    return "/v1beta/models/m:generateContent", {"contents": [{"parts": parts}]}


APIS = [chat, responses, messages, result, gemini]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer[RecordingBackend]]:
    with RunningServer(RecordingBackend("text: Fine.\n")) as running:
        yield running


def post(server: RunningServer[Any], api: Any, data: bytes) -> httpx.Response:
    path, body = api(b64encode(data).decode())
    return httpx.post(server.url + path, json={"model": "m", **body}, timeout=PATIENCE)


@pytest.mark.parametrize("api", APIS)
def test_the_model_reads_the_text(server: RunningServer[RecordingBackend], api: Any) -> None:
    answer = post(server, api, REPORT)
    assert answer.status_code == 200, answer.text
    text = "\n".join(message.content for message in server.backend.sessions[-1].messages)
    assert text.replace("\n\n", "\n").split("\n") == [
        *("Sum up", "report.pdf", "The first page.", "The second page."),
    ]


BAD = {
    "encrypted": encrypted(REPORT),
    "damaged": REPORT[:200],
    "no text": pdf(""),
    "more than 1,000 pages": pdf(*["x"] * 1_001),
}


@pytest.mark.parametrize(("told", "data"), BAD.items(), ids=BAD)
def test_what_has_no_text_is_refused_with_the_reason(
    server: RunningServer[RecordingBackend], told: str, data: bytes
) -> None:
    before = len(server.backend.sessions)
    answer = post(server, chat, data)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (told in error["message"], error["param"]) == (True, "messages.0.content.1")
    assert len(server.backend.sessions) == before


@pytest.mark.parametrize("api", APIS)
def test_each_api_refuses_what_is_no_pdf(server: RunningServer[RecordingBackend], api: Any) -> None:
    answer = post(server, api, b"%PDF-1.4 none")
    assert answer.status_code == 400
    assert "damaged" in answer.text


@pytest.mark.long
@pytest.mark.skipif(PROFILE != "long", reason="takes ten seconds of processor time each")
@pytest.mark.parametrize(
    ("drawing", "times"),
    [(b"BT (a) Tj ET ", 4_000_000), (b"\0", 1_500_000_000)],
    ids=["slow", "large"],
)
def test_a_pdf_that_takes_too_much_is_refused(
    server: RunningServer[RecordingBackend], drawing: bytes, times: int
) -> None:
    answer = post(server, chat, pdf("x", packed=zlib.compress(drawing * times, 9)))
    assert answer.status_code == 400
    assert post(server, chat, REPORT).status_code == 200
