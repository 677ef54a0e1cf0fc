"""Images of models that run here, with projectors of random weights."""

import asyncio
import threading
from array import array
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from shepherd.backends.base import Generation
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.cache.prefixes import runs
from shepherd.backends.llamacpp.native.bindings import reads_images
from shepherd.backends.llamacpp.prefilled import LlamaPrefilled
from shepherd.backends.llamacpp.vision.encoder import ImageEncoder
from shepherd.backends.llamacpp.vision.parts import NativeProjector
from shepherd.errors import ContextFullError, ImageError
from shepherd.images import Image
from shepherd.messages import Message, ToolCall
from shepherd.sampling import Sampling
from shepherd.session import Session
from tests.backends.llamacpp import projectors, tiny
from tests.backends.llamacpp.projectors import IMAGE_TOKENS
from tests.backends.llamacpp.support import EXACT, LONG, Recorder, loaded
from tests.backends.llamacpp.vision_reference import first_logprobs
from tests.patience import PATIENCE
from tests.pictures import jpeg, picture, webp

pytestmark = pytest.mark.skipif(
    not reads_images(), reason="llama.cpp was built without images; see docs/images.md"
)

CAT = picture("cat.png", 40, 30, grey=20)
DOG = picture("dog.png", 40, 30, grey=220)
WATCHED = Sampling(temperature=0.0, logprobs=8)
CALL = ToolCall("call00000", "look", {})


