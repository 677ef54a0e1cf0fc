"""Providers in their file, the book of them, and the model database."""

import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.config.modeldb import model_facts
from shepherd.config.paths import Paths
from shepherd.config.provider import Provider, make_provider
from shepherd.config.provider_book import Ephemeral, ProviderBook, ProviderStore
from shepherd.errors import ConfigError
from tests.examples import examples

COMMENTED = '# mine\n[work] # here\ntype = "openai"\nmodel = "a" # one\n\n# two\npriority = 7\n'


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.from_env({"HOME": str(tmp_path)})


@pytest.fixture
def store(paths: Paths) -> ProviderStore:
    paths.config.mkdir(parents=True)
    return ProviderStore(paths.providers_file)


def provider(name: str, **values: object) -> Provider:
    return make_provider(name, {"type": "openai", **values})


_VALUES = st.fixed_dictionaries(
    {"type": st.sampled_from(["openai", "anthropic", "ollama", "llamacpp"])},
    optional={
        "model": st.text(max_size=20),
        "base_url": st.just("http://127.0.0.1:8080/v1"),
        "api_key": st.sampled_from(["", "none", "file", "keyring", "env:MY_KEY"]),
        "context_size": st.integers(0, 2**24),
        "priority": st.integers(0, 1000),
        "headers": st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9)),
    },
)

_NAMES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,9}z", fullmatch=True)


