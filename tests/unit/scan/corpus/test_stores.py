"""Stores: what vouches for an object, which errors mean what, and libraries that are not installed."""

import datetime as dt
import errno
import logging
import sys

import fsspec
import pytest

from dataaudit.base import stores
from dataaudit.base.errors import MissingExtra
from dataaudit.base.stores import BodyError, as_os_error
from dataaudit.scan.corpus.storage.address import Access, RemotePath, RemoteStat
from dataaudit.scan.corpus.storage.remote import _chosen, _web_validator, filesystem, stat_of

WHEN = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
WHEN_NS = int(WHEN.timestamp()) * 10**9


@pytest.mark.parametrize(
    ("info", "validator", "mtime_ns"),
    [
        ({"ETag": '"abc"', "LastModified": WHEN}, 'etag "abc"', 0),
        ({"etag": "e", "generation": "7"}, "etag e", 0),
        ({"md5Hash": "m", "updated": "x"}, "md5hash m", 0),
        ({"VersionId": "v", "LastModified": WHEN}, "versionid v", 0),
        ({"ETag": "", "LastModified": WHEN}, f"time {WHEN}", WHEN_NS),
        ({"mtime": 12.5}, "time 12.5", 12_500_000_000),
        ({"created": WHEN.replace(tzinfo=None)}, f"time {WHEN.replace(tzinfo=None)}", WHEN_NS),
        ({"VersionId": None}, "", 0),
        ({}, "", 0),
    ],
)
def test_the_first_validator_that_a_store_knows_counts(info, validator, mtime_ns):
    """A checksum before a version before a time; a listing and a single answer agree in the first alone."""
    assert stat_of({"size": 5, "type": "file", **info}) == RemoteStat(size=5, validator=validator, mtime_ns=mtime_ns)


@pytest.mark.parametrize("info", [{"size": None}, {}, {"size": 0, "type": "directory"}])
def test_a_file_without_a_size_cannot_be_read(info):
    """Its end could not be told from a broken connection."""
    with pytest.raises(BodyError):
        stat_of(info)


def test_a_time_that_is_none_is_not_trusted_yet():
    """It counts as now."""
    assert stat_of({"size": 1, "modified": "yesterday"}).mtime_ns > WHEN_NS - 10**18


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"ETag": '"x"', "Last-Modified": "Sat, 21 Nov 2026 12:00:00 GMT"}, ('etag "x"', 0)),
        (
            {"ETag": 'W/"x"', "Last-Modified": "Sat, 21 Nov 2026 12:00:00 GMT"},
            ('time Sat, 21 Nov 2026 12:00:00 GMT W/"x"', WHEN_NS),
        ),
        ({"ETag": 'W/"x"'}, ("", 0)),
        ({}, ("", 0)),
    ],
)
def test_a_weak_etag_alone_vouches_for_nothing(headers, expected):
    """It says that two files mean the same, not that their bytes are equal."""
    assert _web_validator(headers) == expected


def test_the_query_that_chooses_counts_and_its_signature_does_not():
    """An address that is signed anew is the same file, another `id` is another one."""
    signed = [f"https://h/x?id=1&X-Amz-Signature={word}&X-Amz-Date={word}&sig={word}&se={word}" for word in "ab"]
    assert _chosen(signed[0]) == _chosen(signed[1]) != _chosen("https://h/x?id=2")
    assert _chosen("https://h/x?sig=a") == _chosen("https://h/x") == ""


class StatusError(Exception):
    """As aiohttp raises."""

    def __init__(self, status):
        super().__init__("https://h/x?sig=secret")
        self.status = status


