"""Open CSV and Parquet files: column names, and rows in batches."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO

import pyarrow as pa
from pyarrow import compute, csv, parquet

from fedopt.data.readers.base import SourceFile, data_error, unreadable

ROWS_PER_BATCH = 8192  # of Parquet files
BYTES_PER_BLOCK = 4 << 20  # of CSV files; a row must fit into a block
DELIMITERS = ",;\t"
MAX_TEXT = 1 << 16  # bytes of a cell
MAX_COLUMNS = 50_000
# The first row that is not empty. A name in quotation marks may have line breaks.
HEADER = re.compile(rb'[\r\n]*+(?:(?<![^,;\t\r\n])"(?:[^"]++|"")*+"|[^"\r\n]++|")*+')


def read_batches(file: SourceFile, columns: list[str], delimiter: str) -> Iterator[pa.RecordBatch]:
    try:
        # Arrow cannot open a path that is not UTF-8, but it reads from an open file.
        with open(file.path, "rb") as stream:
            batches = _parquet_batches if file.format == "parquet" else _csv_batches
            for batch in batches(file, stream, columns, delimiter):
                text = sum(_text_bytes(values) for values in batch.columns)
                file.reserve(max(batch.nbytes, text, 8 * batch.num_rows * batch.num_columns))  # as decoded
                _check_text_lengths(file, batch)
                rows = max(1, batch.num_rows * BYTES_PER_BLOCK // max(text, BYTES_PER_BLOCK))
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)
    except (pa.ArrowException, OSError) as error:
        match = re.search(r"Row #(\d+)", str(error))
        raise unreadable(file, error, line=int(match[1]) if match else None) from None


def _parquet_batches(
    file: SourceFile, stream: BinaryIO, columns: list[str], delimiter: str
) -> Iterator[pa.RecordBatch]:
    table = parquet.ParquetFile(stream)
    metadata, schema = table.metadata, table.schema_arrow
    file.reserve(sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)))
    # As a dictionary, a text that occurs in many rows is in memory once.
    texts = [name for name in columns if _is_text_type(schema.field(name).type)]
    table = parquet.ParquetFile(stream, read_dictionary=texts)
    for batch in table.iter_batches(ROWS_PER_BATCH, columns=columns):
        batch.validate(full=True)  # texts that are not UTF-8
        yield batch


def _csv_batches(
    file: SourceFile, stream: BinaryIO, columns: list[str], delimiter: str
) -> Iterator[pa.RecordBatch]:
    # As text, because Arrow would infer types from the first block alone.
    types = {name: pa.string() for name in columns}
    yield from csv.open_csv(
        stream,
        # one thread: row numbers in errors are known only then
        read_options=csv.ReadOptions(block_size=BYTES_PER_BLOCK, use_threads=False),
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(include_columns=columns, column_types=types),
    )


def _text_bytes(values: pa.Array) -> int:
    """Return the size of a dictionary of texts after decoding: a text counts once per row."""
    if not has_text(values) or not pa.types.is_dictionary(values.type):
        return 0
    return compute.sum(compute.binary_length(values.dictionary).take(values.indices)).as_py() or 0


def _check_text_lengths(file: SourceFile, batch: pa.RecordBatch) -> None:
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        texts = values.dictionary if pa.types.is_dictionary(values.type) else values
        if has_text(values) and (compute.max(compute.binary_length(texts)).as_py() or 0) > MAX_TEXT:
            raise data_error(
                file, f"column {name[:40]!r} has a text of more than {MAX_TEXT:,} bytes", column=name
            )


def ends_with_quote(file: SourceFile) -> bool:
    with open(file.path, "rb") as stream:
        stream.seek(max(0, file.path.stat().st_size - 4))
        return stream.read().rstrip(b"\r\n").endswith(b'"')


def column_names(file: SourceFile, client_column: str) -> tuple[list[str], str]:
    """Return the column names and the CSV delimiter, which is the one that separates the client column."""
    try:
        if file.format == "parquet":
            with open(file.path, "rb") as stream:
                table = parquet.ParquetFile(stream)
                _check_column_count(file, table.metadata.num_columns)
                return table.schema_arrow.names, ""
        header = _header(file)
        choices = [(_csv_columns(header, delimiter), delimiter) for delimiter in DELIMITERS]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error) from None
    return next((choice for choice in choices if client_column in choice[0]), choices[0])


def _header(file: SourceFile) -> bytes:
    """Return the first row of a CSV file."""
    with open(file.path, "rb") as stream:
        start = stream.read(BYTES_PER_BLOCK).removeprefix(codecs.BOM_UTF8)
    match = HEADER.match(start)
    header = match[0] if match else b""
    if len(header) >= BYTES_PER_BLOCK:
        raise data_error(file, f"has a first row of more than {BYTES_PER_BLOCK:,} bytes")
    # Arrow allocates memory for each column.
    _check_column_count(file, 1 + max(header.count(delimiter.encode()) for delimiter in DELIMITERS))
    return header + b"\n"


def _check_column_count(file: SourceFile, columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise data_error(file, f"has {columns:,} columns; allowed: {MAX_COLUMNS:,}")


def _csv_columns(header: bytes, delimiter: str) -> list[str]:
    parse_options = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    read_options = csv.ReadOptions(block_size=len(header) + 1)
    return list(csv.read_csv(BytesIO(header), read_options, parse_options).schema.names)


def index_columns(file: SourceFile) -> list[str]:
    """Return the columns of a Parquet file in which pandas has stored the index of the table."""
    try:
        with open(file.path, "rb") as stream:
            metadata = parquet.ParquetFile(stream).schema_arrow.pandas_metadata or {}
            return [name for name in metadata.get("index_columns", []) if isinstance(name, str)]
    except (pa.ArrowException, OSError, ValueError, AttributeError, TypeError, RecursionError):
        return []  # metadata that pandas did not write


def has_text(values: pa.Array) -> bool:
    return _is_text_type(values.type.value_type if pa.types.is_dictionary(values.type) else values.type)


def _is_text_type(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
