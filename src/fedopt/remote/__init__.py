"""Directories at URLs such as s3://bucket/run, through fsspec.

location    local paths and URLs
directory   list, read, write and delete the files of a remote directory
"""

from fedopt.remote.location import local_path

__all__ = ["local_path"]
