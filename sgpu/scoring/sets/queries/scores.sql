-- The new rows of the score table, by the rows of their scores.
SELECT scored AS item, request_id, timestamp, model, route, label, status, content AS content_sha256, members
FROM results
WHERE refusal IS NULL
ORDER BY scored
