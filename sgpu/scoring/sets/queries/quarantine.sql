-- All rows that are refused, by file and line.
WITH refused AS (
    SELECT item, reason, detail FROM items WHERE kind = 3
    UNION ALL
    SELECT item, reason, detail FROM fates WHERE fate = 'refused' AND item >= 0
    UNION ALL
    SELECT unnest(items), fates.reason, detail FROM fates JOIN sets USING (item) WHERE fate = 'refused'
    UNION ALL
    SELECT unnest(items), refusal, why FROM results WHERE refusal IS NOT NULL
)
SELECT
    file, lines_before + line AS line, request_id, timestamp, model, route, refused.reason, refused.detail
FROM refused
JOIN items USING (item)
JOIN splits USING (split)
ORDER BY file, coalesce(lines_before + line, 0), coalesce(request_id, ''), refused.reason
