"""What codes mean, in plain English: reasons of losses, paths of encoders, absent judges, exit codes.

The texts repeat the code's own definitions for people; a test holds that no code is without one.
"""

from __future__ import annotations

from dataaudit.errors import ExitCode

_UNEXPLAINED = "a code that this version has no text for"

REASONS: dict[str, str] = {
    "invalid_utf8": "bytes of a record are not UTF-8",
    "invalid_json": "a line is not one JSON value that can be read",
    "not_an_object": "a line is valid JSON, but no object",
    "duplicate_key": "an object in a line names a key twice: readers disagree on which value counts",
    "text_missing": "the text of a record is absent or null",
    "type_mismatch": "the text of a record is no string; numbers are not converted",
    "source_type_mismatch": "the source of a record is neither a string nor absent",
    "oversize_record": "a record is larger than reader.max_line_bytes",
    "not_finite": "NaN or an infinity stands outside the text and is read as null; nothing is lost",
    "wrong_number_of_fields": "a row of a CSV file has another number of fields than its header",
    "too_many_bad_records": "the bad records, or their bytes, are a larger share than reader.max_bad_records",
    "truncated_stream": "the file ends before the end marker of its stream, or is empty: it was cut short",
    "window_too_large": "the zstd or xz file needs over 128 MiB of memory to read; compress it anew",
    "dictionary_needed": "a zstd frame was compressed with a dictionary of its own",
    "expansion_too_large": "the compressed file holds far more than its own size, as a bomb does",
    "corrupt_stream": "the compressed file is damaged, or bytes follow its end",
    "not_parquet": "the file has no readable Parquet footer",
    "corrupt_parquet": "a page or row group of the Parquet file cannot be decoded",
    "encrypted": "the footer or a column of the Parquet file is encrypted; no keys are taken: write it anew, decrypted",
    "not_arrow": "the file is no Arrow stream, and no Arrow file with a readable footer",
    "feather_v1": "the file is Feather of version 1, which is not read; write it anew",
    "corrupt_arrow": "a record batch of the Arrow file cannot be decoded, or something follows its end",
    "unreadable_dataset": "rows of the streamed dataset cannot be decoded",
    "text_column_missing": "no column has the name of the text column",
    "source_column_missing": "no column has the name of the source column",
    "ambiguous_column": "two columns have the name that is asked for",
    "unknown_format": "the file's suffix names no format that is read",
    "link_outside_root": "the file is a link out of the root folder; reader.follow_symlinks allows that",
    "source_pattern_mismatch": "the URI does not match the pattern that gives the source",
    "not_a_file": "a pipe, a device or a socket, not a file",
    "not_found": "the file is gone",
    "permission_denied": "the file may not be read, or its folder not be listed, by this user",
    "io_error": "reading the file failed again and again",
    "changed_while_read": "the file changed while it was read; build again when it is at rest",
    "worker_died": "reading it alone ends the worker process",
    "out_of_memory": "reading it alone needs more memory than a worker has (--memory-limit)",
    "timed_out": "reading it alone does not end in time (--shard-timeout)",
    "quarantine_list": "the quarantine list of the build holds it back",
    "internal_error": "our own code failed on it; please report it",
}

STATUSES: dict[str, str] = {
    "ok": "read as a whole",
    "partial": "read, without its bad records",
    "quarantined": "in no number: it cannot be read, or too much of it is bad",
    "skipped": "in no number: its name or place, or the quarantine list, says that it is not to be read",
}

ENCODERS: dict[str, str] = {
    "ok": "the fast encoder, checked against the reference",
    "unsupported_model": "the reference encoder: the fast one cannot load this model",
    "rewrites_characters": "the reference encoder: the model rewrites characters, which the fast one does otherwise",
    "differs_on_ascii": "the reference encoder: the fast one differs on plain ASCII text with this model",
    "differs_on_mixes": "the reference encoder: the fast one differs on mixed text with this model",
    "sample_difference": "the reference encoder: the fast one differed on a sampled document",
}

ABSENCES: dict[str, str] = {
    "no_judge": "no judge is set in the config",
    "no_analyzer": "no analyzer is set in the config",
    "not_installed": "a library that the judge needs is not installed",
    "weights_absent": "the judge's model is not on this machine and could not be fetched",
    "config_absent": "the settings that belong to the judge's model are not on this machine and could not be fetched",
    "broken_checkpoint": "the file of the judge's model is damaged, or of a form that is not known",
    "unsafe_checkpoint": "the file of the judge's model asks to run code while it is read",
    "no_device": "the device that the config names is not here",
    "not_judged": "the judge has no answer for any document of the sample",
    "empty_denominator": "no document is in a language that the judge reads",
}
"""Why there is no rate of a judge."""

EXIT_CODES: dict[int, str] = {
    ExitCode.PASS: "pass",
    ExitCode.BUDGET_EXCEEDED: "a budget is exceeded",
    ExitCode.WRONG_USE: "wrong use or config",
    ExitCode.NOT_EVALUATED: "could not evaluate: published, but not every shard is in the numbers",
    ExitCode.NOTHING_EVALUATED: "nothing was evaluated: no shard entered the numbers",
    ExitCode.HELD_OUT: "held-out documents are in token files",
    ExitCode.INTERRUPTED: "interrupted",
}


def reason_text(code: str) -> str:
    """Return what a reason code means."""
    return REASONS.get(code, _UNEXPLAINED)


def encoder_text(code: str) -> str:
    """Return who counted the tokens, and why."""
    return ENCODERS.get(code, f"the reference encoder: {code}, {_UNEXPLAINED}")


def absence_text(code: str) -> str:
    """Return why a judge has no rate."""
    return ABSENCES.get(code, f"{code}, {_UNEXPLAINED}")


def exit_text(code: int) -> str:
    """Return what an exit code means."""
    return EXIT_CODES.get(code, _UNEXPLAINED)
