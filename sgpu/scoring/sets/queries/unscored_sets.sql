-- The answers of sets of single answers, set by set. ``source`` holds all texts.
WITH members AS (
    SELECT set_key, unnest(items) AS item, generate_subscripts(items, 1) AS place
    FROM chosen
    ANTI JOIN scored USING (set_key)
    WHERE answered AND item < 0
)
SELECT set_key, texts
FROM members
JOIN source USING (item)
ORDER BY set_key, place
