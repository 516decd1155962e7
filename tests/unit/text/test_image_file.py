"""Image files as pixels: formats, orientation, transparency and scaling; damaged and hostile files are rejected."""

from __future__ import annotations

import builtins
import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from transduce.errors import DataError, MissingInput
from transduce.text import image_file
from transduce.text.image_file import ImageFilesConfig, ImageReader, decode_image, encode_png, is_image_path
from transduce.text.picture import colour_table, decode_pixels, encode_pixels

RED, WHITE, BLUE = (255, 0, 0), (255, 255, 255), (0, 0, 255)


def file_of(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format=form, **options)
    return file.getvalue()


def two_halves(size: tuple[int, int] = (6, 6)) -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, *size))
    return image


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png_header(width: int, height: int) -> bytes:
    """A file that claims to be of this size, with hardly any data."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def test_a_png_file_of_the_right_size_keeps_every_pixel() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (7, 7, 3)).astype(np.uint8)
    for fit in ("pad", "crop", "stretch"):
        assert (decode_image(encode_png(pixels), 7, fit, "a.png") == pixels).all()


def test_every_mode_becomes_rgb() -> None:
    grey = Image.new("L", (3, 3), 100)
    deep = Image.fromarray(np.full((3, 3), 100 * 256 + 7, dtype=np.uint16))
    for image, form, expected in [
        (grey, "PNG", (100, 100, 100)),
        (deep, "PNG", (100, 100, 100)),
        (Image.new("1", (3, 3), 1), "PNG", WHITE),
        (Image.new("RGB", (3, 3), RED).quantize(2), "PNG", RED),
        (grey, "JPEG", (100, 100, 100)),
        (Image.new("CMYK", (3, 3), (0, 0, 0, 0)), "JPEG", WHITE),
    ]:
        found = decode_image(file_of(image, form), 3, "pad", "a.png")
        assert np.abs(found.astype(int) - expected).max() <= 2, (image.mode, form)


def test_what_is_transparent_is_white() -> None:
    half = Image.new("RGBA", (2, 2), (255, 0, 0, 0))
    half.putpixel((0, 0), (255, 0, 0, 255))
    found = decode_image(file_of(half), 2, "pad", "a.png")
    assert found[0, 0].tolist() == list(RED) and (found[1] == 255).all()
    indexed = Image.new("P", (2, 2), 0)
    indexed.putpalette([255, 0, 0, 0, 0, 255])
    assert (decode_image(file_of(indexed, transparency=0), 2, "pad", "a.png") == 255).all()


def test_an_image_is_turned_upright() -> None:
    """Orientation 3 is upside down, 6 a quarter turn: what is left of the file is then at the top."""
    for orientation, top, left in [(1, RED, RED), (3, BLUE, BLUE), (6, RED, RED)]:
        exif = Image.Exif()
        exif[0x0112] = orientation
        found = decode_image(file_of(two_halves(), exif=exif), 6, "pad", "a.png")
        assert found[0, 0].tolist() == list(top) and found[5, 0].tolist() == list(RED if orientation == 1 else BLUE)
        assert (found[0, 0] == left).all()


def test_scaling_averages_areas_and_enlarging_repeats_pixels() -> None:
    small = np.array([[RED, BLUE], [BLUE, RED]], dtype=np.uint8)
    large = decode_image(encode_png(small), 6, "pad", "a.png")
    assert (large == small.repeat(3, axis=0).repeat(3, axis=1)).all()
    assert (decode_image(encode_png(large), 2, "pad", "a.png") == small).all()
    assert decode_image(encode_png(small), 1, "pad", "a.png").tolist() == [[[128, 0, 128]]]


def test_an_oblong_image_is_padded_cropped_or_stretched() -> None:
    wide = file_of(two_halves((8, 4)))
    padded, cropped, stretched = (decode_image(wide, 4, fit, "a.png") for fit in ("pad", "crop", "stretch"))
    assert (padded[[0, 3]] == 255).all() and padded[1].tolist() == [[*RED]] * 2 + [[*BLUE]] * 2
    assert cropped[0].tolist() == stretched[0].tolist() == [[*RED]] * 2 + [[*BLUE]] * 2
    thin = file_of(Image.new("RGB", (900, 1), RED))
    assert (decode_image(thin, 5, "pad", "a.png")[2] == RED).all(), "it keeps one row"


def test_pixels_become_the_nearest_colour_of_a_set() -> None:
    for colours, count in [("palette", 9), ("rgb64", 64), ("rgb512", 512), ("rgb4096", 4096)]:
        table = colour_table(colours)
        assert len(table) == len(set(table.values())) == count
        every = np.array([*table.values()], dtype=np.uint8)[:, None]
        text = encode_pixels(every, colours)
        assert list(text) == list(table), "a colour of the set is itself"
    noisy = np.array([[(200, 50, 30), (250, 250, 240)]], dtype=np.uint8)
    assert encode_pixels(noisy, "palette") == "rw"
    assert (
        np.abs(decode_pixels(encode_pixels(noisy.repeat(2, axis=0), "rgb512"), 2)[0].astype(int) - noisy[0]).max() < 19
    )


def hostile(folder: Path) -> dict[str, tuple[type[Exception], str]]:
    whole = file_of(Image.effect_noise((64, 64), 50).convert("RGB"), "JPEG")
    moving = [Image.new("RGB", (3, 3), RED), Image.new("RGB", (3, 3), BLUE)]
    contents = {
        "zero.png": b"",
        "text.png": b"a red circle\n",
        "gif.png": file_of(moving[0], "GIF"),
        "half.jpg": whole[: len(whole) // 2],
        "half.png": encode_png(np.random.default_rng(1).integers(0, 256, (64, 64, 3)).astype(np.uint8))[:5000],
        "signature.png": b"\x89PNG\r\n\x1a\n",
        "header.jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(50),
        "bomb.png": png_header(8_001, 8_000),
        "large-bomb.png": png_header(60_000, 60_000),
        "moving.png": file_of(moving[0], save_all=True, append_images=moving[1:]),
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    return {
        "zero.png": (DataError, "0 bytes"),
        "text.png": (DataError, "is not an image by its content"),
        "gif.png": (DataError, "is a GIF"),
        "half.jpg": (DataError, "damaged or incomplete"),
        "half.png": (DataError, "damaged or incomplete"),
        "signature.png": (DataError, "damaged or incomplete"),
        "header.jpg": (DataError, "damaged or incomplete"),
        "bomb.png": (DataError, "8,001 × 8,000 pixels"),
        "large-bomb.png": (DataError, "more than 64,000,000 pixels"),
        "moving.png": (DataError, "2 frames"),
        "folder.png": (MissingInput, "is a folder"),
        "pipe.png": (MissingInput, "not a regular file"),
        "missing.png": (MissingInput, "does not exist"),
        "nul\0.png": (MissingInput, "cannot be read"),
    }


def test_what_cannot_be_read_is_one_sentence_with_file_and_line(tmp_path: Path) -> None:
    reader = ImageReader(4, folder=tmp_path)
    for name, (kind, words) in hostile(tmp_path).items():
        with pytest.raises(kind, match=words) as error:
            reader.read(name, "pairs.tsv:17")
        message = str(error.value)
        assert message.startswith("pairs.tsv:17: ") and "\n" not in message and len(message) < 500, name
        assert ("nul" if "\0" in name else name) in message


def test_a_file_above_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_file, "MAX_FILE_BYTES", 50)
    (tmp_path / "a.png").write_bytes(encode_png(np.zeros((9, 9, 3), dtype=np.uint8)))
    with pytest.raises(DataError, match="more than the limit of 50"):
        ImageReader(4, folder=tmp_path).read("a.png")


def test_the_content_counts_and_not_the_name_and_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "jpeg.png").write_bytes(file_of(Image.new("RGB", (4, 4), WHITE), "JPEG"))
    (tmp_path / "link.jpg").symlink_to(tmp_path / "jpeg.png")
    reader = ImageReader(2, folder=tmp_path)
    assert reader.read("jpeg.png") == reader.read("link.jpg") == reader.read(str(tmp_path / "jpeg.png")) == "wwww"


def test_a_source_is_a_path_by_its_suffix() -> None:
    assert all(map(is_image_path, ["a.png", "b/c.JPG", "d.jpeg "]))
    assert not any(map(is_image_path, ["", "wwrb", "png", "a.png.txt"]))
    with pytest.raises(DataError, match=r"a\.webp.*PNG or JPEG"):
        is_image_path("a.webp")


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("PIL"):
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingInput, match=r"transduce\[images\]"):
        decode_image(b"\x89PNG", 2, "pad", "a.png")


def test_the_folder_is_that_of_the_corpus_unless_given() -> None:
    assert ImageFilesConfig(size=4).reader("data/pairs.tsv").folder == Path("data")
    assert ImageFilesConfig(size=4, folder="photos").reader("data/pairs.tsv").folder == Path("photos")
    assert ImageFilesConfig(size=4).reader("-").folder == Path()
