"""What engines get of a stored image: upright RGB of bounded size, or a reason why not."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from sgpu.errors import DataError, UsageError
from sgpu.images import FORMATS, ImageError, Limits, prepare_image, scaled_size

# Rows of 2 x 3 distinct gray values, as a viewer sees them.
A, B, C, D, E, F = 10, 50, 90, 130, 170, 210
UPRIGHT = [[A, B], [C, D], [E, F]]
# How the same picture is stored under each orientation, from the EXIF definition of row 0 and column 0.
STORED = {
    1: [[A, B], [C, D], [E, F]],
    2: [[B, A], [D, C], [F, E]],
    3: [[F, E], [D, C], [B, A]],
    4: [[E, F], [C, D], [A, B]],
    5: [[A, C, E], [B, D, F]],
    6: [[B, D, F], [A, C, E]],
    7: [[F, D, B], [E, C, A]],
    8: [[E, C, A], [F, D, B]],
}


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def opened(data: bytes) -> np.ndarray:
    """(H, W, 3) pixels of a binary PPM, read without PIL."""
    magic, size, depth, pixels = data.split(b"\n", 3)
    width, height = map(int, size.split())
    assert (magic, depth) == (b"P6", b"255")
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)


def prepared(image: Image.Image, kind: str = "PNG", **options: Any) -> np.ndarray:
    return opened(prepare_image(encoded(image, kind, **options), max_pixels=10_000))


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    depth = len(Image.new(mode, (1, 1)).getbands())
    values = np.random.default_rng(width).integers(0, 256, (height, width, depth), dtype=np.uint8)
    return Image.frombytes(mode, (width, height), values.tobytes())


def png_of_size(width: int, height: int) -> bytes:
    """A PNG whose header names the size and whose pixels are missing."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", STORED)
def test_exif_orientation_is_applied(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.repeat(np.array(STORED[orientation], np.uint8)[..., None], 3, axis=2)
    options = {"lossless": True} if kind == "WEBP" else {}
    pixels = prepared(Image.fromarray(stored), kind, exif=exif, **options)
    assert pixels[..., 0].tolist() == UPRIGHT


def test_jpeg_orientation_is_applied_after_scaling() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its side: the upper half of the stored pixels is the right half
    stored = np.zeros((400, 800, 3), np.uint8)
    stored[:200] = 255
    data = encoded(Image.fromarray(stored), "JPEG", exif=exif)
    pixels = opened(prepare_image(data, max_pixels=20_000))
    assert pixels.shape == (200, 100, 3)
    assert pixels[:, :45].max() < 10
    assert pixels[:, 55:].min() > 245


def test_unreadable_metadata_do_not_spoil_the_pixels() -> None:
    picture = noise(4, 3)
    pixels = prepared(picture, exif=b"Exif\x00\x00MM\x00*\x00\x00\xff\xff\xff\xff")
    assert np.array_equal(pixels, np.asarray(picture))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_keep_every_pixel(kind: str) -> None:
    picture = noise(7, 5)
    assert np.array_equal(prepared(picture, kind), np.asarray(picture))


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF"])
def test_lossy_formats_are_read(kind: str) -> None:
    picture = Image.new("RGB", (9, 6), (200, 100, 40))
    assert np.abs(prepared(picture, kind).astype(int) - [200, 100, 40]).max() <= 4


def test_first_frame_of_an_animation_is_taken() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    pixels = prepared(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (pixels == [255, 0, 0]).all()


def test_gray_becomes_three_equal_channels() -> None:
    picture = noise(4, 3, "L")
    assert np.array_equal(prepared(picture), np.repeat(np.asarray(picture)[..., None], 3, axis=2))


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_of_sixteen_bits_the_upper_eight_are_kept(kind: str) -> None:
    values = np.array([[0, 255, 256], [32768, 65279, 65535]], np.uint16)
    assert prepared(Image.fromarray(values), kind)[..., 0].tolist() == [[0, 0, 1], [128, 254, 255]]


def test_sixteen_bit_ppm_is_read() -> None:
    data = b"P5 2 1 65535\n" + struct.pack(">HH", 0, 0x8001)
    assert opened(prepare_image(data, max_pixels=10))[..., 0].tolist() == [[0, 128]]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_become_white(mode: str) -> None:
    depth = len(mode)
    values = np.full((1, 3, depth), 100, np.uint8)
    values[0, :, -1] = [0, 51, 255]  # clear, a fifth, solid
    pixels = prepared(Image.frombytes(mode, (3, 1), values.tobytes()))
    assert pixels[0, :, 0].tolist() == [255, 224, 100]  # 255 - share * 155


def test_transparent_colour_of_a_palette_becomes_white() -> None:
    picture = Image.new("P", (2, 1))
    picture.putpalette([255, 0, 0, 0, 0, 255])
    picture.putdata([0, 1])
    assert prepared(picture, transparency=0).tolist() == [[[255, 255, 255], [0, 0, 255]]]


def test_cmyk_ink_becomes_light() -> None:
    inks = np.array([[[0, 0, 0, 0], [255, 0, 0, 0], [0, 0, 0, 255]]], np.uint8)
    pixels = prepared(Image.frombytes("CMYK", (3, 1), inks.tobytes()), "TIFF")
    assert pixels.tolist() == [[[255, 255, 255], [0, 255, 255], [0, 0, 0]]]


def test_inverted_inks_of_an_adobe_jpeg_come_out_right() -> None:
    # PIL writes CMYK as Adobe does: inverted, with the APP14 marker that says so.
    data = encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=100)
    assert b"Adobe" in data
    pixels = opened(prepare_image(data, max_pixels=100))
    assert np.abs(pixels.astype(int) - [255, 0, 0]).max() <= 3


@given(
    st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 10**7), st.none() | st.integers(1, 2000)
)
def test_scaled_size_keeps_the_bound_and_the_aspect(
    width: int, height: int, bound: int, upscale_to: int | None
) -> None:
    new_width, new_height = scaled_size(width, height, bound, upscale_to)
    assert min(new_width, new_height) >= 1
    assert new_width * new_height <= bound
    short, long = sorted((new_width, new_height))
    exact = short * max(width, height) / min(width, height)
    # The longer side is the shorter one times the aspect, to the nearest pixel, if the bound allows it.
    assert abs(long - exact) <= 0.5 or long == bound // short
    if width * height <= bound and (upscale_to is None or min(width, height) >= upscale_to):
        assert (new_width, new_height) == (width, height)


