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
        ("s3://bucket/a/", RemoteUrl("s3://bucket/a")),
        (Path("s3://bucket/a"), RemoteUrl("s3://bucket/a")),  # pathlib removes one slash
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
