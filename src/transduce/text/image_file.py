"""PNG and JPEG files as pixels, by Pillow (the extra `images`).

A file is checked before it is decoded: regular, within the limits of size, PNG or JPEG by its content whatever its name
says. Then it is turned upright (EXIF), put on white where it is transparent, converted to 8-bit RGB, and scaled to a
square. Whatever cannot be read is an error of one sentence.

Only `ImageReader` opens paths. `decode_image` takes bytes, and models take pixels: a server needs no paths.
"""

from __future__ import annotations

import io
import stat
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pydantic

from transduce.config import Config, Table
from transduce.errors import DataError, MissingInput, SettingsError, brief, one_line
from transduce.text.picture import ColourSet, Pixels, encode_pixels

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_FILE_BYTES = 64 * 2**20
MAX_PIXELS = 64_000_000
"""Width times height; more is rejected before anything is decoded."""
SUFFIXES = (".png", ".jpg", ".jpeg")
"""A source that ends like this is the path of an image file."""
OTHER_SUFFIXES = (".gif", ".webp", ".bmp", ".tif", ".tiff", ".heic", ".heif", ".avif", ".svg", ".ppm", ".jp2", ".jxl")
MAX_PATH = 4096
"""Characters; a longer text is no path."""
DISPLAY_SIDE = 448
"""Pixels of a side for drawing."""

Fit = Literal["pad", "crop", "stretch"]
_SIGNATURES = {b"\x89PNG": "PNG", b"\xff\xd8\xff": "JPEG"}
_FOREIGN = {b"GIF8": "a GIF", b"RIFF": "a WebP", b"BM": "a BMP", b"II*\0": "a TIFF", b"MM\0*": "a TIFF"}
_HEIF = b"ftyp"
"""At the fifth byte: HEIC, HEIF and AVIF."""
_WHITE = (255, 255, 255)


class ImageFilesConfig(Config):
    """The table `[data.images]`: sources are paths of PNG and JPEG files, one per line."""

    size: int | None = pydantic.Field(default=None, ge=1, le=1024)
    """Pixels of each side that images are scaled to; by default the model's `side`."""
    fit: Fit = "pad"
    """How an image becomes a square: pad adds white borders, crop cuts off the longer side's ends, stretch ignores the
    aspect ratio. Scaling averages over the area of each new pixel (box filter); enlarging repeats pixels."""
    colours: ColourSet = "rgb512"
    """Colours that pixels are rounded to, one token each: rgb64, rgb512 or rgb4096 (4, 8 or 16 levels of red, green
    and blue), or the nine of the palette, for drawings."""
    folder: str | None = None
    """Folder that relative paths start from; by default that of the corpus file."""
    unreadable: Literal["error", "drop"] = "error"
    """What to do with a file that is missing or cannot be read; dropped ones are counted and listed in the report."""

    def reader(self, corpus: str | None) -> ImageReader:
        """Return a reader for the paths of a corpus file (None: standard input)."""
        if self.size is None:
            raise SettingsError("data.images.size is not set; set it to the model's side, such as 32")
        folder = Path(self.folder) if self.folder is not None else Path(corpus or ".").parent
        return ImageReader(self.size, self.fit, self.colours, folder)

    def notes(self) -> Table:
        """Return what inference needs to know, for the model folder."""
        return {"fit": self.fit, "colours": self.colours}


@dataclass(frozen=True)
class ImageReader:
    """Reads image files as a model needs them: as text, one character per pixel."""

    size: int
    fit: Fit = "pad"
    colours: ColourSet = "palette"
    folder: Path = Path()
    """Where relative paths start from."""

    @classmethod
    def from_notes(cls, size: int, notes: Table) -> ImageReader:
        """Return the reader of a model folder; a model that was trained on text has the palette."""
        found = ImageFilesConfig.from_table({"colours": "palette", **notes, "size": size}, "the model's images")
        return cls(size, found.fit, found.colours)

    def read(self, path: str, where: str = "") -> str:
        """Return the pixels of a file as text; `where` names the line with the path in errors."""
        place, name = self._place(path, where)
        return encode_pixels(decode_image(read_bytes(place, name), self.size, self.fit, name), self.colours)

    def read_all(self, texts: Sequence[str], places: Sequence[str] = ()) -> list[str]:
        """Replace every text that is a path by its pixels; `places` names their lines in errors."""
        named = places or [""] * len(texts)
        return [
            self.read(text, where) if is_image_path(text, where) else text
            for text, where in zip(texts, named, strict=True)
        ]

    def display(self, path: str) -> Pixels:
        """Return a file at a size for drawing, fitted in the same way.  -> (P P 3)."""
        place, name = self._place(path, "")
        return decode_image(read_bytes(place, name), DISPLAY_SIDE, self.fit, name)

    def _place(self, path: str, where: str) -> tuple[Path, str]:
        name = path if path.isprintable() and len(path) <= 200 else brief(path)
        return self.folder / path.strip(), f"{where}: {name}" if where else name