@given(st.integers(50, 5000), st.integers(50, 5000), st.integers(2500, 10**6))
def test_scaling_down_wastes_little_of_the_bound(width: int, height: int, bound: int) -> None:
    new_width, new_height = scaled_size(width, height, bound)
    if width * height > bound:
        # Both sides are at most about a pixel short of the exact ones.
        short, long = sorted((new_width, new_height))
        assert (short + 1) * (long + 1 + max(width, height) / min(width, height)) > bound


@pytest.mark.parametrize(
    ("size", "bound", "upscale_to", "expected"),
    [
        (
            (3024, 4032),
            1_000_000,
            None,
            (866, 1154),
        ),  # sqrt(750000) = 866.03; 866 * 4 / 3 = 1154.7, 1e6 // 866
        ((32, 32), 10**6, 336, (336, 336)),
        ((20, 30), 10**6, 336, (336, 504)),
        ((20, 30), 150, 336, (10, 15)),
        ((30, 20), 2400, 336, (60, 40)),  # the bound comes first
        ((100_000, 1), 100, None, (100, 1)),
        ((400, 300), 10**6, 224, (400, 300)),
    ],
)
def test_scaled_size_by_hand(
    size: tuple[int, int], bound: int, upscale_to: int | None, expected: tuple[int, int]
) -> None:
    assert scaled_size(*size, bound, upscale_to) == expected


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_large_image_is_scaled_down(kind: str) -> None:
    # A horizontal ramp stays a ramp: its middle is gray, whatever filter is used.
    ramp = np.tile(np.linspace(0, 255, 1600).astype(np.uint8)[None, :, None], (800, 1, 3))
    pixels = opened(prepare_image(encoded(Image.fromarray(ramp), kind), max_pixels=20_000))
    assert pixels.shape == (100, 200, 3)
    expected = np.linspace(0, 255, 1600).reshape(200, 8).mean(axis=1)
    assert np.abs(pixels.mean(axis=(0, 2)) - expected).max() < 3


def test_small_image_is_scaled_up() -> None:
    pixels = opened(prepare_image(encoded(Image.new("RGB", (4, 8), "lime")), max_pixels=1000, upscale_to=16))
    assert pixels.shape == (32, 16, 3)
    assert (pixels == [0, 255, 0]).all()


