"""Files that some program runs or obeys by itself, wherever they are in the working directory."""

from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.tools.access import WRITE_FILE, Access, AccessKind
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.permissions.files import FileRules
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from tests.tools.sandbox.boxes import LAYERED, need
from tests.tools.sandbox.test_repositories import git
from tests.tools.workshop import open_workshop

STARTING = """
.git/config .git/hooks/post-checkout .gitmodules .gitattributes .gitconfig .hg/hgrc .hgrc
.svn/entries .jj/repo/config.toml .sl/config .repo/hooks/pre-auto-gc _darcs/prefs/defaults
.husky/pre-commit .huskyrc.json .githooks/pre-commit .git-hooks/pre-commit .pre-commit-config.yaml
lefthook.yml .lefthook.toml lefthook-local.yml .overcommit.yml .simple-git-hooks.cjs
captainhook.json grumphp.yml .trunk/trunk.yaml .rusty-hook.toml .cargo-husky/hooks/pre-commit
prek.toml hk.pkl .bashrc .bash_aliases .profile .zshenv .zshrc .inputrc .xprofile .pam_environment
.envrc .envrc.local .direnv/flake-profile.rc .direnvrc mise.toml .mise.local.toml mise.dev.toml
.mise/config.toml mise/config.toml .config/mise.toml .tool-versions .rtx.toml .autoenv.zsh .rvmrc
.rbenv-vars .pyenv-vars .shadowenv.d/500.lisp rust-toolchain rust-toolchain.toml .vscode/tasks.json
.vscode/settings.json a.code-workspace .vs/tasks.vs.json .devcontainer/devcontainer.json
devcontainer.json .idea/workspace.xml .fleet/run.json .zed/tasks.json .nova/Configuration.json
.helix/languages.toml .vim/coc-settings.json .vimrc .exrc .nvimrc .nvim.lua .lazy.lua .local.vimrc
.lvimrc .dir-locals.el .dir-locals-2.el .emacs .spacemacs a.sublime-project .kateproject
.luarc.json .neoconf.json .lite_project.lua .ycm_extra_conf.py .bsp/sbt.json hie.yaml .merlin
.gitpod.yml .codesandbox/tasks.json .replit latexmkrc .latexmkrc .gdbinit .lldbinit .pdbrc .rdbgrc
.byebugrc .perldb .ocamlinit .iex.exs .ghci .irbrc .pryrc .Rprofile .Renviron .RData .octaverc
.erlang jupyter_server_config.py .tmux.conf .screenrc .psqlrc .curlrc .wgetrc .npmrc .yarnrc.yml
.yarn/plugins/a.cjs .pnpmfile.cjs .pnp.cjs bunfig.toml pip.conf sitecustomize.py usercustomize.py
a.pth .pythonrc.py .pydistutils.cfg .venv/bin/python venv/bin/python node_modules/.bin/eslint
.cargo/config.toml .gemrc .bundle/config init.gradle init.gradle.kts .gradle/init.d/a.gradle
.mvn/extensions.xml .m2/settings.xml .julia/config/startup.jl ansible.cfg .user.ini .htaccess
.shepherd.toml .shepherd/hooks.toml .claude/settings.json .cursor/mcp.json .mcp.json mcp.json
.codex/config.toml .gemini/settings.json .qwen/settings.json .windsurf/hooks.json
.continue/config.yaml .aider.conf.yml .opencode/plugin/a.js opencode.jsonc .roo/mcp.json
.cline/mcp.json .kiro/hooks/a .junie/a .amazonq/mcp.json .augment/a .factory/hooks.json
.kilocode/mcp.json .crush.json crush.json .trae/mcp.json .goose/config.yaml .openhands/setup.sh
.copilot/mcp.json .agents/a .amp/settings.json .pi/extensions/a.ts
"""
NAMES = STARTING.split()


@pytest.mark.parametrize("top", ["", "sub/", "sub/deeper/"])
def test_they_need_approval_where_other_edits_do_not(tmp_path: Path, top: str) -> None:
    policy = PermissionPolicy(tmp_path, ApproveMode.EDITS)
    rules = FileRules(policy, tmp_path.parent)
    missed: list[str] = []
    for name in NAMES:
        path = tmp_path / top / name
        verdict = policy.decide_one(WRITE_FILE, Access(AccessKind.WRITE, str(path)))
        parts = [path, *path.parents]
        is_protected = any(
            rules.concerns(part.name) and (rules.protects(str(part)) or rules.hides(str(part)))
            for part in parts[: parts.index(tmp_path)]
        )
        if verdict.decision is Decision.ALLOW or not is_protected:
            missed.append(name)
    assert not missed


async def test_a_yes_to_all_edits_of_a_session_does_not_cover_them(tmp_path: Path) -> None:
    shop = open_workshop(tmp_path, mode=ApproveMode.ASK, answers=[Choice.SESSION])
    for name in ("one", "two", *NAMES):
        await shop.call("write_file", path=name, content="x")
    assert {path.name for path in shop.root.iterdir()} == {"one", "two"}


