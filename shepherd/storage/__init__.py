"""A PostgreSQL database that servers share, behind the interface of SQLite files."""
