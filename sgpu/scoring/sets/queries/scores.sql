-- The new rows of the score table.
SELECT * FROM results WHERE refusal IS NULL ORDER BY request_id, coalesce(model, '')
