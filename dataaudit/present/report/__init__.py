"""What people read of a manifest: the screen of `show`, `inspect`, and the HTML report."""
