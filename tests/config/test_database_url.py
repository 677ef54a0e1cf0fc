"""The URL of the database: no password is in it, and none is repeated."""

import pytest

from shepherd.config.load import load_config, show_config
from shepherd.errors import ConfigError
from shepherd.validation import check_database_url
from tests.config.places import Places

GOOD = [
    "postgresql://me@db.example:5432/shepherd",
    "postgres://db.example/shepherd?sslmode=verify-full",
    "postgresql:///shepherd?host=/run/postgresql&user=me",
    "postgresql://me@[::1],other:5433/shepherd",
    "postgresql://me%40here@db/shepherd",
]
SECRETS = [
    "postgresql://me:hunter2@db/shepherd",
    "postgresql://:hunter2@db/shepherd",
    "postgresql://me:hun@hunter2@db/shepherd",
    "postgresql://me:a/hunter2@db/shepherd",
    "postgresql://me:a?hunter2@db/shepherd",
    "postgresql://me:a#hunter2@db/shepherd",
    "postgresql://me@db/shepherd?password=hunter2",
    "postgresql://me@db/shepherd?%70assword=hunter2",
    "postgresql://me@db/shepherd?sslpassword=hunter2",
    "mysql://me:hunter2@db/shepherd",
    "me:hunter2@db",
    "host=db password=hunter2",
    "postgresql://me:hunter2@[db/shepherd",
]


@pytest.mark.parametrize("url", GOOD)
def test_urls_of_libpq_are_accepted(url: str) -> None:
    check_database_url(url)


@pytest.mark.parametrize("url", SECRETS)
@pytest.mark.parametrize("layer", ["file", "variable", "flag"])
def test_a_password_is_refused_and_not_repeated(places: Places, url: str, layer: str) -> None:
    env = {"HOME": str(places.home)}
    flags: dict[str, object] = {}
    if layer == "file":
        places.user_file.parent.mkdir(parents=True, exist_ok=True)
        places.user_file.write_text(f"[server]\ndatabase = '{url}'\n")
    elif layer == "variable":
        env["SHEPHERD_SERVER__DATABASE"] = url
    else:
        flags["server.database"] = url
    with pytest.raises(ConfigError, match=r"server\.database") as caught:
        load_config(places.home, env, flags)
    assert "hunter2" not in str(caught.value)


def test_the_place_of_the_password_is_not_the_password(places: Places) -> None:
    env = {"HOME": str(places.home), "SHEPHERD_SERVER__DATABASE_PASSWORD": "hunter2"}
    with pytest.raises(ConfigError, match="place of the password") as caught:
        load_config(places.home, env)
    assert "hunter2" not in str(caught.value)
    env["SHEPHERD_SERVER__DATABASE_PASSWORD"] = "env:PG"
    assert 'database_password = "env:PG"' in show_config(load_config(places.home, env), ["server"])
