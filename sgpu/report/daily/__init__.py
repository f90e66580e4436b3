"""The page of one day of scores, made from the summaries that the runs leave beside the table."""
