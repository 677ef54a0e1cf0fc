"""Where keys come from, and where they never go."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.config.provider import make_provider
from shepherd.config.secrets import Secret, Secrets, keys_in
from shepherd.errors import ConfigError

KEY = "sk-proj-1234567890abcd"


def secrets(tmp_path: Path, **env: str) -> Secrets:
    return Secrets(tmp_path / "config" / "credentials.toml", env)


def key(key_store: Secrets, **values: object) -> Secret:
    return key_store.find(make_provider("work", {"type": "openai", **values}))


@pytest.mark.parametrize(
    ("variable", "values"),
    [
        ("OPENAI_API_KEY", {}),
        ("OPENAI_API_KEY", {"type": "openai-responses"}),
        ("OPENAI_API_KEY", {"base_url": "https://eu.api.openai.com/v1"}),
        ("ANTHROPIC_API_KEY", {"type": "anthropic"}),
        ("GEMINI_API_KEY", {"type": "gemini"}),
        ("GOOGLE_API_KEY", {"type": "gemini"}),
        ("OPENROUTER_API_KEY", {"base_url": "https://openrouter.ai/api/v1"}),
        ("XAI_API_KEY", {"base_url": "https://api.x.ai/v1"}),
    ],
)
def test_the_vendors_usual_variable(
    tmp_path: Path, variable: str, values: dict[str, object]
) -> None:
    assert key(secrets(tmp_path, **{variable: KEY}), **values) == Secret(KEY, variable)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/v1",
        "https://api.openai.com.evil.example/v1",
        "https://notopenai.com/v1",
        "https://openrouter.ai/api/v1",
    ],
)
def test_a_vendors_key_goes_nowhere_else(tmp_path: Path, url: str) -> None:
    assert key(secrets(tmp_path, OPENAI_API_KEY=KEY), base_url=url).value == ""


def test_the_file(tmp_path: Path) -> None:
    key_store = secrets(tmp_path)
    key_store.store("work", KEY, "file")
    key_store.store("other", "another", "file")
    path = tmp_path / "config" / "credentials.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key(key_store, api_key="file").value == KEY
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=f"mode is 0640: run `chmod 600 {path}`"):
        key(key_store, api_key="file")
    key_store.store("work", KEY, "file")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key_store.forget(make_provider("work", {"type": "openai", "api_key": "file"}))
    assert KEY not in path.read_text()
    with pytest.raises(ConfigError, match="provider set work api-key -"):
        key(key_store, api_key="file")


def test_a_variable_that_is_named_must_be_there(tmp_path: Path) -> None:
    assert key(secrets(tmp_path, MINE=f" {KEY}\n"), api_key="env:MINE") == Secret(KEY, "MINE")
    with pytest.raises(ConfigError, match="missing in MINE"):
        key(secrets(tmp_path, OPENAI_API_KEY=KEY), api_key="env:MINE")
    assert key(secrets(tmp_path, OPENAI_API_KEY=KEY), api_key="none").value == ""


def test_a_broken_file_is_named_but_not_quoted(tmp_path: Path) -> None:
    key_store = secrets(tmp_path)
    path = tmp_path / "credentials.toml"
    path.write_text(f"work = {KEY}")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="not valid TOML") as caught:
        Secrets(path, {}).find(make_provider("work", {"type": "openai", "api_key": "file"}))
    assert KEY not in str(caught.value)
    assert KEY not in repr(key_store)


@pytest.mark.parametrize(
    ("value", "masked_key"),
    [(KEY, "sk-…abcd"), ("AIzaSyA12345678901234", "…1234"), ("short", "…"), ("", "")],
)
def test_a_key_is_masked(value: str, masked_key: str) -> None:
    secret = Secret(value, "somewhere")
    assert secret.masked == masked_key
    assert not value or value not in repr(secret)


_KEYRING = """
import keyring, sys
from keyring.backend import KeyringBackend
from pathlib import Path
from shepherd.config.provider import make_provider
from shepherd.config.secrets import Secrets
from shepherd.errors import ConfigError

class Memory(KeyringBackend):
    priority = 1
    kept = {}
    def get_password(self, service, name): return self.kept.get((service, name))
    def set_password(self, service, name, key): self.kept[service, name] = key
    def delete_password(self, service, name): del self.kept[service, name]

provider = make_provider("work", {"type": "openai", "api_key": "keyring"})
secrets = Secrets(Path(sys.argv[1]), {})
try:
    secrets.find(provider)
except ConfigError as error:
    print(error)
keyring.set_keyring(Memory())
secrets.store("work", "the-key", "keyring")
print(secrets.find(provider).value, Memory.kept)
secrets.forget(provider)
print(Memory.kept)
"""


def test_the_keyring_and_its_absence(tmp_path: Path) -> None:
    env = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _KEYRING, str(tmp_path / "c.toml")],
        capture_output=True, text=True, env=env, check=True,
    )  # fmt: skip
    absent, stored, empty = done.stdout.splitlines()
    assert absent.startswith("This system has no usable keyring")
    assert stored == "the-key {('shepherd', 'work'): 'the-key'}"
    assert empty == "{}"


def test_keys_in_the_environment_are_known_by_their_names() -> None:
    env = {"OPENAI_API_KEY": f" {KEY}\n", "MY_API_KEY": "short", "HOME": "/home/somebody/else"}
    assert keys_in(env) == {KEY: "OPENAI_API_KEY"}
