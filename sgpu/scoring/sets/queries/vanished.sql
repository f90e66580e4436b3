-- Requests of the day that is written anew, that would not stand in it any more.
SELECT count(*) AS requests
FROM committed
WHERE replaced AND NOT EXISTS (
    FROM results
    WHERE refusal IS NULL AND results.request_id = committed.request_id
    AND results.model IS NOT DISTINCT FROM committed.model
)
