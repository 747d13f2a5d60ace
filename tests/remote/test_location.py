"""Local paths and URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedopt.errors import ConfigError
from fedopt.remote.location import RemoteUrl, local_path, parse_location


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runs/a", Path("runs/a")),
        ("/runs/a", Path("/runs/a")),
        ("file:///mnt/runs/a", Path("/mnt/runs/a")),
        ("local:///mnt/runs/a", Path("/mnt/runs/a")),
        ("s3://bucket/a/", RemoteUrl("s3://bucket/a")),
        (Path("s3://bucket/a"), RemoteUrl("s3://bucket/a")),  # pathlib removes one slash
        ("S3://bucket/A", RemoteUrl("s3://bucket/A")),
        ("hdfs:///user/a", RemoteUrl("hdfs:///user/a")),  # without a host
        ("abfs://container@account/a", RemoteUrl("abfs://container@account/a")),
        ("c:/runs", Path("c:/runs")),  # one letter is not a scheme
    ],
)
def test_locations_are_paths_or_urls(text: str | Path, expected: object):
    assert parse_location(text) == expected


def test_url_is_refused_where_only_a_local_path_works():
    with pytest.raises(ConfigError) as error:
        local_path("s3://bucket/sweep", "out")
    assert error.value.keys == ("out",)
    assert local_path("file:///mnt/sweep", "out") == Path("/mnt/sweep")


@pytest.mark.parametrize("text", ["ftp://user:S3CRET@host/run", "ftp://user:S3CRET@x@host:21/run"])
def test_url_with_a_password_is_refused_without_showing_it(text: str):
    with pytest.raises(ConfigError) as error:
        parse_location(text)
    assert error.value.keys == ("url",)
    assert "S3CRET" not in str(error.value) and "host" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "file://../../u4",  # was /u4
        "file://host/u4",
        "file:///mnt/../u4",
        Path("file://../u4"),
        "local://u4",
        "://x",
        "a b://x",
        "memory:x",
        "S3:bucket",
        "simplecache::s3://bucket/run",
        "zip://x::file:///",
        "zip://x::/tmp/a.zip",
        "a::b::memory://x",
    ],
)
def test_what_is_neither_a_path_nor_one_complete_url_is_refused(text: str | Path):
    with pytest.raises(ConfigError) as error:
        parse_location(text)
    assert error.value.keys == ("url",)
    assert "\n" not in str(error.value)


def test_password_in_a_chain_is_not_shown():
    with pytest.raises(ConfigError) as error:
        parse_location("simplecache::ftp://user:S3CRET@host/run")
    assert "S3CRET" not in str(error.value)


@pytest.mark.parametrize("text", ["./memory:x", "runs/s3:x", "lr:0.1", "./://x", "a::b", Path("memory:x")])
def test_colons_in_the_name_of_a_local_directory_are_accepted(text: str | Path):
    assert parse_location(text) == Path(text)
