"""Models as users type them."""

from pathlib import Path

from shepherd.config.provider import LOCAL
from shepherd.config.settings import Config, LayerName
from shepherd.models import BUILTIN_NAME


def model_from_user(name: str, cwd: Path) -> str:
    """A model's name in the form of the settings: an existing file's name becomes absolute.

    Only names that a user types are searched in the working directory. Names from a settings file
    never are: a cloned repository could contain a file of that name.
    """
    path = Path(name).expanduser()
    is_path = path.suffix == ".gguf" or "/" in name
    return str((cwd / path).resolve()) if is_path and (cwd / path).is_file() else name


def override_model(provider: str | None, model: str | None) -> dict[str, object]:
    """The settings for a user's choice of a provider, a model, both or neither.

    `model` as `model_from_user` returns it.
    """
    if provider is None:
        return {} if model is None else {"model.name": model}
    name = "" if provider == LOCAL else provider
    if model is None:
        return {"model.provider": name}
    if not name:
        return {"model.provider": "", "model.name": model}
    provider_alone = name.partition("/")[0]  # `model` replaces one that `provider/name` chose
    return {"model.provider": f"{provider_alone}/{model}"}


def with_model(config: Config, name: str) -> Config:
    """The settings with another model of the present provider; without one, a local model.

    A name that can only be a local model, such as a path, leaves the provider.
    """
    provider = config.model.provider.partition("/")[0]
    if not provider or _is_local(name):
        return with_provider(config, "", name)
    return with_provider(config, f"{provider}/{name}")


def with_provider(config: Config, selector: str, name: str = "") -> Config:
    """The settings with another provider, "" for the local model, which `name` may change."""
    model = config.model.model_copy(
        update={"provider": selector, "name": name or config.model.name}
    )
    return config.model_copy(update={"model": model})


def model_of_flags(config: Config) -> Config:
    """The settings; `--model` means a model of the provider if a provider answers."""
    from_flag = config.source("model.name").layer is LayerName.FLAG
    if not from_flag or not config.model.provider:
        return config
    changed = with_model(config, config.model.name)
    if not changed.model.provider:  # the flag names a local model
        return changed
    # the provider's selector has the name now; `model.name` is that of the local model again
    return with_provider(changed, changed.model.provider, BUILTIN_NAME)


def _is_local(name: str) -> bool:
    """Whether the name can only be a model in this process, never one of an API."""
    return name == BUILTIN_NAME or name.startswith("script:") or name.endswith(".gguf")
