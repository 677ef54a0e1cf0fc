"""A working directory that is the home directory, or holds it."""

from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.sandbox.boxes.box import Box
from shepherd.tools.sandbox.sandbox import Finding, Sandbox
from tests.tools.sandbox.boxes import BOXES, need
from tests.tools.workshop import Workshop, open_workshop

STARTING = """
.bash_aliases .bash_completion .bash_functions .bash_login .bash_logout .bash_profile .bashrc
.profile .zshrc .zshenv .zprofile .zlogin .zlogout .zsh/plugin.zsh .oh-my-zsh/custom/a.zsh
.config/fish/config.fish .kshrc .cshrc .tcshrc .inputrc .xprofile .xinitrc .xsession .xsessionrc
.Xresources .pam_environment .config/autostart/a.desktop .config/systemd/user/a.service
.local/share/applications/a.desktop .local/bin/ls bin/ls go/bin/gofmt .cargo/bin/cargo
.cargo/config.toml .rustup/settings.toml .nvm/nvm.sh .pyenv/shims/python .rbenv/bin/rbenv
.sdkman/bin/sdkman-init.sh miniconda3/bin/python miniforge3/etc/profile.d/conda.sh sdk/bin/tool
tools/bin/git .aws/config .kube/config .ssh/config .ssh/rc .gitconfig .config/git/config
.gnupg/gpg.conf .vimrc .vim/plugin/a.vim .emacs.d/init.el .tmux.conf .screenrc .gdbinit .npmrc
.pip/pip.conf .pythonrc .psqlrc .mailcap .lesskey .docker/config.json .vscode/extensions/a/main.js
.claude/settings.json Library/LaunchAgents/a.plist dotfiles/shell PowerShell/profile.ps1
"""
NAMES = STARTING.split()


@pytest.fixture(params=["home", "above"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory that is the working directory, or is in it."""
    home = tmp_path / "project" / ("" if request.param == "home" else "ann")
    (home / "dotfiles").mkdir(parents=True)
    (home / "tools" / "bin").mkdir(parents=True)
    (home / ".shell").symlink_to("dotfiles/shell")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/tools/bin:/usr/bin:/bin")
    return home


def workshop(base: Path, mode: ApproveMode, box: Box | None, *answers: Choice) -> Workshop:
    layers = (base / "layers",)
    required = SandboxMode.OFF if box is None else SandboxMode.REQUIRED
    sandbox = Sandbox(required, layers=layers, find=lambda: Finding(box, ()))
    return open_workshop(base, mode=mode, answers=answers, sandbox=sandbox)


@pytest.mark.parametrize("mode", [ApproveMode.ASK, ApproveMode.EDITS])
async def test_files_that_start_by_themselves_are_asked_about(
    home: Path, tmp_path: Path, mode: ApproveMode
) -> None:
    shop = workshop(tmp_path, mode, None, Choice.SESSION)
    await shop.call("write_file", path=str(home / "note"), content="x")
    assert shop.request_count == 1

    for name in NAMES:
        await shop.call("write_file", path=str(home / name), content="x")
    assert [name for name in NAMES if (home / name).exists()] == []

    await shop.call("write_file", path=str(home / "other"), content="x")
    assert (home / "other").exists()


@pytest.mark.parametrize("mode", [ApproveMode.ASK, ApproveMode.EDITS, ApproveMode.AUTO])
async def test_commands_make_none_of_them(
    home: Path, tmp_path: Path, mode: ApproveMode, layered_box: Box
) -> None:
    shop = workshop(tmp_path, mode, layered_box, Choice.ONCE)
    lines = [f"mkdir -p $(dirname {name}); echo x > {name}" for name in NAMES]
    (home / "run.sh").write_text("\n".join(["cd $HOME", *lines, "echo y > plain"]))

    text = await shop.call("execute_command", command=f"sh {home}/run.sh")

    assert (home / "plain").exists(), text
    assert [name for name in NAMES if (home / name).exists()] == []


@pytest.mark.parametrize("mode", [ApproveMode.EDITS, ApproveMode.AUTO])
@pytest.mark.parametrize("first", ["write_file", "execute_command"])
async def test_the_first_change_alone_is_asked_about(
    home: Path, tmp_path: Path, mode: ApproveMode, first: str
) -> None:
    box = next(box for box in BOXES if box.name == "landlock")
    need(box)
    shop = workshop(tmp_path, mode, box, Choice.ONCE)

    async def change(name: str) -> None:
        if first == "write_file":
            await shop.call("write_file", path=str(home / name), content="x")
        else:
            await shop.call("execute_command", command=f"cd {home}; echo x > {name}")

    for name in ("one", "two", "three"):
        await change(name)
    assert shop.request_count == 1
    assert [(home / name).exists() for name in ("one", "two", "three")] == [True] * 3


async def test_a_no_is_no_yes_for_later(home: Path, tmp_path: Path) -> None:
    shop = workshop(tmp_path, ApproveMode.EDITS, None, Choice.DENY, Choice.DENY)
    for name in ("one", "two"):
        await shop.call("write_file", path=str(home / name), content="x")
    assert shop.request_count == 2
