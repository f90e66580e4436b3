-- What is known of a day before anything is decided.
-- Rows of the logs (``item``: their number) that stand for a request, an answer or a refusal, without texts.
CREATE TABLE items (
    item BIGINT, kind TINYINT, split INTEGER, line BIGINT, request_id VARCHAR, timestamp BIGINT, model VARCHAR,
    route VARCHAR, dropped VARCHAR[], label TINYINT, set_id VARCHAR, reason VARCHAR, detail VARCHAR,
    content VARCHAR, asked VARCHAR, askable BOOLEAN
);
-- Sets of single answers: ``items`` are their answers, and their own numbers are below 0.
CREATE TABLE sets (
    item BIGINT, request_id VARCHAR, model VARCHAR, timestamp BIGINT, route VARCHAR, label TINYINT,
    content VARCHAR, asked VARCHAR, askable BOOLEAN, answered BOOLEAN, status VARCHAR, reason VARCHAR, members VARCHAR[],
    items BIGINT[]
);
-- What the score table holds of the days around. ``replaced``: this run writes its day anew.
CREATE TABLE committed (
    request_id VARCHAR, model VARCHAR, content_sha256 VARCHAR, members VARCHAR[], date VARCHAR,
    replaced BOOLEAN
);
-- What becomes of a row, or of a set of rows.
CREATE TABLE fates (item BIGINT, fate VARCHAR, reason VARCHAR, detail VARCHAR);
-- What a server was asked again: the key of its answers, or why there are none.
CREATE TABLE resampled (item BIGINT, set_key VARCHAR, failure VARCHAR);
-- A set of answers that was scored, by the number of its row in the files of scores; or why it has no score.
CREATE TABLE scored (item BIGINT, set_key VARCHAR, refusal VARCHAR, why VARCHAR);
-- Where a part of a file begins.
CREATE TABLE splits (split INTEGER, file VARCHAR, lines_before BIGINT);
-- What is committed of a request. A set that is made anew has none, but no other request may take its id.
CREATE VIEW standing AS
SELECT model, request_id, content_sha256, date, replaced
FROM committed
WHERE members IS NULL OR NOT replaced
QUALIFY row_number() OVER (PARTITION BY model, request_id ORDER BY date DESC) = 1;
-- Requests that could be scored: rows with all their answers, and sets.
CREATE VIEW candidates AS
SELECT
    item, request_id, model, timestamp, route, label, content, asked, split, line, askable,
    kind = 0 AS answered, CASE WHEN len(dropped) > 0 THEN 'partial' ELSE 'ok' END AS status, reason,
    NULL::VARCHAR[] AS members, [item] AS items
FROM items
WHERE kind IN (0, 2)
UNION ALL BY NAME
FROM sets;
-- Those that are new, by the answers that are to be scored and the question, where a model reads it.
CREATE VIEW chosen AS
SELECT
    candidates.*, failure,
    coalesce(set_key, CASE WHEN answered THEN concat_ws(' ', content, asked) END) AS set_key
FROM candidates
JOIN fates USING (item)
LEFT JOIN resampled USING (item)
WHERE fate = 'scored';
-- And what came of them: ``refusal`` says why one has no score.
CREATE VIEW results AS
SELECT
    chosen.* EXCLUDE (status, reason),
    CASE WHEN answered THEN status ELSE 'resampled' END AS status,
    CASE WHEN set_key IS NULL THEN reason ELSE refusal END AS refusal,
    CASE WHEN set_key IS NULL THEN coalesce(failure, 'was not sampled anew') ELSE why END AS why,
    scored.item AS scored
FROM chosen
LEFT JOIN (
    FROM scored QUALIFY row_number() OVER (PARTITION BY set_key ORDER BY item) = 1  -- two runs at once score twice
) AS scored USING (set_key);
