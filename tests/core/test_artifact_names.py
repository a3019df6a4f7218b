"""What an artifact may be called, how its digest is written, and which bytes a range asks for."""

import pytest

from facts.core import artifacts
from facts.core.errors import InvalidFactError
from facts.core.ranges import Span, UnsatisfiableError, span_in

HEX = "sha256:" + "ab" * 32
BASE64 = "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="


@pytest.mark.parametrize("bucket", ["abc", "batch-files", "a.b", "0-0", "x" * 63])
def test_a_good_bucket_passes(bucket: str) -> None:
    artifacts.check_name(bucket, "key")


@pytest.mark.parametrize(
    "bucket", ["", "ab", "x" * 64, "Abc", "a_b", "-abc", "abc-", ".abc", "abc.", "a/b", "a b", "äbc", "abc\n", ".."]
)
def test_a_bad_bucket_is_refused(bucket: str) -> None:
    with pytest.raises(InvalidFactError) as caught:
        artifacts.check_name(bucket, "key")
    assert caught.value.pointer == "/bucket"


@pytest.mark.parametrize(
    "key", ["a", "order 7.pdf", "a/b/c", "...", "a..b/.c", "ü" * 1024, "雪/日.pdf", "x" * 1024, "🧊"]
)
def test_a_good_key_passes(key: str) -> None:
    artifacts.check_name("abc", key)


@pytest.mark.parametrize(
    "key",
    [
        *("", "x" * 1025, "雪" * 1000, "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a/.", "a\\b", "a\nb", "a\x00"),
        *("a\x7f", "a\x85b", "a\u2028b", "a\ud800"),
    ],
)
def test_a_bad_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidFactError) as caught:
        artifacts.check_name("abc", key)
    assert caught.value.pointer == "/key"


@pytest.mark.parametrize("media_type", ["application/pdf", "text/plain; charset=utf-8", "a/b;c"])
def test_a_good_media_type_passes(media_type: str) -> None:
    artifacts.check_media_type(media_type)


@pytest.mark.parametrize("media_type", ["", "pdf", "a/b\r\nX: y", "a/b; ü", "text/" + "x" * 255, "a/b c"])
def test_a_bad_media_type_is_refused(media_type: str) -> None:
    with pytest.raises(InvalidFactError) as caught:
        artifacts.check_media_type(media_type)
    assert caught.value.pointer == "/media_type"


@pytest.mark.parametrize(
    "header", [f"sha-256=:{BASE64}:", f"sha-512=:AAAA:, sha-256=:{BASE64}:", f" sha-256 = :{BASE64}: "]
)
def test_an_announced_digest_is_read(header: str) -> None:
    assert artifacts.digest_in(header) == HEX


@pytest.mark.parametrize(
    "header",
    ["", "sha-256", f"sha-256={BASE64}", "sha-256=:AAAA:", "sha-256=:A:", "sha-512=:AAAA:", f"sha-256=:{BASE64}:, x"],
)
def test_a_digest_that_could_not_be_checked_is_refused(header: str) -> None:
    with pytest.raises(InvalidFactError) as caught:
        artifacts.digest_in(header)
    assert caught.value.pointer == "/Content-Digest"


def test_a_digest_is_written_as_it_is_read() -> None:
    assert artifacts.digest_header(HEX) == f"sha-256=:{BASE64}:"


@pytest.mark.parametrize(
    ("header", "size", "span"),
    [
        ("bytes=0-0", 10, (0, 1)),
        ("bytes=2-5", 10, (2, 6)),
        ("bytes=2-", 10, (2, 10)),
        ("bytes=2-99", 10, (2, 10)),
        ("bytes=-3", 10, (7, 10)),
        ("bytes=-99", 10, (0, 10)),
        (" Bytes = 1-2 ", 10, (1, 3)),
    ],
)
def test_a_range_is_understood(header: str, size: int, span: tuple[int, int]) -> None:
    found = span_in(header, size)
    assert found == Span(*span)
    assert found.length == span[1] - span[0]


@pytest.mark.parametrize(
    "header", ["", "bytes=-", "bytes=", "bytes=a-b", "bytes=5-2", "bytes=0-1,3-4", "lines=0-1", "bytes=" + "9" * 20]
)
def test_what_is_no_single_range_asks_for_the_whole(header: str) -> None:
    assert span_in(header, 10) is None


@pytest.mark.parametrize(("header", "size"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=-5", 0)])
def test_a_range_behind_the_end_cannot_be_satisfied(header: str, size: int) -> None:
    with pytest.raises(UnsatisfiableError):
        span_in(header, size)