@dataclass(frozen=True)
class Kind:
    """A model that sees: how it and its projector are written."""

    model: Callable[..., Path]
    projector: Callable[..., Path]

    def write(self, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        self.projector(folder / "mmproj-tiny.gguf")
        return self.model(folder / "tiny.gguf", context=1024)


KINDS = {
    "llama": Kind(tiny.write_llama, projectors.write_gemma_projector),
    "window": Kind(partial(tiny.write_gemma, window=64), projectors.write_gemma_projector),
    "state": Kind(tiny.write_mamba, projectors.write_gemma_projector),
    "mrope": Kind(tiny.write_qwen, projectors.write_qwen_projector),
}


@pytest.fixture(scope="module", params=list(KINDS))
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KINDS[request.param].write(tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama_seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KINDS["llama"].write(tmp_path_factory.mktemp("seeing"))


@asynccontextmanager
async def sighted(path: Path, **values: Any) -> AsyncGenerator[LlamaCppBackend]:
    async with loaded(path, **{**EXACT, **values}) as backend:
        assert backend.info.vision is True
        yield backend


def encoder(backend: LlamaCppBackend) -> ImageEncoder:
    images = backend._images  # pyright: ignore[reportPrivateUsage] - counts what was encoded
    assert images is not None
    return images


@dataclass(frozen=True)
class Result:
    """An answer's start: what the model saw, what was cached, the probabilities of tokens."""

    prompt: int
    cached: int
    probabilities: list[float]
    text: str


async def answer(backend: LlamaCppBackend, session: Session, tokens: int = 3) -> Result:
    session = replace(session, sampling=WATCHED)
    async with await backend.prefill_session(session, Recorder()) as prefilled:
        generation: Generation = await backend.generate_from_prefilled(
            prefilled, Recorder(), tokens
        )
        measured = [p.logprob for entry in prefilled.logprobs or () for p in entry.top]
        text = generation.message.content
        return Result(prefilled.prompt_tokens, prefilled.cached_tokens, measured, text)


def shown(text: str, *images: Image, before: str = "") -> Session:
    earlier = [Message.user(before), Message.assistant("Yes.")] if before else []
    return Session(messages=[*earlier, Message.user(text, images)])


def same(a: Result, b: Result) -> bool:
    return a.prompt == b.prompt and a.probabilities == pytest.approx(b.probabilities, abs=2e-3)


async def test_an_image_is_read_once_and_another_one_is_not_taken_for_it(seeing: Path) -> None:
    async with sighted(seeing) as backend:
        cold = await answer(backend, shown("What?", CAT))
        warm = await answer(backend, shown("What?", CAT))
        other = await answer(backend, shown("What?", DOG))
        assert cold.prompt - warm.cached <= 16
        assert other.cached < warm.cached - 2 * IMAGE_TOKENS // 3
        assert encoder(backend).encoded == 2
        again = await answer(backend, shown("What?", CAT))
        assert encoder(backend).encoded == 2, "its embeddings are kept"
    assert same(cold, warm)
    assert same(cold, again)
    assert not same(cold, other)


async def test_warm_equals_cold_equals_restarted(seeing: Path, tmp_path: Path) -> None:
    session = shown("What is this?", CAT, before=LONG[:270])
    session.add(Message.assistant("A cat."))
    session.add(Message.user("And these?", (DOG, CAT)))
    later = replace(session, messages=[*session.messages])
    later.add(Message.assistant("Two."))
    later.add(Message.user("Sure?"))
    async with sighted(seeing) as backend:
        cold = await answer(backend, later)
    async with sighted(seeing, cache=tmp_path) as backend:
        await answer(backend, session)
        warm = await answer(backend, later)
    async with sighted(seeing, cache=tmp_path) as backend:
        restarted = await answer(backend, later)
        assert encoder(backend).encoded == 0, "nothing was computed again"
    assert cold.cached == 0
    assert warm.cached > cold.prompt // 2
    assert restarted.cached > cold.prompt // 2
    assert same(cold, warm)
    assert same(cold, restarted)


async def test_two_images_stand_in_their_order(seeing: Path) -> None:
    async with sighted(seeing) as backend:
        first = await answer(backend, shown("Which?", CAT, DOG))
        swapped = await answer(backend, shown("Which?", DOG, CAT))
        assert encoder(backend).encoded == 2
        assert swapped.cached < first.prompt // 2
        assert not same(first, swapped)
        session = shown("Which?", CAT, DOG)
        size = await backend.count_session_tokens(session)
        assert size == first.prompt
        alone = await backend.count_message_tokens(session, Message.user("Which?"))
        added = await backend.count_message_tokens(session, session.messages[0]) - alone
        assert added >= size - await backend.count_session_tokens(shown("Which?")) - 8 > 0


async def test_an_image_is_decoded_in_chunks_as_at_once(tmp_path: Path) -> None:
    model = KINDS["mrope"].write(tmp_path)
    large = picture("large.png", 96, 64)
    results: list[Result] = []
    for size in (256, 8):
        async with sighted(model, n_batch=size, ubatch=size) as backend:
            results.append(await answer(backend, shown("What?", large)))
    assert results[0].prompt > 90
    assert same(*results)


@pytest.mark.parametrize("kind", ["mrope", "causal"])
async def test_a_cancel_inside_an_image_leaves_no_part_of_it(kind: str, tmp_path: Path) -> None:
    if kind == "mrope":
        model = KINDS["mrope"].write(tmp_path)
    else:
        projectors.write_qwen_projector(tmp_path / "mmproj-tiny.gguf")
        model = tiny.write_llama(tmp_path / "tiny.gguf", context=1024)
    session = shown("What?", picture("large.png", 96, 64))
    async with sighted(model, n_batch=8, ubatch=8) as backend:
        cancelled: list[bool] = []
        for stop in (4, 7, 9, 12):
            async with await backend.prefill_session(session, Recorder(stop)) as stopped:
                assert isinstance(stopped, LlamaPrefilled)
                cancelled.append(stopped.cancelled)
        assert any(cancelled)  # a late one may come after the last step
        warm = await answer(backend, session)
        assert encoder(backend).encoded == 1
    async with sighted(model) as backend:
        assert same(warm, await answer(backend, session))


async def test_the_engine_computes_what_llama_cpp_computes(seeing: Path) -> None:
    """The positions, the mask and the order are those of llama.cpp's own helper."""
    async with sighted(seeing) as backend:
        session = replace(shown("What?", CAT), sampling=WATCHED)
        async with await backend.prefill_session(session, Recorder()) as prefilled:
            assert isinstance(prefilled, LlamaPrefilled)
            tokens = prefilled.prompt.tokens
            await backend.generate_from_prefilled(prefilled, Recorder(), 1)
            computed = [p.logprob for p in (prefilled.logprobs or [])[0].top]
        ((start, end),) = runs(tokens)
        projector = encoder(backend).path
    expected = first_logprobs(seeing, projector, tokens[:start], CAT, tokens[end:])
    assert computed == pytest.approx(sorted(expected, reverse=True)[:8], abs=2e-3)


async def test_images_of_tool_results_are_seen(llama_seeing: Path) -> None:
    result = replace(Message.tool(CALL, "a photo"), images=(CAT,))
    asked = [Message.user("Look."), Message.assistant("", tool_calls=(CALL,))]
    async with sighted(llama_seeing) as backend:
        seen = await answer(backend, Session(messages=[*asked, result]))
        blind = await answer(backend, Session(messages=[*asked, replace(result, images=())]))
    assert seen.prompt >= blind.prompt + IMAGE_TOKENS


async def test_no_text_can_pass_for_an_image(llama_seeing: Path) -> None:
    async with sighted(llama_seeing) as backend:
        plain = await answer(backend, shown("\ufdd2 <__media__> <|image_1|> \ufdd2", CAT))
        assert plain.prompt > IMAGE_TOKENS
        assert encoder(backend).encoded == 1


async def test_a_bad_image_is_refused_before_anything_is_lost(llama_seeing: Path) -> None:
    cut = Image("image/png", CAT.data[:-30], "cut.png")
    huge = picture("huge.png", 3, 2)
    header = huge.data[:16] + (100_000).to_bytes(4, "big") * 2 + huge.data[24:]
    async with sighted(llama_seeing) as backend:
        good = await answer(backend, shown("What?", CAT))
        for image, reason in (
            (cut, "cut.png is damaged"),
            (Image("image/jpeg", jpeg(), "j.jpg"), "j.jpg is damaged"),
            (Image("image/webp", webp(), "w.webp"), "w.webp is WEBP.*convert it to PNG or JPEG"),
            (Image("image/png", header, "huge.png"), "huge.png has 100000×100000 pixels"),
        ):
            with pytest.raises(ImageError, match=reason):
                await answer(backend, shown("What?", CAT, image))
        again = await answer(backend, shown("What?", CAT))
        assert again.cached > IMAGE_TOKENS
        assert same(good, again)


async def test_an_earlier_image_that_can_not_be_read_is_text(llama_seeing: Path) -> None:
    """A provider may have seen a WebP before the model was changed."""
    unreadable = Image("image/webp", webp(), "w.webp")
    session = Session(
        messages=[
            Message.user("What?", (unreadable, CAT)),
            Message.assistant("A cat."),
            Message.user("Sure?", (DOG,)),
        ]
    )
    async with sighted(llama_seeing) as backend:
        assert (await answer(backend, session)).prompt > 2 * IMAGE_TOKENS
        assert encoder(backend).encoded == 2
        newer = Session(messages=[*session.messages[:2], Message.user("Sure?", (unreadable,))])
        with pytest.raises(ImageError):
            await answer(backend, newer)


async def test_an_image_of_an_odd_shape_is_refused_not_fatal(tmp_path: Path) -> None:
    async with sighted(KINDS["mrope"].write(tmp_path)) as backend:
        with pytest.raises(ImageError, match=r"line.png can't be divided"):
            await answer(backend, shown("What?", picture("line.png", 60_000, 1)))
        for width, height in ((1, 1), (1, 900), (900, 1)):
            odd = picture("odd.png", width, height)
            assert (await answer(backend, shown("What?", odd))).prompt > 0


async def test_an_image_beyond_the_context_is_too_long(llama_seeing: Path) -> None:
    async with sighted(llama_seeing, context_size=256) as backend:
        many = [replace(CAT, data=picture(grey=grey).data) for grey in range(16)]
        with pytest.raises(ContextFullError, match="exceeds the available context"):
            await answer(backend, shown("What?", *many))
        assert encoder(backend).encoded == 0
        assert (await answer(backend, shown("What?", CAT))).cached == 0


async def test_a_mask_over_an_image_needs_room_for_all_of_it(llama_seeing: Path) -> None:
    async with sighted(llama_seeing, n_batch=8, ubatch=8) as backend:
        with pytest.raises(ImageError, match=r"takes 16 tokens.*Set llamacpp.ubatch"):
            await answer(backend, shown("What?", CAT))


async def test_a_projector_without_use_leaves_images_refused(llama_seeing: Path) -> None:
    async with loaded(llama_seeing, projector="none") as backend:
        assert backend.info.vision is False
        with pytest.raises(ImageError, match="can't see images"):
            await answer(backend, shown("What?", CAT))


class Gate:
    """Holds the encoder back until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()
        original = NativeProjector.embeddings

        def embeddings(projector: NativeProjector, image: Image) -> "list[array[float]]":
            self.reached.set()
            assert self._open.wait(PATIENCE)
            return original(projector, image)

        monkeypatch.setattr(NativeProjector, "embeddings", embeddings)

    def open(self) -> None:
        self._open.set()


async def test_others_go_on_while_an_image_is_encoded_and_it_can_be_cancelled(
    llama_seeing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    try:
        async with sighted(llama_seeing, parallel=2) as backend:
            await backend.count_session_tokens(shown("What?", DOG))  # its tokens are known
            seen = asyncio.create_task(answer(backend, shown("What?", CAT)))
            assert await asyncio.to_thread(gate.reached.wait, PATIENCE)
            text = await answer(backend, shown("Hello?"))
            assert text.prompt > 0
            waiting = asyncio.create_task(answer(backend, shown("What?", DOG)))
            while backend.running < 2:
                await asyncio.sleep(0.01)
            for task in (seen, waiting):
                task.cancel()
            await asyncio.gather(seen, waiting, return_exceptions=True)
            assert (await answer(backend, shown("Hello again?"))).prompt > 0
            gate.open()
            again = await answer(backend, shown("What?", CAT))
            assert encoder(backend).encoded == 1, "only the running one of both"
            assert again.prompt > IMAGE_TOKENS
    finally:
        gate.open()


async def test_a_failed_encoding_ends_only_its_request(
    llama_seeing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(projector: NativeProjector, image: Image) -> "list[array[float]]":
        raise MemoryError

    async with sighted(llama_seeing) as backend:
        with monkeypatch.context() as broken:
            broken.setattr(NativeProjector, "embeddings", fail)
            with pytest.raises(Exception, match="can't be encoded"):
                await answer(backend, shown("What?", CAT))
        assert (await answer(backend, shown("What?", CAT))).prompt > IMAGE_TOKENS


async def test_images_of_many_conversations_do_not_mix(seeing: Path) -> None:
    """Requests run beside each other, lose their place, and go on, as if each were alone."""
    random = Random(7)
    images = [picture(f"{n}.png", 40, 24 + 8 * (n % 3), grey=60 * n) for n in range(4)]
    talks: list[list[Message]] = [[] for _ in range(4)]
    async with (
        sighted(seeing, parallel=2, context_size=768, cache_ram_mib=8) as backend,
        sighted(seeing, cache_ram_mib=0) as alone,
    ):
        for _ in range(8):
            chosen = random.sample(talks, 2)
            for talk in chosen:
                if len(talk) > 4:
                    talk.clear()
                seen = random.sample(images, random.randrange(3))
                talk.append(Message.user(random.choice(["What?", "And?"]), tuple(seen)))
            together = [answer(backend, Session(messages=[*talk]), 2) for talk in chosen]
            results = await asyncio.gather(*together)
            for talk, result in zip(chosen, results, strict=True):
                await answer(alone, shown("Forget it."), 1)
                cold = await answer(alone, Session(messages=[*talk]), 2)
                assert cold.cached < IMAGE_TOKENS + 16
                assert same(result, cold)
                talk.append(Message.assistant("Yes."))
        assert encoder(backend).encoded <= len(images)
        assert sum(tier.hits for tier in backend.status.cache_tiers) > 3


async def test_an_image_moves_up_after_an_eviction(tmp_path: Path) -> None:
    """One layer deep, tokens that move to other positions are exact."""
    projectors.write_gemma_projector(tmp_path / "mmproj.gguf")
    model = tiny.write_llama(tmp_path / "single.gguf", context=1024, layers=1)
    begin = [Message.user("Begin here, please."), Message.assistant("Yes.")]
    old = [Message.user("Forget this one. " * 4), Message.assistant("Yes, yes.")]
    rest = [Message.user("What?", (CAT,)), Message.assistant("A cat."), Message.user("Sure?")]
    async with sighted(model, reuse_after_eviction=True) as backend:
        await answer(backend, Session(messages=[*begin, *old, *rest]))
        moved = await answer(backend, Session(messages=[*begin, *rest]))
        assert encoder(backend).encoded == 1
    async with sighted(model) as backend:
        cold = await answer(backend, Session(messages=[*begin, *rest]))
    assert moved.cached > moved.prompt - IMAGE_TOKENS
    assert same(moved, cold)
