"""Search by file name and by content."""