@pytest.mark.parametrize("box", LAYERED, ids=lambda box: box.name)
@pytest.mark.parametrize("way", ["layer", "run again"])
async def test_a_command_that_makes_them_is_asked_about_each(
    tmp_path: Path, box: Box, way: str
) -> None:
    need(box)
    layers = (tmp_path / "layers",)
    sandbox = Sandbox(SandboxMode.REQUIRED, layers=layers, find=lambda: Finding(box, ()))
    shop = open_workshop(tmp_path, mode=ApproveMode.AUTO, sandbox=sandbox)
    lines = [f"mkdir -p $(dirname sub/{name}); echo x > sub/{name}" for name in NAMES]
    if way == "run again":  # behave as a program that can't rename a folder in a layer
        lines.insert(0, "grep -q overlay /proc/self/mountinfo && { echo EXDEV >&2; exit 1; }")
    (shop.root / "run.sh").write_text("\n".join([*lines, "echo y > sub/plain"]))

    text = await shop.call("execute_command", command="sh run.sh")

    assert (shop.root / "sub" / "plain").exists(), text
    assert [name for name in NAMES if (shop.root / "sub" / name).exists()] == []
    if way == "layer":
        targets = [Path(access.target) for r in shop.approver.requests for access in r.accesses]
        for path in (shop.root / "sub" / name for name in NAMES):
            # secrets are denied without a question
            denied = shop.runner.policy.denies(WRITE_FILE, Access(AccessKind.WRITE, str(path)))
            assert denied or any(target in (path, *path.parents) for target in targets), path


@pytest.mark.parametrize("box", LAYERED, ids=lambda box: box.name)
@pytest.mark.parametrize("place", [".", "src"])
async def test_no_directory_becomes_a_repository_unasked(
    tmp_path: Path, box: Box, place: str
) -> None:
    need(box)
    layers = (tmp_path / "layers",)
    sandbox = Sandbox(SandboxMode.REQUIRED, layers=layers, find=lambda: Finding(box, ()))
    shop = open_workshop(tmp_path, mode=ApproveMode.AUTO, sandbox=sandbox)
    (shop.root / "src").mkdir()
    directory = shop.root / place

    for name in ("refs/heads/main", "HEAD", "objects/info"):  # the last one is asked about
        await shop.call("write_file", path=f"{place}/{name}", content="ref: refs/heads/main\n")
    assert (shop.request_count, (directory / "objects").exists()) == (1, False)
    lines = (
        "mkdir -p objects refs; echo x > config",
        "rm -rf HEAD refs; mkdir objects; echo x > config",
        "mkdir refs; ln -s refs/heads/main HEAD",
        "rm -rf objects refs; git init -q --bare --initial-branch main .",
        "echo .. > commondir; echo ref: refs/heads/main > HEAD",
    )
    for line in lines:
        (shop.root / "run.sh").write_text(f"cd {place}\n{line}\n")
        await shop.call("execute_command", command="sh run.sh")
        names = {path.name for path in directory.iterdir()}
        assert not names.issuperset(("HEAD", "objects", "refs")), line
        assert not names.issuperset(("HEAD", "commondir")), line


@pytest.mark.parametrize("box", LAYERED, ids=lambda box: box.name)
@pytest.mark.parametrize("way", ["layer", "through"])
async def test_what_a_repository_of_any_name_runs_is_protected(
    tmp_path: Path, box: Box, way: str
) -> None:
    need(box)
    layers = () if way == "through" else (tmp_path / "layers",)
    sandbox = Sandbox(SandboxMode.REQUIRED, layers=layers, find=lambda: Finding(box, ()))
    shop = open_workshop(tmp_path, mode=ApproveMode.AUTO, sandbox=sandbox)
    origin = shop.root / "sub" / "origin.git"
    git(shop.root, "init", "-q", "--bare", str(origin))
    config = (origin / "config").read_text()

    for name in (
        "config",
        "hooks/post-update",
        "hooks/new/x",
        "config.worktree",
        "info/attributes",
    ):
        text = await shop.call("write_file", path=f"sub/origin.git/{name}", content="x")
        assert "Wrote" not in text
        assert shop.request_count == 1, name
        shop.approver.requests.clear()
    line = "cd sub/origin.git; echo x >> config; echo x > hooks/post-update; echo x > description"
    if way == "through":  # without a layer the line is asked about, and not what it does
        shop.approver.script(Choice.ONCE)
    await shop.call("execute_command", command=line)

    assert (origin / "config").read_text() == config
    assert not (origin / "hooks" / "post-update").exists()
    assert (origin / "description").read_text() == "x\n"
    targets = [access.target for r in shop.approver.requests for access in r.accesses]
    held = [str(origin / "config"), str(origin / "hooks")]
    assert way == "through" or targets == held  # once about each