def is_image_path(text: str, where: str = "") -> bool:
    """Whether a source is the path of an image file, by its suffix; a suffix of another format is an error."""
    end = text[-6:].strip().lower()
    if end.endswith(OTHER_SUFFIXES) and len(text) < MAX_PATH:
        raise DataError(f"{where + ': ' if where else ''}{brief(text)}: images must be PNG or JPEG; convert it")
    return end.endswith(SUFFIXES)


def read_bytes(path: Path, name: str) -> bytes:
    """Return the contents of a regular file of limited size."""
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise MissingInput(f"{name}: is a folder, not an image; give the path of a PNG or JPEG file")
        if not stat.S_ISREG(found.st_mode):
            raise MissingInput(f"{name}: is not a regular file; give the path of a PNG or JPEG file")
        if found.st_size > MAX_FILE_BYTES:
            raise DataError(
                f"{name}: has {found.st_size:,} bytes, more than the limit of {MAX_FILE_BYTES:,}; make it smaller"
            )
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise MissingInput(f"{name}: does not exist (looked for {path}); check the path and its folder") from None
    except (OSError, ValueError) as error:  # a null character is a ValueError
        raise MissingInput(f"{name}: cannot be read ({one_line(error)}); check the path") from None
    if not data:
        raise DataError(f"{name}: is empty (0 bytes); restore or remove the file")
    return data


def decode_image(data: bytes, size: int, fit: Fit, name: str) -> Pixels:
    """Return the pixels of a PNG or JPEG file, scaled to a square.  -> (size size 3)."""
    image_module = _pillow()
    _check_signature(data, name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a warning is about is checked below, or an error
            with image_module.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
                _check_header(image, name)
                image.load()
                square = _fitted(_as_rgb(image), size, fit)
    except (DataError, MissingInput):
        raise
    except image_module.DecompressionBombError:
        raise DataError(f"{name}: has more than {MAX_PIXELS:,} pixels; make it smaller") from None
    except MemoryError:
        raise DataError(f"{name}: does not fit into memory; make it smaller") from None
    except Exception as error:  # Pillow raises OSError, SyntaxError, ValueError, struct.error, zlib.error, …
        raise DataError(f"{name}: is damaged or incomplete ({one_line(error)}); restore or remove the file") from None
    return np.asarray(square, dtype=np.uint8)


def encode_png(pixels: Pixels) -> bytes:
    """Return pixels as a PNG file."""
    file = io.BytesIO()
    _pillow().fromarray(pixels).save(file, format="PNG")
    return file.getvalue()


def check_pillow() -> None:
    """Raise unless Pillow is installed."""
    _pillow()


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingInput("images need Pillow, which is not installed; pip install 'transduce[images]'") from None
    return Image


def _check_signature(data: bytes, name: str) -> None:
    """Raise unless the content begins like a PNG or JPEG file."""
    if any(data.startswith(signature) for signature in _SIGNATURES):
        return
    found = next((what for signature, what in _FOREIGN.items() if data.startswith(signature)), None)
    found = "a HEIF or AVIF" if found is None and data[4:8] == _HEIF else found
    what = "is not an image" if found is None else f"is {found} image"
    raise DataError(f"{name}: {what} by its content; images must be PNG or JPEG, so convert or remove the file")


def _check_header(image: Image, name: str) -> None:
    """Check what is known before the pixels are decoded."""
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise DataError(
            f"{name}: has {width:,} × {height:,} pixels, more than the limit of {MAX_PIXELS:,}; make it smaller"
        )
    frames = getattr(image, "n_frames", 1)
    if image.format == "PNG" and frames > 1:  # a JPEG with several (MPO, from phones) has its picture first
        raise DataError(f"{name}: is an animation of {frames:,} frames; save one of them as a PNG file")


def _as_rgb(image: Image) -> Image:
    """Return an image upright, opaque and as 8-bit RGB; colour profiles are ignored."""
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(image)
    assert upright is not None, "only None with in_place"
    if upright.mode.startswith("I"):  # 16-bit grayscale
        return Image.fromarray((np.asarray(upright).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if upright.has_transparency_data:
        white = Image.new("RGBA", upright.size, (*_WHITE, 255))
        return Image.alpha_composite(white, upright.convert("RGBA")).convert("RGB")
    return upright.convert("RGB")


def _fitted(image: Image, size: int, fit: Fit) -> Image:
    """Scale an image to a square; one that has this size already keeps its pixels exactly."""
    from PIL import Image

    (width, height), shorter, longer = image.size, min(image.size), max(image.size)
    if fit == "stretch" or width == height:
        return image.resize((size, size), Image.Resampling.BOX)
    if fit == "crop":
        left, top = (width - shorter) / 2, (height - shorter) / 2
        return image.resize((size, size), Image.Resampling.BOX, box=(left, top, left + shorter, top + shorter))
    inner = (max(1, round(width * size / longer)), max(1, round(height * size / longer)))
    square = Image.new("RGB", (size, size), _WHITE)
    square.paste(image.resize(inner, Image.Resampling.BOX), ((size - inner[0]) // 2, (size - inner[1]) // 2))
    return square
