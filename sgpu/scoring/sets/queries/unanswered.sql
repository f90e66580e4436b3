-- Requests that have to be sampled anew, by the row that holds their question.
SELECT items[1] AS item, item AS request, request_id, model, asked
FROM chosen
WHERE NOT answered
ORDER BY 1
