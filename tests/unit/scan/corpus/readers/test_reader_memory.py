import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.tables

MIB = 1 << 20


def test_a_line_of_200_mb_is_counted_in_a_few_megabytes(tmp_path, peak_bytes):
    """Of a line beyond the limit only the length is kept, however long it is."""
    path = tmp_path / "shard.jsonl.gz"
    block = b"0" * (8 * MIB)
    with gzip.open(path, "wb", compresslevel=1) as target:
        for _ in range(25):
            target.write(block)
        target.write(b'\n{"text":"after"}\n')
    growth, printed = peak_bytes(
        "total, losses = read(sys.argv[1], 'jsonl', 'gzip', max_record_bytes=1 << 20)\n"
        "print(total, dict(losses.num_bytes))",
        str(path),
    )
    assert printed == f"5 {{<Reason.OVERSIZE: 'oversize_record'>: {200 * MIB}}}"
    assert growth < 40 * MIB


@pytest.mark.parametrize(
    ("rows_per_page", "limit"), [(10, 120 * MIB), (1_000, 560 * MIB)], ids=["pages of 3 MB", "one page"]
)
def test_a_row_group_of_300_mb_is_held_by_the_page(tmp_path, peak_bytes, rows_per_page, limit):
    """Memory depends on the batch and the page, not on the row group; a page is in memory less than twice."""
    path = tmp_path / "shard.parquet"
    letters = np.random.default_rng(0).integers(97, 123, 3_000_000, dtype=np.uint8).tobytes().decode()
    texts = [letters[start : start + 300_000] for start in range(0, 2_700_000, 2_700)]
    pq.write_table(
        pa.table({"text": texts}),
        path,
        row_group_size=1_000,
        write_batch_size=rows_per_page,
        compression="none",
        use_dictionary=False,
    )
    growth, printed = peak_bytes("print(read(sys.argv[1], 'parquet', 'none')[0])", str(path))
    assert int(printed) == 300_000_000
    assert growth < limit


def test_a_dictionary_that_unfolds_to_gigabytes_is_read_in_pieces(tmp_path, peak_bytes):
    """A few long values that repeat take no room in the file; decoded, they must not be in memory all at once."""
    path = tmp_path / "shard.parquet"
    codes = np.arange(20_000, dtype=np.int32) % 5
    texts = pa.DictionaryArray.from_arrays(codes, [letter * 90_000 for letter in "abcde"])
    pq.write_table(pa.table({"text": texts}), path, store_schema=False)
    assert path.stat().st_size < MIB
    growth, printed = peak_bytes("print(read(sys.argv[1], 'parquet', 'none')[0])", str(path))
    assert int(printed) == 20_000 * 90_000
    assert growth < 200 * MIB
