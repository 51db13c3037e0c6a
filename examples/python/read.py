"""Batches from Towtank in Python, without a copy: `read.py LIBRARY FOLDER`.

    cargo build --release --manifest-path examples/python/Cargo.toml
    python3 examples/python/read.py examples/python/target/release/libtowtank_python.so FOLDER-OF-IMAGES

With PyTorch or NumPy installed the batches are theirs; without, the bytes are looked at through ctypes. One tensor is always kept until the
next one has come, to show that nobody writes to it meanwhile.
"""

import ctypes
import hashlib
import sys

try:
    import torch
except ImportError:
    torch = None
try:
    import numpy
except ImportError:
    numpy = None


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("dimensions", ctypes.c_int32),
                ("type", ctypes.c_uint8 * 4), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


capsule_new = ctypes.pythonapi.PyCapsule_New
capsule_new.restype, capsule_new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Batch:
    """A batch that any library with `from_dlpack` takes over."""

    def __init__(self, managed):
        self.managed = managed
        tensor = managed.contents.tensor
        self.address = tensor.data
        self.shape = tuple(tensor.shape[i] for i in range(tensor.dimensions))
        self.device = tuple(tensor.device)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None, **_):
        managed, self.managed = self.managed, None
        return capsule_new(ctypes.cast(managed, ctypes.c_void_p), b"dltensor", None)

    def __del__(self):
        if self.managed is not None:
            self.managed.contents.deleter(ctypes.cast(self.managed, ctypes.c_void_p))


class Loader:
    def __init__(self, library, folder, size=224, batch=8, held=2):
        self.library = ctypes.CDLL(library)
        self.library.towtank_open.restype = ctypes.c_void_p
        self.library.towtank_open.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
        self.library.towtank_next.restype = ctypes.POINTER(Managed)
        self.library.towtank_next.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        self.library.towtank_close.restype = ctypes.c_int64
        self.library.towtank_close.argtypes = [ctypes.c_void_p]
        self.error = ctypes.create_string_buffer(1024)
        self.loader = self.library.towtank_open(folder.encode(), size, batch, held, self.error, len(self.error))
        if not self.loader:
            raise RuntimeError(self.error.value.decode())

    def __iter__(self):
        return self

    def __next__(self):
        managed = self.library.towtank_next(self.loader, self.error, len(self.error))
        if managed:
            return Batch(managed)
        if self.error.value:
            raise RuntimeError(self.error.value.decode())
        raise StopIteration

    def close(self):
        """Ends it; how many slots are still with tensors."""
        loader, self.loader = self.loader, None
        return self.library.towtank_close(loader)


def taken_over(batch):
    """The batch as its reader has it, where that lies, and its bytes."""
    if torch is not None:
        tensor = torch.from_dlpack(batch)
        return tensor, tensor.data_ptr(), lambda: bytes(tensor.flatten().tolist())
    if numpy is not None:
        array = numpy.from_dlpack(batch)
        return array, array.ctypes.data, array.tobytes
    size = 1
    for length in batch.shape:
        size *= length
    return batch, batch.address, lambda: ctypes.string_at(batch.address, size)


def main():
    library, folder = sys.argv[1:]
    loader = Loader(library, folder, size=64)
    reader = "torch" if torch else "numpy" if numpy else "ctypes"
    samples, kept = 0, None
    for batch in loader:
        address, shape = batch.address, batch.shape
        tensor, there, read = taken_over(batch)
        assert there == address, "a copy was made"
        samples += shape[0]
        if kept is not None:
            assert hashlib.sha256(kept[1]()).hexdigest() == kept[2], "somebody wrote to a tensor that is kept"
        # The one before goes back only now.
        kept = (tensor, read, hashlib.sha256(read()).hexdigest())
        del batch, tensor, read
    with_tensors = loader.close()
    assert with_tensors == shape[0], f"{with_tensors} slots are with the one tensor of {shape[0]} samples that is kept"
    kept = None
    # A loader all of whose tensors have been given back.
    again = Loader(library, folder, size=64)
    for batch in again:
        del batch
    lost = again.close()
    assert lost == 0, f"{lost} slots did not come back"
    print(f"{samples} samples as tensors of {reader}, none of them copied; one kept late; every slot back")


main()
