"""Secrets by name, by the name of a copy, and by what is in a file; what starts by itself."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.config.section import ApproveMode
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.permissions.approval import Approval, Choice
from shepherd.tools.permissions.content import holds_private_key
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision, Rule, parse_rule
from tests.tools.workshop import open_workshop

HOME = Path("/home/u")
KEYS = """
id_rsa id_ed25519 id_rsa_work id_ed25519-github deploy_rsa server.pem server.key AuthKey_1.p8 a.p12
a.pfx store.jks debug.keystore putty.ppk pass.kdbx host.keytab office.ovpn .ssh/config .ssh/known
.gnupg/secring.gpg my-private-key.asc secret-subkeys.gpg .password-store/mail.gpg
etc/ssh_host_rsa_key .config/sops/age/keys.txt wg0.conf wallet.dat ca.key.b64 server-key.der
key.der.bak private.der privkey.der.old
"""
ACCOUNTS = """
.env .env.local .env.production .env-prod .env_old prod.env .envrc .dev.vars .secrets.toml
secrets.yml .netrc .authinfo .pgpass .my.cnf .git-credentials .config/git/credentials
.config/gh/hosts.yml .npmrc .pypirc .cargo/credentials .cargo/credentials.toml .gem/credentials
.m2/settings.xml .gradle/gradle.properties .docker/config.json .config/containers/auth.json
.terraformrc .terraform.d/credentials.tfrc.json terraform.tfstate terraform.tfstate.backup
prod.tfvars prod.auto.tfvars.json .kube/config kubeconfig kubeconfig-prod prod.kubeconfig
prod-kubeconfig.yaml .s3cfg .boto .config/rclone/rclone.conf credentials.json service-account.json
my-service-account-key.json proj-firebase-adminsdk-x.json client_secret_1.json token.json
kaggle.json .config/gcloud/application_default_credentials.json
gcp/application_default_credentials.json .aws/credentials .aws/sso/cache/abc.json
.aws/cli/cache/x.json .azure/msal_token_cache.json .azure/accessTokens.json .oci/config
.vault-token .htpasswd rootkey.csv u_accessKeys.csv .aws/config .aws/config.old env.bak env.bak2
env.backup.1 env.save~ prod.env.save .env.bak2 .env.prod.bak env.local env.production
"""
HISTORIES = """
.bash_history .zsh_history .psql_history .mysql_history .python_history .node_repl_history
.sqlite_history .rediscli_history .irb_history .lesshst .viminfo .local/share/fish/fish_history
.local/state/bash/history .local/state/psql_history .ipython/profile_default/history.sqlite
.bash_sessions/1.history
"""
AGENTS = """
.codex/auth.json .claude/.credentials.json .claude.json .gemini/oauth_creds.json
.config/github-copilot/hosts.json .local/share/opencode/auth.json .aider.conf.yml
.cache/huggingface/token .mozilla/firefox/x.default/logins.json key4.db cookies.sqlite
.config/google-chrome/Default/Cookies .local/share/keyrings/login.keyring
"""
COPIES = """
{}~ {}.bak {}.bak2 {}.old {}.orig {}.save {}.save.1 {}.swp {}.swo {}.backup {}.copy {}.tmp {}.1
{}.2024 {}.2024-05-01 {}-old {}_backup {}.gz {}.tar.gz {}.zip {}.txt #{}# .#{} {}.bak~ {}.old.1.gz
{}.rpmsave {}.dpkg-old {}.base64
"""
SYSTEM = """
/etc/shadow /etc/shadow- /etc/gshadow /etc/sudoers /etc/sudoers.d/a /etc/ssl/private/a.pem
/etc/letsencrypt/live/a/privkey.pem /etc/wireguard/wg0.conf /run/secrets/db /proc/7/environ
/dev/mem /proc/7/task/7/mem /etc/NetworkManager/system-connections/wifi
"""
PUBLIC = """
.env.example .env.sample .env.prod.template id_rsa.pub .ssh/id_ed25519.pub prod.tfvars.example
credentials.json.example history.py bash_history.md environment.py tokens.json token.py secrets.py
service.json account.json keys.md keyboard.py kubeconfig.go .envoy/config config.json settings.xml
auth.json locales/en/auth.json credentials.go cookies/index.ts cookies .terraform.lock.hcl main.tf
src/key.rs monkey.txt gradle.properties config docs/id_card.md test.environment old.txt a.2024.txt
env.d.ts env.py env.bak.py server.der ca.der public.der
"""


@cache
def policy_of(mode: ApproveMode) -> PermissionPolicy:
    return PermissionPolicy(HOME, mode, user=[parse_rule("allow * /**")])


def decision(kind: AccessKind, target: str, mode: ApproveMode = ApproveMode.ALL) -> str:
    return policy_of(mode).decide("some_tool", [Access(kind, target)]).decision.value


@pytest.mark.parametrize(
    "name", [*KEYS.split(), *ACCOUNTS.split(), *HISTORIES.split(), *AGENTS.split()]
)
def test_a_secret_is_shut_wherever_it_lies(name: str) -> None:
    for path in (f"{HOME}/{name}", f"{HOME}/a/b/{name}", f"/mnt/backup/{name.upper()}"):
        assert decision(AccessKind.READ, path) == "deny"
        assert decision(AccessKind.WRITE, path) == "deny"


@pytest.mark.parametrize("form", COPIES.split())
@pytest.mark.parametrize("name", ["id_rsa", ".env", "server.pem", ".netrc", "credentials.json"])
def test_a_copy_of_a_secret_is_shut(name: str, form: str) -> None:
    assert decision(AccessKind.READ, f"{HOME}/{form.format(name)}") == "deny"


@pytest.mark.parametrize(
    "path",
    [".ssh.bak/config", ".aws-old/credentials", "old/.ssh~/x", "Copy of id_rsa", "id_rsa (1)",
     ".id_rsa.swp", "backup-id_rsa", "id_rsa - copy", ".kube.2023/config", "id_rsa" + "~" * 200],
)  # fmt: skip
def test_a_copy_with_a_longer_name_is_shut(path: str) -> None:
    assert decision(AccessKind.READ, f"{HOME}/{path}") == "deny"


@pytest.mark.parametrize("path", SYSTEM.split())
def test_the_system_has_secrets_too(path: str) -> None:
    assert decision(AccessKind.READ, path) == "deny"


@pytest.mark.parametrize("name", PUBLIC.split())
def test_what_only_sounds_like_a_secret_is_not(name: str) -> None:
    assert decision(AccessKind.READ, f"{HOME}/{name}") == "allow"


def test_a_public_key_may_be_read_and_not_replaced() -> None:
    assert decision(AccessKind.READ, f"{HOME}/.ssh/id_rsa.pub") == "allow"
    assert decision(AccessKind.WRITE, f"{HOME}/.ssh/id_rsa.pub") == "deny"


@given(
    st.lists(st.sampled_from(sorted(COPIES.split())), max_size=4),
    st.sampled_from([".env", "a.key"]),
)
def test_copies_of_copies_are_shut(forms: list[str], name: str) -> None:
    for form in forms:
        name = form.format(name)
    assert decision(AccessKind.READ, f"{HOME}/{name}") == "deny"


def test_a_rule_with_too_many_alternatives_is_never_lost() -> None:
    pattern = "/**/secret" + "{a,b}" * 7
    for outcome, expected in ((Decision.DENY, "deny"), (Decision.ALLOW, "ask")):
        policy = PermissionPolicy(HOME, user=[Rule("read", pattern, outcome)])
        verdict = policy.decide("t", [Access(AccessKind.READ, "/x/secretaaaaaab")])
        assert verdict.decision.value == expected


STARTUP = """
.git/hooks/pre-commit .git/config sub/.git/config .git .husky/pre-commit .githooks/post-merge
.gitmodules .gitattributes .pre-commit-config.yaml lefthook.yml .bashrc .bash_profile .profile
.zshrc .zshenv .config/fish/config.fish .config/systemd/user/a.service .config/autostart/a.desktop
.xinitrc .vscode/tasks.json .vscode/settings.json a.code-workspace .devcontainer/devcontainer.json
.idea/workspace.xml .vimrc .exrc .nvim.lua .emacs.d/init.el .dir-locals.el .gdbinit mise.toml
.mise.toml .tool-versions .yarnrc .yarnrc.yml .yarn/releases/yarn.cjs .pnpmfile.cjs pip.conf
sitecustomize.py src/usercustomize.py lib/a.pth .venv/bin/pytest node_modules/.bin/eslint
.cargo/config.toml init.gradle .mvn/extensions.xml .shepherd.toml sub/.shepherd.toml
.claude/settings.json .cursor/mcp.json .mcp.json .codex/config.toml .VSCODE/tasks.json .Git/config
"""
ORDINARY = """
a.py Makefile conftest.py package.json pyproject.toml src/git/config.py .github/workflows/ci.yml
.gitignore .editorconfig Dockerfile docs/bashrc.md .prettierrc .eslintrc.json setup.py
.python-version
"""


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
def test_approving_edits_approves_nothing_that_starts_by_itself(tool: str) -> None:
    policy = PermissionPolicy(Path("/w"), ApproveMode.EDITS)
    paths = [*STARTUP.split(), *ORDINARY.split()]
    decided = {
        name: policy.decide(tool, [Access(AccessKind.WRITE, f"/w/{name}")]).decision.value
        for name in paths
    }
    assert [name for name in STARTUP.split() if decided[name] != "ask"] == []
    assert [name for name in ORDINARY.split() if decided[name] != "allow"] == []


def test_approving_edits_at_home_leaves_hidden_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    policy = PermissionPolicy(tmp_path, ApproveMode.EDITS)
    first = Access(AccessKind.WRITE, f"{tmp_path}/first.txt")
    assert policy.accept(policy.decide("write_file", [first]), [first])
    for name, expected in ((".some-program-rc", "ask"), ("bin/ls", "ask"), ("notes.txt", "allow")):
        access = Access(AccessKind.WRITE, f"{tmp_path}/{name}")
        assert policy.decide("write_file", [access]).decision.value == expected


OPENSSH = """\
-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAA
-----END OPENSSH PRIVATE KEY-----
"""
PRIVATE = [
    OPENSSH,
    "notes.txt:3: -----BEGIN RSA PRIVATE KEY-----",
    "-----BEGIN EC PRIVATE KEY-----",
    "-----BEGIN ENCRYPTED PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----",
    '{"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIEvQ"}',
    "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----",
    "PuTTY-User-Key-File-3: ssh-ed25519",
    "AGE-SECRET-KEY-1QQPQZRFR7ZZ2WCV5AVCLDYQ",
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU",
    "MIIEpAIBAAKCAQEAx0",
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    "MHcCAQEEIB",
    "-----END RSA PRIVATE KEY-----",
    "client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFb3dJQkFBS0NBUUVB",
]


@pytest.mark.parametrize("text", PRIVATE)
def test_a_private_key_is_known_by_its_looks(text: str) -> None:
    assert holds_private_key(f"before\n{text}\nafter")


@pytest.mark.parametrize(
    "text",
    ["-----BEGIN CERTIFICATE-----\nMIIDdzCCAl", "-----BEGIN PUBLIC KEY-----", "the private key",
     "ssh-rsa AAAAB3NzaC1yc2E", "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"],
)  # fmt: skip
def test_what_is_public_is_told(text: str) -> None:
    assert not holds_private_key(text)


WITHHELD = "Error: the call has run, but its result holds a private key and is held back"


@pytest.mark.parametrize("tool", ["read_file", "grep", "execute_command"])
async def test_a_private_key_is_told_only_when_that_was_approved(tmp_path: Path, tool: str) -> None:
    arguments = {
        "read_file": {"path": "notes.txt"},
        "grep": {"pattern": "BEGIN", "path": "."},
        "execute_command": {"command": "tail -n 2 notes.txt"},
    }[tool]
    rules = ["allow shell tail *"]
    answers = [Approval(Choice.DENY, feedback="mine"), Choice.ONCE]
    shop = open_workshop(tmp_path, mode=ApproveMode.ASK, rules=rules, answers=answers)
    (shop.root / "notes.txt").write_text(f"For the server:\n{OPENSSH}")
    refused = await shop.result(tool, **arguments)
    assert refused.content == f"{WITHHELD} (denied by the user: mine)"
    assert not refused.ok
    assert "PRIVATE KEY" in await shop.call(tool, **arguments)
    assert [r.cause for r in shop.approver.requests] == ["the result holds a private key"] * 2
    assert all(r.session == r.always == () for r in shop.approver.requests)


@pytest.mark.parametrize(
    ("mode", "disclosed"),
    [(ApproveMode.ALL, True), (ApproveMode.NONE, False), (ApproveMode.EDITS, False)],
)
async def test_the_mode_answers_for_a_private_key(
    tmp_path: Path, mode: ApproveMode, *, disclosed: bool
) -> None:
    shop = open_workshop(tmp_path, mode=mode)
    (shop.root / "notes.txt").write_text(f"For the server:\n{OPENSSH}")
    text = await shop.call("read_file", path="notes.txt")
    assert ("PRIVATE KEY" in text) is disclosed
    assert text.startswith(WITHHELD) is not disclosed


@pytest.mark.parametrize("line", ["tail -n +3 deploy.txt", "base64 deploy.txt", "cp deploy.txt x"])
async def test_a_file_that_is_a_key_asks_before_it_is_touched(tmp_path: Path, line: str) -> None:
    rules = ["allow shell *", f"allow shell {line}"]
    shop = open_workshop(tmp_path, mode=ApproveMode.ASK, rules=rules)
    (shop.root / "deploy.txt").write_text(OPENSSH + "AAAA\nBBBB\n")
    (shop.root / "test_keys.py").write_text(f'"""Keys."""\nKEY = """\n{OPENSSH}"""\n')
    assert await shop.call("execute_command", command=line) == "Error: denied by the user"
    assert shop.approver.requests[0].cause == f"a private key: {shop.root}/deploy.txt"
    assert await shop.call("read_file", path="deploy.txt", offset=4) == "Error: denied by the user"
    assert shop.request_count == 2
    assert (await shop.result("execute_command", command="wc -l test_keys.py")).ok
    assert shop.request_count == 2


async def test_a_rule_that_names_a_key_file_opens_it(tmp_path: Path) -> None:
    shop = open_workshop(tmp_path, mode=ApproveMode.ASK, rules=["allow read deploy.txt"])
    (shop.root / "deploy.txt").write_text(OPENSSH + "AAAA\nBBBB\n")
    assert "BBBB" in await shop.call("read_file", path="deploy.txt", offset=5)
