"""Reading production logs: files, formats, rows."""