@settings(max_examples=examples(25))
@given(values=st.dictionaries(_NAMES, _VALUES, max_size=4))
def test_what_is_saved_is_read_again(
    values: dict[str, dict[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = ProviderStore(tmp_path_factory.mktemp("p") / "providers.toml")
    saved = [make_provider(name, table) for name, table in values.items()]
    for one in saved:
        store.save(make_provider(one.name, {"type": "gemini", "headers": {"x": "y"}}))
        store.save(one)
    assert store.all() == sorted(saved, key=lambda p: (p.priority, p.name))
    if saved:
        assert store.remove(saved[0].name) == saved[0]
        assert saved[0] not in store.all()


def test_comments_stay_and_the_file_is_private(store: ProviderStore) -> None:
    store.path.write_text(COMMENTED)
    store.save(provider("work", model="b", priority=7))
    assert store.path.read_text() == COMMENTED.replace('"a"', '"b"')
    store.save(provider("other"))
    assert "# two" in store.path.read_text()
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[work]\ntype = 5\n", r"toml:1: work.type must be one of .*"),
        ('[a]\ntype="openai"\n[work]\nmodel = "x"\n', "providers.toml:3: work.type is missing"),
        ('[work]\ntype="openai"\nbaseurl=""\n', "did you mean base_url"),
        ('[work]\ntype="openai"\nbase_url="example.com"\n', "must begin with http"),
        ('[work]\ntype="openai"\nbase_url="http://a:b@c/"\n', "must hold no password"),
        ('work = "openai"\n', r"work must be a table"),
        ('[next]\ntype = "openai"\n', "next is a word of the commands"),
        ('["a b"]\ntype = "openai"\n', "can't be a provider's name"),
        ("[work\n", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(store: ProviderStore, text: str, message: str) -> None:
    store.path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        store.all()


@pytest.mark.parametrize(
    ("type", "advice"),
    [
        ("openia", "did you mean openai?"),
        ("Claude", "did you mean anthropic?"),
        ("vllm", "did you mean openai?"),
        ("banana", "`shepherd doctor` lists plugins."),
    ],
)
def test_a_missing_type_is_a_warning(
    paths: Paths, store: ProviderStore, type: str, advice: str
) -> None:
    text = f'[gone]\ntype = "{type}"\n# mine\nmodel = "x"\n'
    store.path.write_text(text)
    book = ProviderBook(paths, {})
    assert book.warnings() == [
        f"Provider gone: the type {type} needs a plugin that is not installed; {advice}"
    ]
    store.save(provider("other"))
    assert store.path.read_text().startswith(text)
    assert [p.name for p in book.all()] == ["gone", "other"]
    with pytest.raises(ConfigError, match=r"work\.type must be one of .*"):
        make_provider("work", {"type": type})
    store.remove("gone")
    assert book.warnings() == []


def test_a_key_in_the_wrong_place_is_refused_and_not_repeated(store: ProviderStore) -> None:
    store.path.write_text('[work]\ntype = "openai"\napi_key = "sk-verysecret"\n')
    with pytest.raises(ConfigError, match="provider set NAME api-key -") as caught:
        store.all()
    assert "verysecret" not in str(caught.value)


def test_an_unknown_provider_is_guessed(store: ProviderStore) -> None:
    with pytest.raises(ConfigError, match="provider add"):
        store.get("work")
    store.save(provider("work"))
    with pytest.raises(ConfigError, match=r"there are work\. Did you mean work\?"):
        store.get("wrok")


def test_the_book_picks_and_orders(paths: Paths, store: ProviderStore) -> None:
    for name, priority in (("third", 3), ("first", 1), ("second", 2)):
        store.save(provider(name, priority=priority, model="m"))
    given = Ephemeral(provider("second", model="theirs"), "sk-given")
    book = ProviderBook(paths, {}, given)
    assert [p.label for p in book.all()] == ["second/theirs", "first/m", "third/m"]
    assert [p.name for p in book.following("first/x")] == ["third", "second"]
    assert [p.name for p in book.following("")] == ["second", "first", "third"]
    assert book.pick("first/some/model").model == "some/model"
    assert book.key(book.pick("second")).value == "sk-given"
    assert "sk-given" not in repr(given.provider)
    assert book.key(book.pick("first")).value == ""
    with pytest.raises(ConfigError, match="there are second, first, third"):
        book.pick("fourth")


def test_a_provider_of_the_command_line_alone_can_not_be_changed(paths: Paths) -> None:
    store = ProviderStore(paths.providers_file)
    store.save(provider("work", model="m"))
    book = ProviderBook(paths, {}, Ephemeral(provider("openai", model="theirs")))
    assert book.stored("work").model == "m"
    with pytest.raises(ConfigError, match="only on the command line"):
        book.stored("openai")
    with pytest.raises(ConfigError, match="there are work"):
        book.stored("home")
    store.save(provider("openai", model="mine"))
    assert book.stored("openai").model == "mine"


def test_the_packaged_database_knows_the_families() -> None:
    nowhere = Path("/nowhere/models.toml")
    facts = model_facts("gpt-5-mini", nowhere)
    assert (facts.context, facts.output, facts.thinking) == (400_000, 128_000, True)
    assert facts.limit_parameter == "max_completion_tokens"
    assert facts.context_source == "the model database"
    assert model_facts("anthropic/Claude-Sonnet-4-5-20250929", nowhere).output == 64_000
    assert model_facts("meta-llama/Llama-3.1-8B-Instruct", nowhere).context == 131_072
    assert model_facts("llama3:8b", nowhere).context == 8192
    assert model_facts("qwen3-coder:30b", nowhere).thinking is False
    assert model_facts("something-else", nowhere).context == 0


def test_the_users_file_goes_before_it(paths: Paths) -> None:
    paths.config.mkdir(parents=True)
    paths.models_file.write_text('[[model]]\nmatch = ["gpt-5*"]\ncontext = 1000\n')
    facts = model_facts("gpt-5", paths.models_file)
    assert (facts.context, facts.output) == (1000, 128_000)
    assert facts.context_source == str(paths.models_file)
    book = ProviderBook(paths, {})
    own = book.facts(provider("work", model="gpt-5", context_size=2000, output_limit=5))
    assert (own.context, own.output) == (2000, 5)
    assert own.context_source == "the setting work.context_size"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[model]]\nmatch = ["a"]\ncontxt = 1\n', r":3: unknown key contxt; did you mean context"),
        ('[[model]]\nmatch = ["a"]\ncontext = "1"\n', r":3: context must be"),
        ("[[model]]\ncontext = 1000\n", "match is missing"),
        ("[models]\n", r"\[\[model\]\] tables and nothing else"),
    ],
)
def test_a_wrong_database_is_named(paths: Paths, text: str, message: str) -> None:
    paths.config.mkdir(parents=True)
    paths.models_file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        model_facts("m", paths.models_file)


def test_every_packaged_entry_says_something() -> None:
    text = (Path(__file__).parents[2] / "config" / "models.toml").read_text()
    assert all(len(entry) > 1 for entry in tomllib.loads(text)["model"])


def test_the_example_is_valid() -> None:
    example = Path(__file__).parents[2] / "config" / "examples" / "providers" / "providers.toml"
    assert len(ProviderStore(example).all()) == 7
