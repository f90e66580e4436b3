-- Single answers by the set that they belong to, in the order of the logs. ``elsewhere``: it is in another
-- committed set. ``scored``: of how many answers its set is committed.
WITH kept AS (SELECT * FROM committed WHERE members IS NOT NULL AND NOT replaced),
placed AS (SELECT DISTINCT model, unnest(members) AS request_id FROM kept),
sets AS (SELECT request_id AS set_id, max(len(members)) AS scored FROM kept GROUP BY request_id)
SELECT items.*, placed.request_id IS NOT NULL AS elsewhere, sets.scored
FROM items
LEFT JOIN placed
    ON items.request_id = placed.request_id AND items.model IS NOT DISTINCT FROM placed.model
LEFT JOIN sets USING (set_id)
WHERE items.kind = 1
ORDER BY set_id, split, coalesce(line, 0), item
