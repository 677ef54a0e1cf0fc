from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.sampling import Sampling


def new_job(*stop: str) -> Job:
    return Job(1, [1], Sampling(stop=stop), receive=lambda update: None)


def shown(job: Job, data: bytes, cuts: list[int]) -> list[str]:
    ends = sorted(c % (len(data) + 1) for c in cuts)
    pieces = [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]
    return [*(job.decode_text(piece) for piece in pieces), job.decode_text(b"", last=True)]


@given(text=st.text(max_size=40), cuts=st.lists(st.integers(0, 200), max_size=12))
def test_text_is_whole_however_its_bytes_are_cut(text: str, cuts: list[int]) -> None:
    parts = shown(new_job(), text.encode("utf-8", "replace"), cuts)
    assert "".join(parts) == text.encode("utf-8", "replace").decode()
    if text.isprintable():
        assert all("\ufffd" not in part for part in parts) or "\ufffd" in text


@given(data=st.binary(max_size=40), cuts=st.lists(st.integers(0, 200), max_size=12))
def test_bytes_that_are_no_text_are_replaced_the_same_way(data: bytes, cuts: list[int]) -> None:
    assert "".join(shown(new_job(), data, cuts)) == data.decode("utf-8", "replace")


@given(
    before=st.text("ab🙂", max_size=10),
    after=st.text("ab🙂S", max_size=10),
    cuts=st.lists(st.integers(0, 200), max_size=12),
)
def test_a_stop_string_is_found_across_pieces(before: str, after: str, cuts: list[int]) -> None:
    job = new_job("STOP")
    assert "".join(shown(job, f"{before}STOP{after}".encode(), cuts)) == before
    assert job.stop.hit == "STOP"
