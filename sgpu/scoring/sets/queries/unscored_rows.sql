-- Rows whose answers are to be scored, equal ones to one question once.
SELECT min(item) AS item, set_key
FROM chosen
ANTI JOIN scored USING (set_key)
WHERE answered AND item >= 0
GROUP BY set_key
ORDER BY item
