"""Layers of settings, and what is said about wrong ones."""

import tomllib
from itertools import product
from pathlib import Path

import pytest
from hypothesis import example
from hypothesis import given as generated
from hypothesis import strategies as st

from shepherd.config.files import MAX_FILE_BYTES
from shepherd.config.layers import MAX_PROBLEMS
from shepherd.config.section import described_fields
from shepherd.config.settings import Config, LayerName, parse_text, section_class
from shepherd.errors import ConfigError
from tests.config.places import Places

KEY, VARIABLE = "sampling.top_k", "SHEPHERD_SAMPLING__TOP_K"


@pytest.mark.parametrize("given", list(product([False, True], repeat=4)))
def test_the_highest_layer_that_sets_a_value_wins(
    places: Places, given: tuple[bool, bool, bool, bool]
) -> None:
    user, project, environment, flag = given
    if user:
        places.user_file.write_text("[sampling]\ntop_k = 1\n")
    if project:
        places.project_file.write_text("[sampling]\ntop_k = 2\n")
    env = {VARIABLE: "3"} if environment else {}
    config = places.load(env, {KEY: 4} if flag else {})
    highest = max((n for n, is_given in enumerate(given, start=1) if is_given), default=None)
    assert config.sampling.to_sampling().top_k == highest
    assert config.source(KEY).layer is list(LayerName)[highest or 0]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[server]\n# x\nport = 70000", 3, "server.port must be a whole number from 0 to 65535"),
        ("[server]\nport = '80'", 2, 'got "80"'),
        ("[server]\nprot = 1", 2, "unknown setting server.prot; did you mean server.port?"),
        ("[serer]\nport = 1", 1, "unknown section [serer]; did you mean [server]?"),
        ("port = 1", 1, "did you mean server.port?"),
        ("server = 1", 1, "server is a section"),
        ("[sampling]\n\ntemperature = 11", 3, "a number from 0.0 to 10.0"),
        ("[sampling]\nstop = ['a', 1]", 2, "sampling.stop.1 must be a valid string, got 1"),
        ("[model]\nthinking = 1", 2, "true or false"),
        ("[llamacpp]\nflash_attention = 'x'", 2, 'one of "auto", "on", "off"'),
        ("[llamacpp]\npp = 0", 2, "llamacpp.pp must be a whole number from 1 to 64"),
        ("[llamacpp]\npp = 2\npipeline_parallel = 2", 2, "another name of"),
        ("[[permissions.rules]]\ntool = 'x'\npattern = '*'\ndecision = 'no'", 4, '"allow"'),
        ("[model]\nname = ''", 2, 'a text that is not empty, got ""'),
        ("[[permissions.rules]]\ntool = 'X'\npattern = '*'\ndecision = 'ask'", 2, "should match"),
        ("[[permissions.rules]]\ntool = 'x'\ndecision = 'ask'", 1, "pattern is missing"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(
    places: Places, text: str, line: int, said: str
) -> None:
    places.user_file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        places.load()
    assert f"{places.user_file}:{line}: " in str(caught.value)
    assert said in str(caught.value)


def test_every_problem_of_a_file_is_named(places: Places) -> None:
    places.user_file.write_text("[server]\nport = -1\nhots = ''\n[model]\nthinking = 3\n")
    with pytest.raises(ConfigError) as caught:
        places.load()
    assert [int(line.split(":")[1]) for line in str(caught.value).splitlines()] == [5, 2, 3]


def test_broken_toml_is_named_with_its_line(places: Places) -> None:
    places.project_file.write_text("[server]\nport = = 1\n")
    with pytest.raises(ConfigError, match=r"shepherd\.toml: not valid TOML.*line 2"):
        places.load()


def test_a_file_that_is_not_text_is_named(places: Places) -> None:
    places.user_file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=str(places.user_file)):
        places.load()


def test_a_wrong_variable_is_named(places: Places) -> None:
    with pytest.raises(ConfigError, match=r"^SHEPHERD_SERVER__PORT: server\.port must be"):
        places.load({"SHEPHERD_SERVER__PORT": "http"})
    with pytest.raises(ConfigError, match=r"^SHEPHERD_SERVER__PROT: unknown setting"):
        places.load({"SHEPHERD_SERVER__PROT": "1"})


def test_empty_variables_and_those_of_others_do_not_count(places: Places) -> None:
    config = places.load({VARIABLE: "", "SHEPHERD_HOME": "x", "OTHER__KEY": "1"})
    assert config == places.load()


