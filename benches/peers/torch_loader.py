"""PyTorch's DataLoader: worker processes, torchvision's JPEG decoder, antialiased bilinear resizing, default collation.

One JSON line on standard output; see README.md.
"""

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

import stopwatch


class Images(Dataset):
    def __init__(self, files):
        self.files = files
        self.resize = v2.Resize((224, 224), interpolation=v2.InterpolationMode.BILINEAR, antialias=True)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.resize(decode_jpeg(read_file(self.files[index]), mode=ImageReadMode.RGB))


def main():
    options = stopwatch.arguments(__doc__)
    files = stopwatch.files_of(options.data)
    stream = Images(files * (options.epochs + 2))
    stopwatch.measure(
        "torch",
        f"torch {torch.__version__} torchvision {torchvision.__version__}",
        options,
        len(files),
        lambda: iter(DataLoader(stream, batch_size=options.batch, num_workers=options.workers)),
        lambda batch: batch.permute(0, 2, 3, 1).numpy(),
    )


if __name__ == "__main__":
    main()
