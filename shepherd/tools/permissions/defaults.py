"""The rules that hold before anybody has said anything."""

from shepherd.tools.permissions.rules import Decision, Rule, parse_rule

_DEFAULTS = """
ask read /**
allow read {cwd}/**
ask write /**
ask shell *
ask network *
allow environment *
"""
_SECRET_VARIABLES = (
    "*KEY* *TOKEN* *SECRET* *PASSWORD* *CREDENTIAL* *PASSWD* *PASSPHRASE* *_PASS *AUTH* *COOKIE* "
    "*DATABASE_URL* *_DSN"
)
_SECRET_PATHS = """
.env .env.* .envrc id_rsa id_dsa id_ecdsa id_ed25519 id_ecdsa_sk id_ed25519_sk *.pem *.key *.p12
*.pfx *.jks *.keystore *.kdbx *.keychain *.keychain-db *.ppk *.keyring .netrc _netrc .pgpass
.my.cnf .git-credentials .npmrc .pypirc .htpasswd .vault-token
.ssh/** .gnupg/** .password-store/** keyrings/**
.aws/credentials .kube/config .docker/config.json .config/gh/hosts.yml .config/gcloud/**
.config/shepherd/keys* .config/shepherd/credentials*
"""
_PUBLIC_PATHS = ".env.example .env.sample .env.template .env.dist"
_PROCESS_PATHS = (
    "/proc/*/environ /proc/*/mem /proc/*/auxv /proc/*/task/*/environ /proc/*/task/*/mem"
)
_OWN_SETTINGS = ".config/shepherd/**"


def default_rules() -> list[Rule]:
    """What is allowed and what asks, from the widest to the narrowest."""
    rules = [parse_rule(line) for line in _DEFAULTS.split("\n") if line]
    return rules + [Rule("environment", name, Decision.ASK) for name in _SECRET_VARIABLES.split()]


def edits_rules() -> list[Rule]:
    """What `--approve edits` adds: files inside the working directory may be changed."""
    return [
        Rule("write_file", "{cwd}/**", Decision.ALLOW),
        Rule("edit_file", "{cwd}/**", Decision.ALLOW),
        Rule("write", "{cwd}/**/.git/**", Decision.ASK),
        Rule("write", "{cwd}/.shepherd.toml", Decision.ASK),
    ]


def protected_rules() -> list[Rule]:
    """Secrets; only a user's rule that names such a file can allow it."""
    rules: list[Rule] = []
    for kind in ("read", "write"):
        rules += [Rule(kind, f"/**/{path}", Decision.DENY) for path in _SECRET_PATHS.split()]
        rules += [Rule(kind, f"/**/{path}", Decision.ALLOW) for path in _PUBLIC_PATHS.split()]
        rules += [Rule(kind, path, Decision.DENY) for path in _PROCESS_PATHS.split()]
    rules.append(Rule("write", f"/**/{_OWN_SETTINGS}", Decision.DENY))
    return rules
