-- Requests of which all rows agree with each other and with what is committed: the first in the logs counts.
INSERT INTO fates
SELECT
    item,
    CASE
        WHEN NOT agreed THEN 'contested'
        WHEN replaced IS false THEN 'already'
        WHEN row_number() OVER (PARTITION BY model, request_id ORDER BY split, coalesce(line, 0), item) = 1
            THEN 'scored'
        ELSE 'duplicate'
    END AS fate,
    NULL AS reason,
    NULL AS detail
FROM (
    SELECT
        candidates.*,
        standing.replaced,
        min(content) OVER same = max(content) OVER same AND (
            standing.content_sha256 IS NULL
            OR standing.content_sha256 = content
        ) AS agreed
    FROM candidates
    LEFT JOIN standing
        ON candidates.request_id = standing.request_id
        AND candidates.model IS NOT DISTINCT FROM standing.model
    WINDOW same AS (PARTITION BY candidates.model, candidates.request_id)
)
