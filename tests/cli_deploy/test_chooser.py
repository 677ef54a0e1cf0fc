"""The choice of replicas for requests."""

from shepherd.affinity import Balance, Prefix, body_prefix
from shepherd.cli.deploy.chooser import WAY_SECONDS, ReplicaChooser

IDLE = {"a": 0, "b": 0, "c": 0}


def prefix(name: str, turns: int = 1) -> Prefix:
    """The prompt of a conversation after some turns."""
    texts = [name, *(f"turn {turn}" for turn in range(turns))]
    return body_prefix({"messages": [{"role": "user", "content": text} for text in texts]})


def chooser(factor: float = 1.5, slack: float = 2.0) -> ReplicaChooser:
    return ReplicaChooser(Balance(factor, slack))


def test_a_conversation_stays_with_its_replica() -> None:
    chosen = chooser()
    homes: dict[str, set[str]] = {name: set() for name in "uvwxyz"}
    for turn in range(5):
        for name, replicas in homes.items():
            best = chosen.rank(name, prefix(name, turn), IDLE)[0]
            chosen.note_sent(name, prefix(name, turn), best)
            chosen.note_end(best)
            replicas.add(best)
    assert all(len(replicas) == 1 for replicas in homes.values())
    assert len(set[str]().union(*homes.values())) > 1


def test_requests_that_come_together_are_spread() -> None:
    """A request counts from its choice on, not only once it was sent."""
    chosen = chooser()
    best = [chosen.rank(f"{n}", prefix(f"{n}"), IDLE)[0] for n in range(9)]
    assert sorted(best.count(name) for name in IDLE) == [3, 3, 3]


def test_a_request_that_is_tried_again_counts_once() -> None:
    chosen = chooser()
    for _ in range(9):
        chosen.rank("same", prefix("same"), IDLE)
    best = {chosen.rank(f"{n}", prefix(f"{n}"), IDLE)[0] for n in range(2)}
    assert best == set(IDLE) - {chosen.rank("same", prefix("same"), IDLE)[0]}


def test_a_request_that_was_given_up_counts_no_more() -> None:
    now = 0.0
    chosen = ReplicaChooser(Balance(1.5, 2.0), lambda: now)
    home = chosen.rank("first", prefix("same"), IDLE)[0]
    assert chosen.rank("second", prefix("same"), IDLE)[0] != home
    now = WAY_SECONDS + 1
    assert chosen.rank("third", prefix("same"), IDLE)[0] == home


def test_a_busy_replica_is_left_and_found_again() -> None:
    chosen = chooser(1.0, 1.0)
    home = chosen.rank("1", prefix("x"), IDLE)[0]
    chosen.note_sent("1", prefix("x"), home)
    assert chosen.rank("2", prefix("x", 2), IDLE | {home: 5})[0] != home
    assert chosen.rank("2", prefix("x", 2), IDLE | {home: 1})[0] == home


def test_all_replicas_are_ranked() -> None:
    ranked = chooser().rank("1", Prefix(), {"a": 3, "b": 1, "c": 2})
    assert ranked == ["b", "c", "a"]


def test_the_requests_sent_from_here_count_where_ray_knows_of_none() -> None:
    chosen = chooser()
    for number in range(3):
        chosen.note_sent(f"{number}", Prefix(), "a")
    assert chosen.rank("x", Prefix(), IDLE)[-1] == "a"
    for _ in range(5):
        chosen.note_end("a")
    chosen.note_sent("y", Prefix(), "b")
    assert chosen.rank("z", Prefix(), IDLE)[-1] == "b"


def test_a_forgotten_replica_is_not_preferred() -> None:
    chosen = chooser()
    home = chosen.rank("1", prefix("x"), IDLE)[0]
    chosen.note_sent("1", prefix("x"), home)
    chosen.forget(home)
    others = {name: 0 for name in IDLE if name != home}
    assert set(chosen.rank("2", prefix("x", 2), others)) == set(others)
