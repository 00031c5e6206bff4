"""What everything rests on: errors, text, files, processes, statistics, and the blocks that pages are made of."""
