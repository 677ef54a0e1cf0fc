"""Finds the file of a model by path or name."""

from pathlib import Path

from shepherd.catalog.model_files import SUFFIX, models_in
from shepherd.errors import ModelLoadError


def locate_model(name: str, models_dir: str | Path, cwd: Path | None = None) -> Path:
    """The file of a path, or of a model in `models_dir`, with or without its suffix.

    The beginning of a name is enough if only one model matches. Raises ModelLoadError, which lists
    the models.
    """
    models = Path(models_dir).expanduser()
    path = Path(name).expanduser()
    roots = [Path()] if path.is_absolute() else [cwd or Path.cwd(), models]
    for root in roots:
        for candidate in (root / path, root / f"{path}{SUFFIX}"):
            if candidate.is_file():
                return _file_of(candidate)
    directories = [root / path for root in roots if (root / path).is_dir()]
    if directories:
        return _only_model(directories[0])
    return _by_prefix(name, models)


def available_models(models_dir: Path) -> list[Path]:
    """The models in a directory, at most one level down, first parts only of split files."""
    return [model.path for model in models_in(models_dir)]


def _file_of(path: Path) -> Path:
    """The file itself; a link to a file of another type stays a link.

    Hugging Face's cache has links to files named by their hash, without other parts beside them.
    """
    target = path.resolve()
    return target if target.suffix == path.suffix else path.absolute()


def _only_model(directory: Path) -> Path:
    models = available_models(directory)
    if len(models) == 1:
        return _file_of(models[0])
    names = ", ".join(path.name for path in models[:10]) or f"no {SUFFIX} file"
    raise ModelLoadError(f"{directory} is a directory; name one model in it ({names}).")


def _by_prefix(name: str, models_dir: Path) -> Path:
    models = available_models(models_dir)
    matches = [path for path in models if path.name.lower().startswith(name.lower())]
    if len(matches) == 1:
        return _file_of(matches[0])
    if matches:
        names = ", ".join(path.name for path in matches[:10])
        raise ModelLoadError(f"'{name}' could be any of: {names}.")
    names = ", ".join(path.name for path in models[:10])
    there = f"Models there: {names}." if names else "There are no models there yet."
    raise ModelLoadError(f"No model '{name}' as a path or in {models_dir}. {there}")
