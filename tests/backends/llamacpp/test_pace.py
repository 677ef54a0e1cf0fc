from shepherd.backends.llamacpp.scheduling.shares import FIRST, LEAST, LEAST_BESIDE, PrefillPace

BATCH = 512


def test_the_first_chunk_is_careful() -> None:
    assert PrefillPace(BATCH).limit(BATCH, beside_others=False) == FIRST
    assert PrefillPace(64).limit(64, beside_others=False) == 64


def test_a_fast_model_fills_the_batch_but_leaves_others_their_share() -> None:
    pace = PrefillPace(BATCH)
    pace.note(128, 0.01)
    assert pace.limit(BATCH, beside_others=False) == BATCH
    assert pace.limit(BATCH - 3, beside_others=False) == BATCH - 3
    assert pace.limit(BATCH - 3, beside_others=True) == BATCH // 4


def test_a_slow_model_gets_short_chunks() -> None:
    pace = PrefillPace(BATCH)
    pace.note(64, 0.128)
    assert pace.limit(BATCH, beside_others=False) == 60
    assert pace.limit(BATCH, beside_others=True) == 40
    assert pace.limit(BATCH, beside_others=False, prompts=2) == 40
    assert pace.limit(5, beside_others=True) == 5
    for _ in range(10):
        pace.note(64, 64.0)
    assert pace.limit(BATCH, beside_others=False) == LEAST
    assert pace.limit(BATCH, beside_others=True) == LEAST_BESIDE


def test_small_steps_teach_nothing() -> None:
    pace = PrefillPace(BATCH)
    pace.note(4, 10.0)
    pace.note(64, 0.0)
    assert pace.limit(BATCH, beside_others=False) == FIRST


def test_there_is_always_some_progress() -> None:
    assert PrefillPace(1).limit(1, beside_others=True) == 1