def test_a_check_between_values_sees_all_layers(places: Places) -> None:
    places.user_file.write_text("[llamacpp]\nn_batch = 2048\n")
    assert places.load({"SHEPHERD_LLAMACPP__UBATCH": "2048"}).llamacpp.ubatch == 2048
    with pytest.raises(ConfigError, match=r"config\.toml.*must not exceed n_batch"):
        places.load(flags={"llamacpp.ubatch": 4096})


def test_a_second_name_of_a_setting_overrides_its_first(places: Places) -> None:
    places.user_file.write_text("[llamacpp]\npipeline_parallel = 2\n")
    places.project.joinpath("sub").mkdir()
    assert places.load(flags={"llamacpp.pipeline_parallel": 3}).llamacpp.pipeline_parallel == 3
    places.user_file.write_text("[llamacpp]\npp = 4\n")
    assert places.load().llamacpp.pipeline_parallel == 4
    assert places.load().source("llamacpp.pipeline_parallel").layer is LayerName.USER


def test_the_projects_file_is_looked_for_up_to_the_repository(places: Places) -> None:
    places.project_file.write_text("[sampling]\ntop_k = 7\n")
    deep = places.project / "a" / "b"
    deep.mkdir(parents=True)
    assert places.load(cwd=deep).sampling.to_sampling().top_k == 7
    (places.project / "a" / ".git").write_text("gitdir: elsewhere")
    assert places.load(cwd=deep).sampling.to_sampling().top_k is None


def test_outside_a_repository_only_the_directory_itself_counts(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path / "x" / "y")
    places.project.mkdir(parents=True)
    (tmp_path / "x" / ".shepherd.toml").write_text("[sampling]\ntop_k = 7\n")
    assert places.load().sampling.to_sampling().top_k is None
    assert places.load(cwd=tmp_path / "x").sampling.to_sampling().top_k == 7


def test_xdg_directories_are_used_when_absolute(places: Places, tmp_path: Path) -> None:
    file = tmp_path / "xdg" / "shepherd" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[sampling]\ntop_k = 9\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "XDG_DATA_HOME": "relative"}
    config = places.load(env)
    assert config.sampling.to_sampling().top_k == 9
    assert config.llamacpp.models_dir == str(places.home / ".local/share/shepherd/models")


@generated(
    st.one_of(
        st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{0,20})?", fullmatch=True),
        st.integers().map(str),
        st.floats().map(repr),
        st.text(max_size=6),
    )
)
@example("٣")
@example("1_000")
def test_a_number_means_the_same_as_in_a_file(text: str) -> None:
    try:
        parsed = tomllib.loads(f"value = {text}")
        expected: object = parsed["value"] if len(parsed) == 1 else text
    except tomllib.TOMLDecodeError:
        expected = text
    value = parse_text("sampling.temperature", text)
    assert (type(value), repr(value)) == (type(expected), repr(expected))


def test_every_setting_is_described() -> None:
    for section in Config.model_fields.values():
        fields = described_fields(section_class(section))
        assert [name for name, field in fields.items() if not field.description] == []


def test_the_defaults_are_valid() -> None:
    assert Config.model_validate(Config().model_dump()) == Config()


def test_of_very_many_problems_some_are_told(places: Places) -> None:
    places.project_file.write_text("[server]\n" + "".join(f"k{n} = 1\n" for n in range(2_000)))
    with pytest.raises(ConfigError) as caught:
        places.load()
    problems = str(caught.value).splitlines()
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1] == f"and {2_000 - MAX_PROBLEMS} more"


def test_a_file_that_is_no_settings_file_is_not_read(places: Places) -> None:
    places.project_file.write_text("#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="too large for settings"):
        places.load()


def test_the_environment_knows_every_name_of_a_setting(places: Places) -> None:
    config = places.load({"SHEPHERD_LLAMACPP__TP": "2"})
    assert config.llamacpp.tensor_parallel == 2


def test_a_context_too_small_for_llama_cpp_is_refused(places: Places) -> None:
    with pytest.raises(ConfigError, match="context_size: must be 0 or at least 256, got 10"):
        places.load({}, {"llamacpp.context_size": 10})


def test_llama_cpps_own_variable_goes_before_everything(places: Places) -> None:
    key, variable = "llamacpp.gpu_layers", "GGML_N_GPU_LAYERS"
    env = {"SHEPHERD_LLAMACPP__GPU_LAYERS": "3", variable: " 7 "}
    config = places.load(env, {key: 5})
    assert config.llamacpp.gpu_layers == 7
    assert str(config.source(key)) == variable
    assert places.load({variable: " "}, {key: 5}).llamacpp.gpu_layers == 5
    for wrong in ("many", "-2", "1.5"):
        with pytest.raises(ConfigError, match=rf"^{variable}: {key} must be"):
            places.load({variable: wrong})
