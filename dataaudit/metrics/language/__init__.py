"""The languages of documents."""
