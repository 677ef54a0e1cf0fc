"""The default rules, before any of the user's."""

from functools import cache

from shepherd.tools.permissions.rules import Decision, Rule, parse_rule
from shepherd.tools.permissions.secrets import PUBLIC_KEYS, PUBLIC_PATHS, SECRET_PATHS

_REPOSITORIES = """
.git/** .gitmodules .gitattributes .gitconfig .hg/** .hgrc .svn/** .bzr/** .jj/** .husky/**
.githooks/** .pre-commit-config.yaml {,.}lefthook*.{yml,yaml,toml,json} .overcommit.yml
.simple-git-hooks.*
"""
_SHELLS = """
.bashrc .bash_* .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login
.logout .inputrc .oh-my-zsh/** .x{profile,initrc,session,sessionrc} .pam_environment *profile.ps1
.envrc .direnvrc {,.}mise*.toml .mise/** .tool-versions .rtx.toml .config/** .local/** .autoenv*
"""
_EDITORS = """
.vscode/** *.code-workspace .devcontainer/** {,.}devcontainer.json .idea/** .fleet/** .zed/**
.vim/** .{,g,n,l}vimrc .exrc .nvim.lua .nvimrc .emacs .emacs.d/** .dir-locals*.el .doom.d/**
.spacemacs *.sublime-project .gdbinit .lldbinit .screenrc .tmux.conf .sqliterc .psqlrc .curlrc
.wgetrc
"""
_PACKAGES = """
.npmrc .yarnrc .yarnrc.yml .yarn/** .pnpmfile.cjs bunfig.toml .pip/** pip.conf .pydistutils.cfg
{site,user}customize.py *.pth .pythonrc* .venv/** venv/** node_modules/** .cargo/** .gemrc .irbrc
.pryrc .bundle/config init.gradle* .gradle/** .m2/** .mvn/** .ghci .Rprofile .Renviron .julia/**
.ipython/** .jupyter/**
"""
_AGENTS = """
.shepherd.toml .shepherd/** .claude/** .claude.json .cursor/** .mcp.json mcp.json .codex/**
.gemini/** .qwen/** .windsurf/** .continue/** .aider* .opencode/** opencode.json* .roo/** .cline/**
.kiro/** .junie/**
"""
_NAMES = (_REPOSITORIES, _SHELLS, _EDITORS, _PACKAGES, _AGENTS)

STARTUP_PATHS = [f"{{cwd}}/**/{name}" for names in _NAMES for name in names.split()]
HOME_STARTUP_PATHS = ["~/.*", "~/.*/**", "~/bin/**", "~/Library/**"]
"""In the home directory, a program reads each hidden file."""


_DEFAULTS = """
ask read /**
allow read {cwd}/**
ask write /**
ask shell *
ask network *
allow environment *
ask tool *
ask mcp *
allow memory *
allow process *
"""
_SECRET_VARIABLES = (
    "*KEY* *TOKEN* *SECRET* *PASSWORD* *CREDENTIAL* *PASSWD* *PASSPHRASE* *_PASS *AUTH* *COOKIE* "
    "*DATABASE_URL* *_DSN"
)
_OWN_SETTINGS = ".config/shepherd/**"


def default_rules() -> list[Rule]:
    """The rules that allow and ask, from the widest to the narrowest."""
    rules = [parse_rule(line) for line in _DEFAULTS.split("\n") if line]
    return rules + [Rule("environment", name, Decision.ASK) for name in _SECRET_VARIABLES.split()]


@cache
def edits_rules() -> tuple[Rule, ...]:
    """The rules that `--approve edits` adds: files inside the working directory may be changed.

    Files that programs run unasked still need approval.
    """
    return (
        Rule("write_file", "{cwd}/**", Decision.ALLOW),
        Rule("edit_file", "{cwd}/**", Decision.ALLOW),
        *(Rule("write", path, Decision.ASK) for path in STARTUP_PATHS),
    )


def home_rules() -> list[Rule]:
    """The rules that `--approve edits` adds if the home is inside the working directory."""
    return [Rule("write", path, Decision.ASK) for path in HOME_STARTUP_PATHS]


@cache
def protected_rules() -> tuple[Rule, ...]:
    """The rules for secrets; only a user's rule that names such a file can allow it."""
    rules: list[Rule] = []
    for kind in ("read", "write"):
        rules += [Rule(kind, path, Decision.DENY) for path in SECRET_PATHS]
        rules += [Rule(kind, path, Decision.ALLOW) for path in PUBLIC_PATHS]
    rules.append(Rule("read", PUBLIC_KEYS, Decision.ALLOW))
    rules.append(Rule("write", f"/**/{_OWN_SETTINGS}", Decision.DENY))
    return tuple(rules)
