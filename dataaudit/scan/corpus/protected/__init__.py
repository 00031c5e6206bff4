"""Protected sets: held-out documents and evaluation items, and how training documents are searched for them."""
