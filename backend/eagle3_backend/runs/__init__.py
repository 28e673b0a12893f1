"""What happened: run records, journals in SQLite, log segments and series."""
