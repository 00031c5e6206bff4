"""Annotators: what documents are seen with. Each says one thing of every document of a batch, by name."""
