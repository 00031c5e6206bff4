"""Names that are too long for their place keep what tells them apart."""

from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.base.render.line import cells, shortened

HIVE = "train/train/source=common-crawl/year=2020/part-00017-3f2a9c7e-c000.snappy.parquet"


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [
        ("train/train/manual/part-002.jsonl.zst", 26, ".../manual/part-002..."),
        ("train/train/manual/part-002.jsonl.zst", 40, "train/train/manual/part-002.jsonl.zst"),
        (HIVE, 64, ".../source=common-crawl/year=2020/part-00017-3f2a9c7e-c000..."),
        (HIVE, 42, ".../year=2020/part-00017-3f2a9c7e-c000..."),
        (HIVE, 30, ".../year=2020/part-00...e-c000"),
        ("train/source=web/shard_of_a_long_name_00017.parquet", 30, ".../source=web/shard_..._00017"),
    ],
)
@pytest.mark.parametrize("head", [True, False])
def test_of_a_path_the_last_folders_and_the_file_are_kept(name, width, shown, head):
    assert shortened(name, width, head=head) == shown


PATHS = st.text(alphabet="ab/.=-é日", max_size=200)


@given(name=PATHS | st.text(max_size=300), width=st.integers(8, 100), head=st.booleans())
def test_it_fits_and_steers_no_terminal(name, width, head):
    """Cells, not characters."""
    short = shortened(name, width, head=head)
    assert cells(short) <= width
    assert not {category(character) for character in short} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
