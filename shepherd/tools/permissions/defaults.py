"""The default rules, before any of the user's."""

import os
import re
from functools import cache
from pathlib import Path

from shepherd.tools.access import EDIT_FILE, WRITE_FILE
from shepherd.tools.paths import escape_glob
from shepherd.tools.permissions.rules import Decision, Rule, parse_rule

_REPOSITORIES = """
.git/** .gitmodules .gitattributes .gitconfig .hg/** .hgrc .svn/** .bzr/** .jj/** .sl/** .repo/**
_darcs/** .husky/** .huskyrc* .git{,-}hooks/** .cargo-husky/** .pre-commit-config.yaml prek.toml
{,.}lefthook*.{yml,yaml,toml,json} .overcommit.yml .simple-git-hooks.* captainhook.json
{,.}grumphp.yml* .trunk/** .rusty-hook.toml hk.pkl
"""
_SHELLS = """
.bashrc .bash_* .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login
.logout .inputrc .oh-my-zsh/** .x{profile,initrc,session,sessionrc} .pam_environment *profile.ps1
.envrc* .direnvrc .direnv/** {,.}mise*.toml {,.}mise/** .tool-versions .rtx.toml .config/**
.local/** .autoenv* .rvmrc .{rb,py,nod}env-vars .shadowenv.d/** rust-toolchain{,.toml}
"""
_EDITORS = """
.vscode/** *.code-workspace .vs/** .devcontainer/** {,.}devcontainer.json .idea/** .fleet/**
.zed/** .nova/** .helix/** .vim/** .{,g,n,l,local.}vimrc .exrc .nvim.lua .nvimrc .lazy.lua .emacs
.emacs.d/** .dir-locals*.el .doom.d/** .spacemacs *.sublime-project .kateproject* .luarc.json*
.neoconf.json .lite_project.lua .ycm_extra_conf.py .bsp/** hie.yaml .merlin .gitpod.yml
.codesandbox/** .replit {,.}latexmkrc
"""
_PROGRAMS = """
.gdbinit .lldbinit .pdbrc .rdbgrc .byebugrc .perldb .ocamlinit .iex.exs .erlang .ghci .irbrc .pryrc
.Rprofile .Renviron .RData .octaverc .ipython/** .jupyter/** jupyter_*config.* .screenrc .tmux.conf
.sqliterc .psqlrc .curlrc .wgetrc .user.ini .htaccess ansible.cfg
"""
_PACKAGES = """
.npmrc .yarnrc .yarnrc.yml .yarn/** .pnpmfile.cjs .pnp.* bunfig.toml .pip/** pip.conf
.pydistutils.cfg {site,user}customize.py *.pth .pythonrc* .venv/** venv/** node_modules/**
.cargo/** .gemrc .bundle/config init.gradle* .gradle/** .m2/** .mvn/** .julia/**
"""
_AGENTS = """
.shepherd.toml .shepherd/** .claude/** .claude.json .cursor/** .mcp.json mcp.json .codex/**
.gemini/** .qwen/** .windsurf/** .continue/** .aider* .opencode/** opencode.json* .roo/** .cline/**
.kiro/** .junie/** .amazonq/** .augment/** .factory/** .kilocode/** {,.}crush.json .crush/**
.trae/** .goose/** .openhands/** .copilot/** .agents/** .amp/** .pi/**
"""
_NAMES = (_REPOSITORIES, _SHELLS, _EDITORS, _PROGRAMS, _PACKAGES, _AGENTS)

STARTUP_PATHS = [f"{{cwd}}/**/{name}" for names in _NAMES for name in names.split()]
_AT_HOME = """
.* .*/** bin/** Library/** {ana,mini}conda3/** {mamba,mini}forge{,3}/** micromamba/** go/bin/**
sdk/**
"""
"""In the home directory, a program reads each hidden file."""


