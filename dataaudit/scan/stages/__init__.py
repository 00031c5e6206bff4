"""What all stages share: their protocol, partials and the tables that they count in."""
