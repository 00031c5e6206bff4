"""One tree of blocks, and how a terminal, a page of HTML and Markdown show it."""
