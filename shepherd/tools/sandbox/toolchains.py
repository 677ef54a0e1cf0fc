"""Where the programs live that commands need."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from shepherd.tools.sandbox.profile import Profile

SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/gnu",
    "/snap",
    "/run/current-system",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/var/cache/fontconfig",
    "/var/lib/alternatives",
    "/var/lib/dpkg",
    "/var/lib/ghc",
    "/var/lib/python",
    "/var/lib/rpm",
    "/var/lib/texmf",
)
"""What every program may read."""

SYSTEM_SECRETS = (
    "/etc/NetworkManager/system-connections",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/etc/letsencrypt",
    "/etc/machine-id",
    "/etc/mysql/debian.cnf",
    "/etc/ppp",
    "/etc/rancher",
    "/etc/security/opasswd",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/ssh/ssh_host_dsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/wireguard",
)
"""What is hidden there."""

HOME_TOOLS = (
    ".asdf",
    ".bun",
    ".cargo/bin",
    ".cargo/config",
    ".cargo/config.toml",
    ".cargo/env",
    ".cargo/git",
    ".cargo/registry",
    ".conda",
    ".config/git/attributes",
    ".config/git/config",
    ".config/git/ignore",
    ".config/nvm",
    ".deno",
    ".dotnet",
    ".fnm",
    ".gem",
    ".ghcup",
    ".gitconfig",
    ".jenv",
    ".juliaup",
    ".local/bin",
    ".local/lib",
    ".local/pipx/venvs",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv",
    ".m2/repository",
    ".m2/wrapper",
    ".n",
    ".nodenv",
    ".nuget/packages",
    ".nvm",
    ".opam",
    ".phpenv",
    ".pub-cache",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".sdkman",
    ".stack/programs",
    ".volta",
    "anaconda3",
    "go/bin",
    "go/pkg/mod",
    "mambaforge",
    "micromamba",
    "miniconda3",
    "miniforge3",
    "sdk",
)
"""Toolchains and what they read, below the home directory."""

HOME_STARTUP = (
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".config",
    ".local/share/applications",
    ".login",
    ".npmrc",
    ".pam_environment",
    ".profile",
    ".ssh",
    ".vimrc",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
)
"""What runs by itself, or decides what does: protected where it lies in the working directory."""

_VARIABLES = (
    "CONDA_PREFIX",
    "GOROOT",
    "JAVA_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "RUSTUP_HOME",
    "SDKMAN_DIR",
    "VIRTUAL_ENV",
    "VOLTA_HOME",
)
_VENVS = (".venv", "venv", "env")


def tool_paths(profile: Profile, environment: Mapping[str, str]) -> list[Path]:
    """The existing paths outside of the system that commands need to read."""
    return [
        path
        for path in dict.fromkeys(_all_tools(profile, environment))
        if path.exists() and _narrow(path, profile)
    ]


def home_tools(profile: Profile) -> list[Path]:
    """The toolchains in the home directory, by the names that they have there."""
    return [path for name in HOME_TOOLS if (path := profile.home / name).exists()]


def _all_tools(profile: Profile, environment: Mapping[str, str]) -> Iterator[Path]:
    for name in HOME_TOOLS:
        yield real(profile.home / name)
    outside = [
        *environment.get("PATH", "").split(os.pathsep),
        *(environment.get(name, "") for name in _VARIABLES),
        sys.base_prefix,
        sys.base_exec_prefix,
        str(Path(sys.executable).resolve().parent),
    ]
    for text in outside:
        path = Path(text)
        if path.is_absolute() and not real(path).is_relative_to(real(profile.root)):
            yield real(path)
    yield from _linked_environments(real(profile.root))
    yield from _worktree(real(profile.root))


def _narrow(path: Path, profile: Profile) -> bool:
    """Whether nothing but a tool lies there: no home, and nothing that holds one or the root."""
    broad = (real(profile.home), real(profile.root))
    return len(path.parts) > 2 and not any(place.is_relative_to(path) for place in broad)


def _linked_environments(root: Path) -> Iterator[Path]:
    """Virtual environments that links in `root` lead to."""
    for name in _VENVS:
        link = root / name
        if link.is_symlink() and (link / "pyvenv.cfg").is_file():
            yield real(link)


def _worktree(root: Path) -> Iterator[Path]:
    """The repository of a linked worktree, if the repository names this worktree in turn."""
    pointer = root / ".git"
    text = _line(pointer)
    if not text.startswith("gitdir: "):
        return
    directory = real(root / text.removeprefix("gitdir: "))
    if real(Path(_line(directory / "gitdir") or "/")) == real(pointer):
        yield real(directory / (_line(directory / "commondir") or "."))


def _line(path: Path) -> str:
    if not path.is_file():
        return ""
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            return file.readline(4096).strip()
    except OSError:
        return ""


def real(path: Path) -> Path:
    """`path` without links, whether it exists or not."""
    return Path(os.path.realpath(path))


def interpreter() -> Path:
    """The Python that runs the helpers; what it needs lies below its own prefix."""
    return real(Path(sys.executable))
