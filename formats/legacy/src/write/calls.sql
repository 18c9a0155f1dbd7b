-- Regions, and samples of threads, as calls. Ranges are called UserMarker and have their message as args.

CREATE TEMP TABLE valued (event_id INTEGER PRIMARY KEY);
INSERT OR IGNORE INTO valued SELECT event_id FROM temp.pmc_event WHERE event_id IS NOT NULL;

CREATE TEMP TABLE args (event_id INTEGER PRIMARY KEY, text TEXT);
INSERT INTO args
SELECT a.event_id, group_concat(iif(a.name = 'args' AND a.type = 'string', a.value, a.name || '=' || coalesce(a.value, '')), ' | ' ORDER BY a.position)
  FROM temp.arg a
 WHERE NOT EXISTS (SELECT 1 FROM told_arg told WHERE told.event_id = a.event_id AND told.position = a.position)
 GROUP BY a.event_id;

-- Samples are numbered behind the regions, also where their own ids are not.
CREATE TEMP TABLE call AS
SELECT reg.id AS id, reg.tid AS thread_id, reg.start AS start, reg."end" AS "end", reg.name_id AS name_id, reg.event_id AS event_id
  FROM temp.region reg
 UNION ALL
SELECT smp.id + shift.n, trk.tid, smp.timestamp, smp.timestamp, trk.name_id, smp.event_id
  FROM temp.sample smp
  JOIN temp.track trk ON trk.id = smp.track_id
  JOIN (SELECT coalesce((SELECT max(id) FROM temp.region), 0)
               * (coalesce((SELECT min(id) FROM temp.sample), 0) <= coalesce((SELECT max(id) FROM temp.region), 0)) AS n) shift
 WHERE trk.tid IS NOT NULL AND (smp.event_id IS NULL OR smp.event_id NOT IN (SELECT event_id FROM valued));

CREATE TEMP TABLE described AS
SELECT c.id AS id, c.thread_id, c.start, c."end", coalesce(cat.is_range, 0) AS is_range, c.name_id,
       -- A `.rpd` that tells its domain tells its category, or has none.
       iif(told.domain IS NULL, ev.category_id, (SELECT min(id) FROM rocpd_string WHERE string = coalesce(told.category, ''))) AS category_id,
       iif(told.domain IS NULL, cat.domain_id, (SELECT min(id) FROM rocpd_string WHERE string = told.domain)) AS domain_id, ev.stack_id,
       CASE WHEN cat.is_range THEN
           coalesce(iif(ev.extdata LIKE '%"message"%' AND json_valid(ev.extdata), json_extract(ev.extdata, '$.message'), NULL),
                    (SELECT string FROM rocpd_string WHERE id = c.name_id AND string <> 'UserMarker'))
       ELSE args.text END AS text
  FROM call c
  LEFT JOIN temp.event ev ON ev.id = c.event_id
  LEFT JOIN category cat ON cat.id = ev.category_id
  LEFT JOIN told ON told.event_id = c.event_id
  LEFT JOIN args ON args.event_id = c.event_id;

INSERT INTO rocpd_ustring (id, string)
SELECT id + 1, CAST(text AS TEXT) FROM described WHERE text IS NOT NULL AND text <> '' ORDER BY id;

INSERT INTO rocpd_api (id, pid, tid, start, "end", apiName_id, category_id, domain_id, args_id)
SELECT d.id, coalesce(thr.pid, 0), coalesce(thr.tid, 0), d.start, d."end",
       iif(d.is_range, words.marker, coalesce(d.name_id, words.unknown)),
       coalesce(d.category_id, words.empty), coalesce(d.domain_id, words.empty),
       iif(d.text IS NULL OR d.text = '', 1, d.id + 1)
  FROM described d
  LEFT JOIN thread thr ON thr.id = d.thread_id
  JOIN (SELECT (SELECT min(id) FROM rocpd_string WHERE string = 'UserMarker') AS marker,
               (SELECT min(id) FROM rocpd_string WHERE string = '(unknown)') AS unknown,
               (SELECT min(id) FROM rocpd_string WHERE string = '') AS empty) words
 ORDER BY d.id;

INSERT INTO rocpd_stackframe (api_ptr_id, depth, name_id)
SELECT c.id, coalesce(json_extract(frame.value, '$.depth'), frame.key),
       (SELECT min(id) FROM rocpd_string WHERE string = coalesce(CAST(json_extract(frame.value, '$.name') AS TEXT), '(unknown)'))
  FROM call c
  JOIN temp.event ev ON ev.id = c.event_id
  JOIN json_each(ev.call_stack, '$.frames') frame
 WHERE ev.call_stack LIKE '{"frames"%' AND json_valid(ev.call_stack);

-- The call of each stack id: kernels and copies have that of the call that asked for them.
CREATE TEMP TABLE stack (stack_id INTEGER PRIMARY KEY, api_id INTEGER NOT NULL);
INSERT OR IGNORE INTO stack SELECT stack_id, id FROM described WHERE stack_id <> 0 ORDER BY id;
