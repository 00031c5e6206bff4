"""What a wrong decoder or a careless extractor left in texts."""
