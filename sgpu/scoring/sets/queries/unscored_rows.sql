-- The answers of rows that are to be scored, equal ones once. ``source`` holds all texts.
SELECT set_key, texts
FROM source
JOIN (
    SELECT min(item) AS item, set_key
    FROM chosen
    ANTI JOIN scored USING (set_key)
    WHERE answered AND item >= 0
    GROUP BY set_key
) USING (item)
