"""The companion's model in PyTorch against llama.cpp, and its training; needs torch."""

from pathlib import Path

import pytest

from shepherd.backends.llamacpp.native.model import Adapter
from tests.backends.llamacpp import tiny
from tests.training.test_companion import PROMPT, logits

torch = pytest.importorskip("torch", reason="only training needs it")

from training.companion.model import Llama  # noqa: E402 - after the check for torch
from training.companion.train import ALPHA, RANK, Row, Trainer  # noqa: E402

SIZE = len(PROMPT)
PLAIN = Row(PROMPT, list(range(SIZE)), [0] * SIZE, [0, 0, 0, 1, 1, 1])
BRANCHED = Row(
    [*PROMPT[:3], 70, 71, *PROMPT[3:]],
    [0, 1, 2, 3, 4, 3, 4, 5],
    [0, 0, 0, 1, 1, 2, 2, 2],
    [0, 0, 0, 1, 1, 0, 0, 0],
)


@pytest.fixture
def trainer(llama: Path, tmp_path: Path) -> Trainer:
    torch.manual_seed(0)
    return Trainer(Llama(llama, RANK, ALPHA, torch.float32), tmp_path, 1e-2)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_llama(tmp_path_factory.mktemp("llama") / "model.gguf")


def hidden(trainer: Trainer, row: Row) -> "torch.Tensor":
    with torch.no_grad():
        return trainer.model.hidden(
            torch.tensor(row.tokens), torch.tensor(row.positions), row.mask()
        )


def test_the_model_computes_what_llama_cpp_computes(trainer: Trainer, llama: Path) -> None:
    found = trainer.model.logits(hidden(trainer, PLAIN))[-1]
    assert found.tolist() == pytest.approx(logits(llama), abs=2e-2)


def test_a_branch_sees_the_beginning_and_itself(trainer: Trainer) -> None:
    alone, among = hidden(trainer, PLAIN), hidden(trainer, BRANCHED)
    assert torch.allclose(alone[3:], among[5:], atol=1e-4)


def test_the_first_token_of_a_branch_is_predicted_by_the_beginning() -> None:
    index, wanted = PLAIN.targets()
    assert (index.tolist(), wanted.tolist()) == ([2, 3, 4], PROMPT[3:])


def test_training_lowers_the_loss_and_llama_cpp_agrees(trainer: Trainer, llama: Path) -> None:
    before = trainer.held_out([PLAIN])
    for _ in range(20):
        trainer.one([PLAIN], 1000)
    assert trainer.held_out([PLAIN]) < before / 2
    trainer.save()
    found = trainer.model.logits(hidden(trainer, PLAIN))[-1]
    exported = logits(llama, Adapter(trainer.run / "adapter.gguf"))
    assert found.tolist() == pytest.approx(exported, abs=5e-2)


def test_training_goes_on_from_the_checkpoint(trainer: Trainer, llama: Path) -> None:
    trainer.one([PLAIN], 1000)
    trainer.save()
    trainer.one([BRANCHED], 1000)
    again = Trainer(Llama(llama, RANK, ALPHA, torch.float32), trainer.run, 1e-2)
    again.load()
    assert again.step == 1
    again.one([BRANCHED], 1000)
    assert again.held_out([PLAIN]) == pytest.approx(trainer.held_out([PLAIN]))
