-- The rows that wait for others: together by what they wait for, in the order of the logs.
SELECT * EXCLUDE item
FROM source
ORDER BY join_key, coalesce(split, 0), coalesce(line, 0), item