def test_equal_bytes_give_equal_bytes() -> None:
    data = encoded(noise(300, 200), "JPEG")
    assert prepare_image(data, max_pixels=9999) == prepare_image(data, max_pixels=9999)


def test_result_is_opened_by_pil() -> None:
    data = prepare_image(encoded(noise(5, 4)), max_pixels=100)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), opened(data))


def test_large_file_is_refused() -> None:
    with pytest.raises(ImageError, match=r"has 101 bytes; at most 100 are read.*file_bytes"):
        prepare_image(b"x" * 101, max_pixels=10, limits=Limits(file_bytes=100))


@pytest.mark.parametrize("side", [11_000, 100_000], ids=["above our bound", "above that of PIL"])
def test_size_is_refused_before_anything_is_decoded(side: int) -> None:
    # The pixels of this file are missing, so decoding it would end in another error.
    with pytest.raises(ImageError, match=rf"({side} x {side}|{side**2}).*120,000,000"):
        prepare_image(png_of_size(side, side), max_pixels=10)


def test_size_limit_can_be_set() -> None:
    with pytest.raises(ImageError, match=r"10 x 10 pixels; at most 99"):
        prepare_image(encoded(noise(10, 10)), max_pixels=10, limits=Limits(source_pixels=99))


def test_size_between_the_bounds_of_pil_and_ours_warns_of_nothing() -> None:
    with warnings.catch_warnings(record=True) as seen, pytest.raises(ImageError, match="damaged"):
        warnings.simplefilter("always")
        prepare_image(png_of_size(10_000, 10_000), max_pixels=10)
    assert seen == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no image",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"%PDF-1.4",
        b"<svg/>",
        encoded(noise(9, 9), "ICO"),
        b"P6 0 5 255\n",
    ],
    ids=["empty", "text", "eps", "pdf", "svg", "ico", "no width"],
)
def test_what_is_no_allowed_image_is_refused(data: bytes) -> None:
    with pytest.raises(ImageError, match=r"JPEG, PNG, WEBP, GIF, BMP, TIFF, PPM|at least 1"):
        prepare_image(data, max_pixels=10)


@pytest.mark.parametrize("kind", FORMATS)
def test_cut_off_file_is_refused(kind: str) -> None:
    data = encoded(noise(64, 64), kind)
    with pytest.raises(ImageError):
        prepare_image(data[: len(data) // 2], max_pixels=10**6)


def test_floating_point_pixels_are_refused() -> None:
    with pytest.raises(ImageError, match="floating-point"):
        prepared(Image.new("F", (2, 2)), "TIFF")


def test_gray_values_beyond_sixteen_bits_are_refused() -> None:
    with pytest.raises(ImageError, match="from 70000 to 70000"):
        prepared(Image.new("I", (2, 2), 70_000), "TIFF")


def test_image_error_is_a_data_error() -> None:
    assert issubclass(ImageError, DataError)


@pytest.mark.parametrize("bounds", [{"max_pixels": 0}, {"max_pixels": 9, "upscale_to": 0}])
def test_bound_below_one_pixel_is_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        prepare_image(encoded(noise(2, 2)), **bounds)


WHOLE = {kind: encoded(noise(24, 16), kind) for kind in FORMATS}


@given(st.binary(max_size=300))
@example(b"\x89PNG\r\n\x1a\n")
@example(b"GIF89a")
def test_random_bytes_raise_only_image_errors(data: bytes) -> None:
    with pytest.raises(ImageError):
        prepare_image(data, max_pixels=100)


@settings(deadline=None)
@given(st.sampled_from(FORMATS), st.data())
def test_altered_files_raise_only_image_errors(kind: str, drawn: st.DataObject) -> None:
    damaged = bytearray(WHOLE[kind])
    for place, value in drawn.draw(
        st.lists(st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255)), max_size=8)
    ):
        damaged[place] = value
    cut = drawn.draw(st.integers(0, len(damaged)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            # A damaged header may name any size; small ones keep the test quick.
            limits = Limits(source_pixels=10**6)
            pixels = opened(prepare_image(bytes(damaged[:cut]), max_pixels=100, limits=limits))
        except ImageError:
            return
    assert pixels.shape[0] * pixels.shape[1] <= 100