def of_botocore(status):
    """Return an error as s3fs translates it, with botocore's behind it."""
    made, cause = OSError(5, "secret"), Exception("secret")
    cause.response = {"Error": {"Code": "Odd"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    made.__cause__ = cause
    return made


@pytest.mark.parametrize(
    ("error", "kind", "number"),
    [
        (StatusError(404), FileNotFoundError, errno.ENOENT),
        (StatusError(410), FileNotFoundError, errno.ENOENT),
        (StatusError(401), PermissionError, errno.EACCES),
        (StatusError(403), PermissionError, errno.EACCES),
        (StatusError(503), OSError, errno.EIO),
        (of_botocore(404), FileNotFoundError, errno.ENOENT),
        (of_botocore(403), PermissionError, errno.EACCES),
        (of_botocore(500), OSError, errno.EIO),
        (FileNotFoundError("secret"), FileNotFoundError, errno.ENOENT),
        (PermissionError("secret"), PermissionError, errno.EACCES),
        (type("NoCredentialsError", (Exception,), {})("secret"), stores.NoCredentialsError, errno.EACCES),
        (TimeoutError(), OSError, errno.EIO),
        (ValueError("secret"), OSError, errno.EIO),
    ],
)
def test_every_error_has_a_number_and_no_word_of_the_library(error, kind, number):
    """404 is gone, 401 and 403 are forbidden, anything else may pass."""
    made = as_os_error(error, "s3://b/k")
    assert type(made) is kind
    assert (made.errno, made.filename) == (number, "s3://b/k")
    assert "secret" not in str(made)


@pytest.mark.parametrize(("scheme", "module", "extra"), [("s3", "s3fs", "s3"), ("https", "aiohttp", "http")])
def test_the_extra_of_a_store_that_is_not_installed_is_named(scheme, module, extra, monkeypatch):
    """With the line to type; no traceback."""
    monkeypatch.setitem(sys.modules, module, None)
    stores._filesystem.cache_clear()
    with pytest.raises(MissingExtra, match=rf"reading {scheme}:// .*: pip install 'dataaudit\[{extra}\]'$"):
        filesystem(RemotePath(f"{scheme}://b/k", "", Access()))


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    """Of a store that has no extra: what fsspec says of it; no traceback."""

    def absent(scheme):
        raise ImportError("secret")

    monkeypatch.setattr(fsspec, "get_filesystem_class", absent)
    stores._filesystem.cache_clear()
    with pytest.raises(stores.ConfigError) as caught:
        filesystem(RemotePath("gs://b/k", "", Access()))
    assert "gcsfs" in caught.value.hint
    assert "secret" not in str(caught.value)


def test_one_filesystem_serves_a_process_and_another_process_has_its_own(monkeypatch):
    """The pool of connections is shared within a process and never across a fork."""
    path = RemotePath("s3://b/k", "s3://b/k", Access())
    first = filesystem(path)
    assert filesystem(RemotePath("s3://c/l", "s3://c/l", Access())) is first
    monkeypatch.setattr(stores.os, "getpid", lambda: -1)
    assert filesystem(path) is not first
    assert (first.retries, first.config_kwargs["read_timeout"]) == (1, 30.0)


def test_what_an_address_says_of_its_host_reaches_the_store():
    """Host, port and user of a store that is no bucket."""
    made = filesystem(RemotePath("webhdfs://host:14000/x", "webhdfs://me@host:14000/x", Access()))
    assert (made.storage_options["host"], made.storage_options["port"]) == ("host", 14000)
    assert made.storage_options["user"] == "me"


def test_libraries_do_not_log():
    """What they log may hold an address with its signature."""
    filesystem(RemotePath("memory://x", "memory://x", Access()))
    assert not logging.getLogger("s3fs").isEnabledFor(logging.ERROR)
    assert not logging.getLogger("aiobotocore.httpsession").isEnabledFor(logging.ERROR)
    assert not logging.getLogger("httpx2").isEnabledFor(logging.ERROR)


def test_the_users_own_fsspec_configuration_counts(monkeypatch):
    """Anonymous access and other options come from where fsspec takes them."""
    from fsspec.config import conf

    monkeypatch.setitem(conf, "s3", {"anon": True, "config_kwargs": {"read_timeout": 7}})
    made = stores._filesystem.__wrapped__(0, 0, "s3", "", 30.0)
    assert made.anon
    assert made.config_kwargs["read_timeout"] == 7
    assert made.config_kwargs["retries"]["total_max_attempts"] == 1


def test_a_store_is_opened_anew_when_the_environment_names_another(monkeypatch):
    """In a notebook: credentials and endpoints of an earlier build are not those of the next."""
    path = RemotePath("s3://b/k", "", Access())
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    first = filesystem(path)
    monkeypatch.setenv("SOMETHING_ELSE", "x")
    assert filesystem(path) is first
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:2")
    assert filesystem(path) is not first
