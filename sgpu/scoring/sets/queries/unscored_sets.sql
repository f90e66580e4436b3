-- The answers of sets of single answers that are to be scored.
SELECT unnest(items) AS item, set_key, generate_subscripts(items, 1) AS place
FROM chosen
ANTI JOIN scored USING (set_key)
WHERE answered AND item < 0
ORDER BY item
