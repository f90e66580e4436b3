-- Rows with one id that do not agree, or not with what is committed, in the order of the logs. ``source`` holds
-- all texts.
SELECT candidates.*, source.texts, standing.content_sha256, standing.date, standing.replaced
FROM candidates
JOIN fates USING (item)
LEFT JOIN source USING (item)
LEFT JOIN standing
    ON candidates.request_id = standing.request_id
    AND candidates.model IS NOT DISTINCT FROM standing.model
WHERE fate = 'contested'
ORDER BY candidates.request_id, candidates.model, split, coalesce(line, 0), item
