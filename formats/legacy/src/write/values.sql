-- Values of operations as counters, values over time as rows of the monitor. :gpu is the stride.

CREATE TEMP TABLE work_event (event_id INTEGER PRIMARY KEY, op_id INTEGER NOT NULL);
INSERT OR IGNORE INTO work_event SELECT event_id, id FROM temp.kernel_dispatch WHERE event_id IN (SELECT event_id FROM valued);
INSERT OR IGNORE INTO work_event SELECT event_id, op_id FROM copied WHERE event_id IN (SELECT event_id FROM valued);

CREATE TEMP TABLE moment (event_id INTEGER PRIMARY KEY, timestamp INTEGER NOT NULL, held INTEGER);
INSERT OR IGNORE INTO moment
SELECT event_id, timestamp, iif(extdata LIKE '{"rpd"%' AND json_valid(extdata), json_extract(extdata, '$.rpd.duration_ns'), NULL)
  FROM temp.sample WHERE event_id IN (SELECT event_id FROM valued) AND event_id NOT IN (SELECT event_id FROM work_event);

INSERT INTO rocpd_counter (value, op_id, name_id)
SELECT val.value, work.op_id, (SELECT min(id) FROM rocpd_string WHERE string = coalesce(nullif(pmc.symbol, ''), pmc.name, '(unknown)'))
  FROM temp.pmc_event val
  JOIN work_event work ON work.event_id = val.event_id
  LEFT JOIN temp.info_pmc pmc ON pmc.id = val.pmc_id
 ORDER BY val.id;

-- A value holds until the next one of its counter, unless it says how long.
INSERT INTO rocpd_monitor (deviceType, deviceId, monitorType, start, "end", value)
SELECT -- The monitor of a `.rpd` has its own words for devices, before the name of the counter.
       iif(pmc.component = 'monitor' AND pmc.symbol <> '' AND substr(pmc.name, -length(pmc.symbol) - 1) = '.' || pmc.symbol,
           substr(pmc.name, 1, length(pmc.name) - length(pmc.symbol) - 1), coalesce(nullif(a.kind, ''), 'cpu')),
       coalesce(a.device + a.node * :gpu, 0), coalesce(nullif(pmc.symbol, ''), pmc.name, '(unknown)'),
       m.timestamp,
       coalesce(m.timestamp + m.held, lead(m.timestamp) OVER (PARTITION BY val.pmc_id ORDER BY m.timestamp, val.id), m.timestamp),
       CASE WHEN val.value IS NULL
            THEN coalesce(iif(json_valid(val.extdata), json_extract(val.extdata, '$.rpd.value'), NULL), '')
            WHEN val.value = CAST(val.value AS INTEGER) THEN CAST(CAST(val.value AS INTEGER) AS TEXT)
            ELSE CAST(val.value AS TEXT) END
  FROM temp.pmc_event val
  JOIN moment m ON m.event_id = val.event_id
  LEFT JOIN temp.info_pmc pmc ON pmc.id = val.pmc_id
  LEFT JOIN agent a ON a.id = pmc.agent_id
 ORDER BY val.id;

INSERT INTO main.rocpd_string (id, string)
SELECT id, string FROM temp.rocpd_string
 WHERE id IN (SELECT apiName_id FROM rocpd_api UNION SELECT category_id FROM rocpd_api UNION SELECT domain_id FROM rocpd_api
              UNION SELECT description_id FROM rocpd_op UNION SELECT opType_id FROM rocpd_op
              UNION SELECT kernelName_id FROM rocpd_kernelapi UNION SELECT name_id FROM rocpd_counter
              UNION SELECT name_id FROM rocpd_stackframe)
 ORDER BY id;
DROP TABLE temp.rocpd_string;