_DEFAULTS = """
ask read /**
allow read {cwd}/**
ask write /**
ask effect any **
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


_CACHES = """
.pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* .eslintcache
.stylelintcache *.tsbuildinfo .phpunit.result.cache .php-cs-fixer.cache
"""
"""Files that programs keep for their next run, and that hold no code."""
BYTECODE = Rule("effect", "any {cwd}/**/__pycache__/**", Decision.ALLOW)
"""It is code that runs later, so nobody may put it there unseen; but Python makes it again."""


def default_rules() -> list[Rule]:
    """The rules that allow and ask, from the widest to the narrowest."""
    rules = [parse_rule(line) for line in _DEFAULTS.split("\n") if line]
    rules += [Rule("effect", f"any {{cwd}}/**/{n}/**", Decision.ALLOW) for n in _CACHES.split()]
    return rules + [Rule("environment", name, Decision.ASK) for name in _SECRET_VARIABLES.split()]


@cache
def edits_rules() -> tuple[Rule, ...]:
    """The rules that `--approve edits` adds: files inside the working directory may be changed.

    Files that programs run unasked still need approval.
    """
    return (
        Rule(WRITE_FILE, "{cwd}/**", Decision.ALLOW),
        Rule(EDIT_FILE, "{cwd}/**", Decision.ALLOW),
        Rule("effect", "write {cwd}/**", Decision.ALLOW),
        *(Rule("write", path, Decision.ASK) for path in STARTUP_PATHS),
    )


def home_rules() -> list[Rule]:
    """The rules that `--approve edits` adds if the home is inside the working directory."""
    home = Path("~").expanduser().resolve()
    programs = (Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep))
    linked = (path for path in home.glob(".*") if path.is_symlink())  # its target has another name
    places = {path.resolve() for path in (*programs, *linked) if path.is_absolute()}
    below = [escape_glob(str(path)) for path in places if home in path.parents]
    patterns = [*(f"~/{name}" for name in _AT_HOME.split()), *below, *(f"{p}/**" for p in below)]
    return [Rule("write", pattern, Decision.ASK) for pattern in patterns]


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


_ENVIRONMENT = """
*[A-Za-z0-9_)-].env .env .env.* .env-* .env_* env.{bak,backup,old,orig,save}{,[0-9]*}
env.{local,prod,production,staging} .envrc .flaskenv .dev.vars .secret .secrets .secrets/**
"""
_KEYS = """
id_{rsa,dsa,ecdsa,ed25519,ecdsa_sk,ed25519_sk,xmss}{,[._-]*} *_{rsa,dsa,ecdsa,ed25519}
ssh_host_*_key
*.{pem,key,p8,p12,pk8,pfx,pvk,jks,jceks,bks,keystore,ppk,kdb,kdbx,psafe3,keytab,ovpn}
*{key,private}*.der *.{keychain,keychain-db,keyring,kwl,agilekeychain,opvault}
*.{pem,key,p12,pfx,jks}.{b64,base64}
*{secret,private}*.{asc,gpg,pgp} secring.* .ssh/** .gnupg/** .password-store/** keyrings/**
kwalletd/** sops/age/keys.txt wg[0-9].conf .vnc/passwd tigervnc/passwd .Xauthority wallet.dat
.config/solana/id.json .ethereum/keystore/** .electrum/wallets/** Library/Keychains/**
"""
_ACCOUNTS = """
.netrc _netrc .authinfo .authinfo.gpg .pgpass pgpass.conf .my.cnf .mylogin.cnf .odbc.ini .htpasswd
.git-credentials .gitcookies .config/git/credentials .config/hub .config/gh/hosts.yml
.config/glab-cli/** .config/tea/** .subversion/auth/** .npmrc .pypirc .condarc
{.config/pip,.pip}/pip.conf .config/pypoetry/auth.toml uv/credentials/** .cargo/credentials*
.gem/credentials .bundle/config {.composer,.config/composer}/auth.json .m2/settings*.xml
.gradle/gradle.properties .ivy2/.credentials .sbt/**/*credentials*
{.nuget,.config}/NuGet/NuGet.Config .hex/hex.config .dockercfg .docker/config.json
containers/auth.json .config/helm/registry/config.json .vault-token .vault[_-]pass* vault[_-]pass*
.terraformrc terraform.rc .terraform.d/credentials* *.tfstate *.tfstate.* *.tfvars *.tfvars.json
.pulumi/credentials.json .kube/config* kubeconfig{,.yml,.yaml,.json,.conf} *.kubeconfig
kubeconfig[-_]{prod,production,staging,stage,dev,admin,test}
{*[-._a-z0-9][-._]kubeconfig,kubeconfig[-._]*}.{yml,yaml,json,conf} .talos/config argocd/config
.s3cfg .boto .passwd-s3fs rclone.conf .config/rclone/** .mc/config.json .smbcredentials .msmtprc
.config/msmtp/config .fetchmailrc .offlineimaprc .mbsyncrc .sentryclirc .config/filezilla/**
credentials.{json,csv,db,ini,toml,xml,yml,yaml} secrets.{json,toml,xml,yml,yaml}
.secrets.{toml,yml,yaml} credentials-config.json access_tokens.db accessTokens.json
{rootkey,*accessKeys}.csv kaggle.json {,*[._-]}service[_-]account*.json
{,*[._-]}serviceaccount*.json *firebase-adminsdk*.json client_secret*.json
application_default_credentials.json token.{json,pickle} gcp-key*.json
"""
_CLOUDS = """
.aws/{config,credentials} .aws/{sso,cli,login}/cache/** .azure/** .config/gcloud/** .oci/config
.bluemix/config.json .config/{doctl,hcloud,scw,netlify,wrangler,linode-cli}/** .linode-cli
.ovh.conf .fly/config.yml .netlify/config.json .vercel/auth.json .railway/config.json
.supabase/access-token {.ngrok2,.config/ngrok}/ngrok.yml .cloudflared/*.json
.config/configstore/firebase-tools.json
"""
_OTHER_AGENTS = """
.codex/auth.json .claude/.credentials.json .claude.json .gemini/*creds*.json .qwen/*creds*.json
.gemini/google_accounts.json .config/github-copilot/** .copilot/config.json .codeium/config.json
opencode/**/*auth*.json .continue/config.* .config/goose/secrets.yaml
.config/io.datasette.llm/keys.json .aider.conf.yml {.cache/,.}huggingface/{token,stored_tokens}
.config/shepherd/keys* .config/shepherd/credentials* .factory/auth.* .pi/agent/auth.json
.config/{op,1Password,Bitwarden}/**
"""
_HISTORIES = """
.*_history .*_hist .zhistory .histfile .history .Rhistory fish_history .dbshell .mongosh/**
.lesshst .viminfo shada/** .local/{state,share}/*/history .local/{state,share}/*_history
ConsoleHost_history.txt .{bash,zsh}_sessions/** .ipython/**/history.sqlite .local/share/atuin/**
.local/share/jupyter/runtime/**
"""
_BROWSERS = """
cookies.sqlite key[34].db logins.json signons.sqlite Login?Data* Web?Data
{Default,Network,Profile*}/Cookies .mozilla/** .thunderbird/**
.config/{google-chrome*,chromium,BraveSoftware,microsoft-edge*,vivaldi,opera}/**
Cookies.binarycookies Library/{Cookies,Safari}/**
Library/Application?Support/{Google/Chrome,Firefox,BraveSoftware}/**
"""
_PUBLIC = """
{.env,*.env,*.tfvars,credentials.json,secrets.yml,secrets.yaml,secrets.toml}.{example,sample,template,dist}
.env.*.{example,sample,template,dist} {example,sample,template}.{env,tfvars} .env.defaults
"""
_SYSTEM = """
/etc/{shadow,gshadow,sudoers}{,-} /etc/sudoers.d/** /etc/security/opasswd /etc/krb5.keytab
/etc/ssl/private/** /etc/pki/**/private/** /etc/letsencrypt/{accounts,archive,keys,live}/**
/etc/{openvpn,wireguard,kubernetes}/** /etc/rancher/** /etc/NetworkManager/system-connections/**
/run/secrets/** /tmp/krb5cc* /proc/kcore /proc/*/{environ,mem,auxv}
/proc/*/task/*/{environ,mem,auxv} /dev/{mem,kmem,port}
"""
_SECRET_NAMES = (_ENVIRONMENT, _KEYS, _ACCOUNTS, _CLOUDS, _OTHER_AGENTS, _HISTORIES, _BROWSERS)

SECRET_PATHS = [
    f"/**/{name}" for names in _SECRET_NAMES for name in names.split()
] + _SYSTEM.split()
PUBLIC_PATHS = [f"/**/{name}" for name in _PUBLIC.split()]
PUBLIC_KEYS = "/**/*.pub"

_SUFFIX = re.compile(
    r"(?:~|[0-9]+|\([0-9]+\)|[-._ ]\(?(?:bak|back|backup|old|orig|original|save|saved|copy|copies"
    r"|tmp|temp|prev|previous|last|disabled|sw[a-px]|rpm(?:save|new|orig)|(?:dpkg|ucf)-[a-z]+|bk|bkp"
    r"|[0-9][-0-9_.:TZ]*|gz|bz2|xz|zst|lz4|zip|tar|tgz|7z|txt|b64|base64)[0-9]*\)?| - copy)\Z",
    re.IGNORECASE,
)
_PREFIX = re.compile(
    r"\A(?:#(?=.*#\Z)|\.#|copy of |(?:bak|backup|old|orig|copy)[-._ ])", re.IGNORECASE
)


def original_names(path: str) -> list[str]:
    """The paths that `path` may copy, judged by the names of backups, swap files and archives."""
    originals: list[str] = []
    while True:
        parts = path.split("/")
        shorter = "/".join(map(_without_ending, parts))
        if shorter == path:  # no part of it ends like a copy any more
            return originals
        path = shorter
        originals += [path, *_swapped(parts, path)]


def _without_ending(name: str) -> str:
    """`.env` for `.env.bak`, `#.env#` or `copy of .env`; the name itself if it is no copy."""
    if beginning := _PREFIX.match(name):
        name = name[beginning.end() :].removesuffix("#") or name
    ending = _SUFFIX.search(name)
    # a name that is nothing but an ending stays
    return name[: ending.start()] if ending and ending.start() else name


def _swapped(parts: list[str], path: str) -> list[str]:
    """The original name of a Vim swap file, which has a dot before the name."""
    if not parts[-1].startswith("."):
        return []
    head, _, name = path.rpartition("/")
    return [f"{head}/{name[1:]}"] if name[1:] else []
