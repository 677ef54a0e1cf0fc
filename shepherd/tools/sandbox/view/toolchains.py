"""Finds the programs that commands need."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.repository import git_directories

_SYSTEM_NAMES = """
/usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /opt /nix /gnu /snap /run/current-system
/sys/devices/system /var/cache/fontconfig /var/lib/alternatives /var/lib/dpkg /var/lib/ghc
/var/lib/python /var/lib/rpm /var/lib/texmf
"""
SYSTEM = tuple(_SYSTEM_NAMES.split())
"""The paths that every program may read."""

_SYSTEM_SECRETS_NAMES = """
/etc/NetworkManager/system-connections /etc/gshadow /etc/gshadow- /etc/krb5.keytab
/etc/kubernetes /etc/letsencrypt /etc/machine-id /etc/mysql/debian.cnf /etc/ppp /etc/rancher
/etc/security/opasswd /etc/shadow /etc/shadow- /etc/ssh/ssh_host_dsa_key
/etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key /etc/ssh/ssh_host_rsa_key
/etc/ssl/private /etc/sudoers /etc/sudoers.d /etc/wireguard
/etc/.pwd.lock /var/lib/dpkg/lock /var/lib/dpkg/lock-frontend /var/lib/dpkg/triggers/Lock
/var/lib/rpm/.rpm.lock /nix/var/nix/gc.lock /nix/var/nix/db/big-lock
"""
SYSTEM_SECRETS = tuple(_SYSTEM_SECRETS_NAMES.split())
"""The hidden paths among them, with the files by which root's programs lock each other out."""

_HOME_TOOLS_NAMES = """
.asdf .bun .cargo/bin .cargo/config .cargo/config.toml .cargo/env .cargo/git .cargo/registry
.conda .config/git/attributes .config/git/config .config/git/ignore .config/nvm .deno .dotnet
.fnm .gem .ghcup .gitconfig .jenv .juliaup .local/bin .local/lib .local/pipx/venvs
.local/share/fnm .local/share/mise .local/share/pipx .local/share/pnpm .local/share/uv
.m2/repository .m2/wrapper .n .nodenv .nuget/packages .nvm .opam .phpenv .pub-cache .pyenv
.rbenv .rustup .rvm .sdkman .stack/programs .volta anaconda3 go/bin go/pkg/mod mambaforge
micromamba miniconda3 miniforge3 sdk
"""
HOME_TOOLS = tuple(_HOME_TOOLS_NAMES.split())
"""Toolchains and the files they read, below the home directory."""

_HOME_STARTUP_NAMES = """
.aws .bash_aliases .bash_completion .bash_functions .bash_login .bash_logout .bash_profile .bashrc
.config .cshrc .inputrc .kshrc .local/share/applications .login .npmrc .nvm .pam_environment
.profile .ssh .tcshrc .vimrc .xinitrc .xprofile .xsession .xsessionrc .zlogin .zlogout .zprofile
.zshenv .zshrc bin
"""
HOME_STARTUP = tuple(_HOME_STARTUP_NAMES.split())
"""Files that run by themselves or decide what runs; protected inside the working directory."""

