"""Shell commands: parsing, their accesses, and running them."""
