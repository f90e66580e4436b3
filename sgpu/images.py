"""Images as the engines take them: any stored image becomes RGB pixels of bounded size, in a binary PPM."""

from __future__ import annotations

import io
import math
import threading
import warnings
from dataclasses import dataclass

import numpy as np
from PIL import Image

from sgpu.errors import DataError, UsageError

# Formats that PIL decodes in this process. EPS, for one, would start Ghostscript on the file.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
ORIENTATION_TAG = 0x0112
# How pixels stored under each EXIF orientation are turned to stand upright; 1 is upright.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# The filters of `warnings` belong to the whole process; two threads that replace them would mix them up.
_QUIET = threading.Lock()


class ImageError(DataError):
    """An image that cannot be used: too large, of a format that is not read, or damaged."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The largest stored image that is opened at all: bytes of the file, and pixels that its header names."""

    file_bytes: int = 64 * 2**20
    source_pixels: int = 120_000_000


def prepare_image(
    data: bytes, *, max_pixels: int, upscale_to: int | None = None, limits: Limits = Limits()
) -> bytes:
    """A binary PPM (P6) of the upright RGB image, with at most ``max_pixels`` pixels and the same aspect.

    A larger image is scaled down; one whose shorter side is below ``upscale_to`` is scaled up to it, as far
    as ``max_pixels`` allows. Transparent pixels become white; of an animation the first frame is taken. Equal
    bytes give equal pixels. Raises ImageError, naming what was found, and UsageError for a bound below 1.
    """
    if max_pixels < 1 or (upscale_to is not None and upscale_to < 1):
        raise UsageError(f"max_pixels={max_pixels} and upscale_to={upscale_to} must be at least 1 pixel")
    if len(data) > limits.file_bytes:
        raise ImageError(
            f"the image file has {len(data):,} bytes; at most {limits.file_bytes:,} are read. "
            "Store a smaller version, or raise the limit `file_bytes`."
        )
    with _QUIET, warnings.catch_warnings():
        # PIL warns of large images, which have a bound here, and of odd metadata, which are not used.
        warnings.simplefilter("ignore")
        image = _open(data, limits)
        size = scaled_size(image.width, image.height, max_pixels, upscale_to)
        try:
            pixels = _upright_rgb(image, size)
        except ImageError:
            raise
        except (
            Exception
        ) as error:  # decoders raise whatever their parsers do: OSError, struct.error, KeyError
            raise ImageError(
                f"the {image.format} image of {image.width} x {image.height} pixels is damaged or cut off: "
                f"{type(error).__name__}: {error}. Fetch it again, or leave it out."
            ) from error
    return b"P6\n%d %d\n255\n" % pixels.size + pixels.tobytes()


def scaled_size(width: int, height: int, max_pixels: int, upscale_to: int | None = None) -> tuple[int, int]:
    """(width, height) of the prepared image, in whole pixels, at least one a side."""
    short, long = sorted((width, height))
    new_short, new_long = short, long
    if upscale_to is not None and short < upscale_to:
        new_short, new_long = upscale_to, _ratio(long * upscale_to, short)
    if new_short * new_long > max_pixels:
        # Whole numbers throughout: the largest shorter side that the bound allows, then the longer one.
        new_short = max(1, math.isqrt(max_pixels * short // long))
        new_long = min(_ratio(new_short * long, short), max_pixels // new_short)
    return (new_long, new_short) if width > height else (new_short, new_long)


def _ratio(numerator: int, denominator: int) -> int:
    """The nearest whole number; halves go up."""
    return (2 * numerator + denominator) // (2 * denominator)


def _open(data: bytes, limits: Limits) -> Image.Image:
    """The image with its header read and its size checked; no pixel has been decoded."""
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise ImageError(
            f"{error}; the bound is {limits.source_pixels:,} pixels. Store a smaller version."
        ) from error
    except Exception as error:  # parsers of headers raise whatever they stumble over
        raise ImageError(
            f"{len(data):,} bytes that start with {data[:8]!r} are no readable image of "
            f"{', '.join(FORMATS)}. Convert the file to one of these, or fetch it again."
        ) from error
    if image.width < 1 or image.height < 1:
        raise ImageError(f"the image has {image.width} x {image.height} pixels; each side needs at least 1")
    if image.width * image.height > limits.source_pixels:
        raise ImageError(
            f"the image has {image.width} x {image.height} pixels; at most {limits.source_pixels:,} are "
            "decoded. Store a smaller version, or raise the limit `source_pixels`."
        )
    return image


def _upright_rgb(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """``size`` is that of the pixels as the header names it, before they are turned upright."""
    if size[0] < image.width:
        image.draft(None, size)  # a JPEG decoder leaves out detail that scaling would throw away
    image.load()
    # Only now: PNG may name the orientation after the pixels, and PIL turns a TIFF itself while loading it.
    turn = UPRIGHT.get(_orientation(image))
    pixels = _rgb(image)
    if pixels.size != size:
        down = size[0] * size[1] < pixels.width * pixels.height
        pixels = pixels.resize(size, Image.Resampling.LANCZOS if down else Image.Resampling.BICUBIC)
    return pixels if turn is None else pixels.transpose(turn)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ORIENTATION_TAG, 1))
    except Exception:  # unreadable metadata say nothing about the pixels
        return 1


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ImageError("the image has floating-point pixels, of no known range. Store 8 or 16 bits.")
    if image.mode.startswith("I"):
        return _from_16_bits(image)
    if not image.has_transparency_data:
        return image.convert("RGB")
    layered = image.convert("RGBA")
    background = Image.new("RGB", layered.size, "white")
    background.paste(layered, mask=layered.getchannel("A"))
    return background


def _from_16_bits(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 0xFFFF:
        raise ImageError(
            f"the image has pixels from {low} to {high}; gray values of 16 bits end at 65535. "
            "Store it with 8 or 16 bits."
        )
    # The upper byte, as PIL takes it of colours of 16 bits.
    return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
