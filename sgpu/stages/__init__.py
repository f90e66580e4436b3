"""The stages of a study: what each does to rows."""
