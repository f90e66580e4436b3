-- Rows with one id that do not agree, or not with what is committed.
SELECT candidates.*, standing.content_sha256, standing.date, standing.replaced
FROM candidates
JOIN fates USING (item)
LEFT JOIN standing
    ON candidates.request_id = standing.request_id
    AND candidates.model IS NOT DISTINCT FROM standing.model
WHERE fate = 'contested'
ORDER BY item
