from shepherd.backends.llamacpp.scheduling.shares import (
    INITIAL_CHUNK,
    MIN_CHUNK,
    MIN_SHARED_CHUNK,
    PrefillPace,
)

BATCH = 512


def test_the_first_chunk_is_careful() -> None:
    assert PrefillPace(BATCH).limit(BATCH, is_shared=False) == INITIAL_CHUNK
    assert PrefillPace(64).limit(64, is_shared=False) == 64


def test_a_fast_model_fills_the_batch_but_leaves_others_their_share() -> None:
    pace = PrefillPace(BATCH)
    pace.note(128, 0.01)
    assert pace.limit(BATCH, is_shared=False) == BATCH
    assert pace.limit(BATCH - 3, is_shared=False) == BATCH - 3
    assert pace.limit(BATCH - 3, is_shared=True) == BATCH // 4


def test_a_slow_model_gets_short_chunks() -> None:
    pace = PrefillPace(BATCH)
    pace.note(64, 0.128)
    assert pace.limit(BATCH, is_shared=False) == 60
    assert pace.limit(BATCH, is_shared=True) == 40
    assert pace.limit(BATCH, is_shared=False, prompts=2) == 40
    assert pace.limit(5, is_shared=True) == 5
    for _ in range(10):
        pace.note(64, 64.0)
    assert pace.limit(BATCH, is_shared=False) == MIN_CHUNK
    assert pace.limit(BATCH, is_shared=True) == MIN_SHARED_CHUNK


def test_small_steps_teach_nothing() -> None:
    pace = PrefillPace(BATCH)
    pace.note(4, 10.0)
    pace.note(64, 0.0)
    assert pace.limit(BATCH, is_shared=False) == INITIAL_CHUNK


def test_there_is_always_some_progress() -> None:
    assert PrefillPace(1).limit(1, is_shared=True) == 1
