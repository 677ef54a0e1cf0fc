"""Which files some program runs without being asked to: writing one is as good as running it."""

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
"""At home everything that is hidden belongs to some program that reads it."""
