"""Averages models of one run: `python -m training.average A.gguf B.gguf … --out OUT.gguf`.

What each of them learnt last by chance cancels out; on held-out phrasings the average of two is
better than either (see the model card).
"""

import argparse
import shutil
from pathlib import Path

import gguf
import numpy as np
from gguf import quants

from training.export import OUT


def average(models: list[Path], out: Path) -> None:
    """Writes the mean of the models' weights in the types of the first one, whose data it takes."""
    shutil.copyfile(models[0], out)
    known = [{t.name: t for t in gguf.GGUFReader(model).tensors} for model in models]
    for tensor in gguf.GGUFReader(out, "r+").tensors:
        mean = np.mean([_values(tensors[tensor.name]) for tensors in known], axis=0)
        packed = quants.quantize(mean.astype(np.float32), tensor.tensor_type)
        tensor.data[:] = packed.reshape(tensor.data.shape)


def _values(tensor: gguf.ReaderTensor) -> np.ndarray:
    return quants.dequantize(tensor.data, tensor.tensor_type)


def main() -> None:
    """Averages the models that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    average(options.models, options.out)


if __name__ == "__main__":
    main()
