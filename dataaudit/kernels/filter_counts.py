"""What is counted in a document for the quality rules: one column of int64 each, and the scanner's own state."""

from __future__ import annotations

COUNTS = (
    "chars",
    "break_chars",
    "breaks",
    "lines",
    "bullet_lines",
    "ellipsis_lines",
    "content_lines",
    "terminal_lines",
    "short_lines",
    "duplicate_lines",
    "duplicate_line_chars",
    "paragraphs",
    "duplicate_paragraphs",
    "duplicate_paragraph_chars",
    "words",
    "plain_words",
    "plain_chars",
    "letter_words",
    "stop_words",
    "hashes",
    "ellipses",
    "lorem_ipsum",
    "curly_brackets",
    "sentences",
    "sentences_terminal",
    "sentences_long_enough",
    "sentences_short_words",
    "sentences_no_javascript",
    "sentences_no_policy",
    "sentences_left",
    "top_2_gram_chars",
    "top_3_gram_chars",
    "top_4_gram_chars",
    "duplicate_5_gram_chars",
    "duplicate_6_gram_chars",
    "duplicate_7_gram_chars",
    "duplicate_8_gram_chars",
    "duplicate_9_gram_chars",
    "duplicate_10_gram_chars",
)
"""Names of the columns, in order; docs/concepts/quality-rules.md says what each counts."""

NUM_COUNTS = len(COUNTS)

CHARS, BREAK_CHARS, BREAKS, LINES, BULLET_LINES, ELLIPSIS_LINES = range(6)
CONTENT_LINES, TERMINAL_LINES, SHORT_LINES, DUPLICATE_LINES, DUPLICATE_LINE_CHARS = range(6, 11)
PARAGRAPHS, DUPLICATE_PARAGRAPHS, DUPLICATE_PARAGRAPH_CHARS = range(11, 14)
WORDS, PLAIN_WORDS, PLAIN_CHARS, LETTER_WORDS, STOP_WORDS, HASHES, ELLIPSES = range(14, 21)
LOREM_IPSUM, CURLY_BRACKETS, SENTENCES, SENTENCES_TERMINAL, SENTENCES_LONG_ENOUGH = range(21, 26)
SENTENCES_SHORT_WORDS, SENTENCES_NO_JAVASCRIPT, SENTENCES_NO_POLICY, SENTENCES_LEFT = range(26, 30)
TOP_2_GRAM_CHARS = 30
DUPLICATE_5_GRAM_CHARS = 33

SENTENCE_OPEN = NUM_COUNTS
"""State: 1 after a word that ends a sentence."""
LINE_SENTENCES = NUM_COUNTS + 1
"""State: sentences that began in this line after its first."""
STOP_BITS = NUM_COUNTS + 2
"""State: a bit for each stop word that was met."""
ENTRIES = NUM_COUNTS + 3
"""State: lines and paragraphs that are kept for the search of duplicates."""
PARAGRAPH_CHARS = NUM_COUNTS + 4
"""State: characters of the paragraph so far, breaks within it included; -1 outside of one."""
GAP_CHARS = NUM_COUNTS + 5
"""State: characters of the last line break."""
NUM_STATE = NUM_COUNTS + 6
