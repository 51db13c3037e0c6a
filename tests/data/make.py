#!/usr/bin/env python3
"""Makes the images in this folder and what Pillow makes of them.

  pip install pillow numpy && python3 make.py

For an image NAME: NAME.full.png holds its upright RGB pixels, NAME.small.png the same resized to 24 x 20 by Pillow's antialiased
bilinear filter. Both are lossless. The file versions.txt names what made them.
"""
import os, struct
import numpy as np
import PIL
from PIL import Image, ImageOps, features

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = (24, 20)

def scene(width, height, seed):
    """A smooth picture with edges and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    r = 128 + 90 * np.sin(x / 9.0 + seed) * np.cos(y / 13.0)
    g = 128 + 100 * np.cos(x / 17.0) * np.sin(y / 7.0 + seed)
    b = 60 + 180 * (x + y) / (width + height)
    picture = np.stack([r, g, b], axis=-1)
    picture[height // 3 : height // 2, width // 4 : width // 2] = (230, 40, 30)
    picture += rng.normal(0, 5, picture.shape)
    return Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))

def reference(name):
    image = Image.open(os.path.join(HERE, name))
    image = ImageOps.exif_transpose(image).convert("RGB")
    image.save(os.path.join(HERE, name + ".full.png"), optimize=True)
    image.resize(SMALL, Image.BILINEAR).save(os.path.join(HERE, name + ".small.png"), optimize=True)

def put(name, image, **options):
    image.save(os.path.join(HERE, name), **options)
    reference(name)

def adobe_cmyk(name, image, ycck):
    """Pillow writes CMYK as Adobe does, inverted and without a transform. YCCK is the same with a transform: three of its channels go
    through RGB to YCbCr, and the marker says 2."""
    if not ycck:
        return put(name, image, quality=92)
    c, m, y, k = image.split()
    inverted = [channel.point(lambda v: 255 - v) for channel in (c, m, y, k)]
    # libjpeg makes C = 255 - R of what it stores, so store the YCbCr of R = 255 - C'.
    rgb = Image.merge("RGB", [channel.point(lambda v: 255 - v) for channel in inverted[:3]])
    ycc = rgb.convert("YCbCr").split()
    four = Image.merge("CMYK", [channel.point(lambda v: 255 - v) for channel in (*ycc, inverted[3])])
    path = os.path.join(HERE, name)
    four.save(path, quality=92)
    data = bytearray(open(path, "rb").read())
    at = data.index(b"Adobe")
    data[at + 11] = 2
    open(path, "wb").write(data)
    reference(name)

def main():
    w, h = 61, 43
    for name, sub in (("s444", 0), ("s422", 1), ("s420", 2)):
        put(f"{name}.jpg", scene(w, h, 1), quality=92, subsampling=sub)
    # Pillow does not write these; they come from the jpeg-encoder crate and stay as they are.
    reference("s440.jpg")
    reference("s411.jpg")
    put("progressive.jpg", scene(w, h, 2), quality=90, progressive=True)
    put("optimized.jpg", scene(w, h, 3), quality=60, optimize=True)
    put("gray.jpg", scene(w, h, 4).convert("L"), quality=92)
    put("gray-progressive.jpg", scene(w, h, 4).convert("L"), quality=92, progressive=True)
    put("restart.jpg", scene(w, h, 5), quality=92, restart_marker_blocks=3)
    put("rgb.jpg", scene(w, h, 6), quality=92, keep_rgb=True)
    adobe_cmyk("cmyk.jpg", scene(w, h, 7).convert("CMYK"), False)
    adobe_cmyk("ycck.jpg", scene(w, h, 8).convert("CMYK"), True)
    for size in ((1, 1), (1, 17), (17, 1), (7, 5), (16, 16), (33, 8)):
        put("size-%dx%d.jpg" % size, scene(*size, 9), quality=92)
    for tag in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = tag
        put(f"exif-{tag}.jpg", scene(29, 18, 10), quality=92, exif=exif)
    exif = Image.Exif()
    exif[0x0112] = 6
    put("exif-6.png", scene(29, 18, 10), exif=exif)
    put("rgb.png", scene(w, h, 11))
    put("gray.png", scene(w, h, 12).convert("L"))
    put("bits-1.png", scene(w, h, 12).convert("1"))
    for bits in (1, 2, 4, 8):
        put(f"palette-{bits}.png", scene(w, h, 13).quantize(1 << bits), bits=bits)
    rgba = scene(w, h, 14).convert("RGBA")
    rgba.putalpha(scene(w, h, 15).convert("L"))
    put("rgba.png", rgba)
    put("gray-alpha.png", rgba.convert("LA"))
    put("transparent-colour.png", scene(w, h, 11), transparency=(230, 40, 30))
    with open(os.path.join(HERE, "versions.txt"), "w") as out:
        out.write(f"Pillow {PIL.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}, numpy {np.__version__}\n")

main()
