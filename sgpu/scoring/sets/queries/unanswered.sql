-- Requests that have to be sampled anew. ``source`` holds all questions.
SELECT chosen.item, request_id, model, source.prompt
FROM chosen
JOIN source ON source.item = items[1]
WHERE NOT answered
ORDER BY request_id, model