_PLAIN = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_VARIABLE_NAMES = """
ANT_HOME ASDF_DATA_DIR ASDF_DIR BUN_INSTALL CONDA_PREFIX CONDA_ROOT DENO_INSTALL DOTNET_ROOT
ERLANG_HOME FNM_DIR FNM_MULTISHELL_PATH GEM_HOME GHCUP_INSTALL_BASE_PREFIX GOENV_ROOT GOROOT
GRADLE_HOME HASKELL_HOME JAVA_HOME JENV_ROOT JDK_HOME JULIAUP_DEPOT_PATH KOTLIN_HOME M2_HOME
MAMBA_ROOT_PREFIX MAVEN_HOME MISE_DATA_DIR NODENV_ROOT NVM_BIN NVM_DIR N_PREFIX OPAMROOT
OPAM_SWITCH_PREFIX PHPENV_ROOT PIPX_HOME PLENV_ROOT PNPM_HOME PYENV_ROOT RBENV_ROOT RUSTUP_HOME
RYE_HOME SCALA_HOME SDKMAN_DIR SPARK_HOME SWIFTENV_ROOT UV_PYTHON_INSTALL_DIR UV_TOOL_DIR
VIRTUAL_ENV VOLTA_HOME rvm_path
"""
_WITH_SECRETS = {
    "CARGO_HOME": ("bin", "config", "config.toml", "env", "git", "registry"),
    "DENO_DIR": ("deps", "npm", "gen"),
    "GOPATH": ("bin", "pkg/mod"),
    "GOMODCACHE": ("",),
    "GRADLE_USER_HOME": ("caches", "jdks", "wrapper"),
    "MAVEN_USER_HOME": ("repository", "wrapper"),
    "NPM_CONFIG_PREFIX": ("bin", "lib"),
    "PYTHONUSERBASE": ("bin", "lib"),
}
"""Variables whose directories may hold more than tools, and the parts that are visible."""

_SHIMS = "shims"
_VENVS = (".venv", "venv", "env")


def tool_paths(profile: Profile, environment: Mapping[str, str]) -> list[Path]:
    """The existing paths outside of the system that commands need to read."""
    root, home = real(profile.root), real(profile.home)
    result = [*map(real, home_tools(profile)), *_named(root, environment)]
    result += _linked_environments(root)
    if (root / ".git").is_file():  # a linked work tree: its repository is elsewhere
        result += git_directories(root)[1:]
    return [path for path in dict.fromkeys(result) if _is_narrow(path, (root, home))]


def home_tools(profile: Profile) -> list[Path]:
    """The toolchains in the home directory, by their names there."""
    home = str(profile.home)
    return [profile.home / name for name in HOME_TOOLS if os.access(f"{home}/{name}", os.F_OK)]


def _named(root: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """The paths in PATH and other variables, and the Python that runs Shepherd."""
    names = [
        *environment.get("PATH", "").split(os.pathsep),
        *(environment.get(name, "") for name in _VARIABLE_NAMES.split()),
        *_parts(environment),
        sys.base_prefix,
        sys.base_exec_prefix,
        str(interpreter().parent),
    ]
    for name in dict.fromkeys(names):
        if not name.startswith("/") or name in _PLAIN or not os.access(name, os.F_OK):
            continue  # not a path, of the system, or not there
        path = real(Path(name))
        if not is_below(path, root):
            yield path
            if os.access(f"{name}/../pyvenv.cfg", os.F_OK):
                yield real(path.parent)  # the packages of the programs there
            if path.name == _SHIMS and os.access(f"{path.parent}/bin", os.F_OK):
                yield path.parent  # the manager that the shims start, and the tools that it manages


def _parts(environment: Mapping[str, str]) -> Iterator[str]:
    """The parts with tools of directories that may also hold secrets."""
    for name, parts in _WITH_SECRETS.items():
        for folder in environment.get(name, "").split(os.pathsep):
            yield from (f"{folder}/{part}".rstrip("/") for part in parts if folder)


def _is_narrow(path: Path, broad: Iterable[Path]) -> bool:
    """Whether the path contains only a tool, not the root, a home or a directory above one."""
    return len(path.parts) > 2 and not any(is_below(place, path) for place in broad)


def _linked_environments(root: Path) -> Iterator[Path]:
    """The virtual environments to which links in `root` lead."""
    for name in _VENVS:
        link = root / name
        if link.is_symlink() and (link / "pyvenv.cfg").is_file():
            yield real(link)


def is_below(path: Path, top: Path) -> bool:
    """Whether an absolute path is `top` or below it; several times faster than pathlib's test."""
    text, prefix = str(path), str(top)
    return text == prefix or text.startswith(prefix if prefix == "/" else f"{prefix}/")


def real(path: Path) -> Path:
    """`path` without links, whether it exists or not."""
    return Path(os.path.realpath(path))


def interpreter() -> Path:
    """The Python that runs the helpers; its files are below its own prefix."""
    return real(Path(sys.executable))
