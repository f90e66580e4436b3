-- Rows of the logs by what became of them.
SELECT fate, sum(coalesce(len(items), 1))::BIGINT AS rows
FROM fates
LEFT JOIN sets USING (item)
GROUP BY fate
