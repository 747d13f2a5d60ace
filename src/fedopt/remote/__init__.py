"""Directories at URLs such as s3://bucket/run, through fsspec.

location    local paths and URLs
directory   list, read, write and delete the files of a remote directory
"""
