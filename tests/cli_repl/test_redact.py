import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.cli.terminal.secrets import redact

KEY = "sk-1234567890"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (f"/provider add w --api-key {KEY} --use", "/provider add w --api-key - --use"),
        (f"/provider add w --api-key={KEY}", "/provider add w --api-key=-"),
        (f"/provider add w --api-kye '{KEY} x'", "/provider add w --api-kye -"),
        (f"/provider set w api-key {KEY}", "/provider set w api-key -"),
        (f"/provder set w api_key {KEY}", "/provder set w api_key -"),
        (f"/provider set w api-key '{KEY}", "/provider set w api-key -"),
        (f"/provider set w headers.X-Key {KEY}", "/provider set w headers.X-Key …"),
    ],
)
def test_keys_are_not_shown(typed: str, shown: str) -> None:
    assert redact(typed).replace("'…'", "…") == shown


@pytest.mark.parametrize(
    "text",
    [
        "/provider set w api-key env:MINE",
        "/provider set w api-key  none",
        "/provider add w --api-key-env MINE --type openai",
        f"what does --api-key {KEY} mean",
        "/system Explain  the header of a file,\nand 'the rest",
    ],
)
def test_the_rest_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@given(
    st.text(" '\"\\a-=\n#"), st.sampled_from(["--api-key {}", "--api-key={}", "set w api-key {}"])
)
def test_no_key_of_letters_and_digits_is_left(before: str, form: str) -> None:
    assert KEY not in redact(f"/provider {before} {form.format(KEY)}")
