-- Answers of a server that are to be scored.
SELECT DISTINCT set_key FROM resampled ANTI JOIN scored USING (set_key) WHERE set_key IS NOT NULL ORDER BY 1
