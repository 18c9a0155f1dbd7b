-- Strings keep their ids. What is text elsewhere in RocPD, or not in it at all, comes behind them. Temporary tables
-- come first where a name is looked up: the strings that the file refers to get into its own table at the end.

CREATE TEMP TABLE rocpd_string (id INTEGER PRIMARY KEY, string TEXT NOT NULL);
INSERT INTO rocpd_string (id, string) SELECT id, string FROM temp.string;
CREATE INDEX temp.string_of ON rocpd_string (string);
CREATE TEMP TABLE needed AS
SELECT '' AS string
 UNION SELECT 'UserMarker'
 UNION SELECT '(unknown)'
 UNION SELECT 'KernelExecution'
 UNION SELECT 'CopyHostToDevice'
 UNION SELECT 'CopyDeviceToHost'
 UNION SELECT 'CopyDeviceToDevice'
 UNION SELECT 'CopyHostToHost'
 UNION SELECT 'hip' UNION SELECT 'hsa' UNION SELECT 'roctx' UNION SELECT 'rccl'
 UNION SELECT domain FROM told
 UNION SELECT category FROM told
 UNION SELECT value FROM told_arg WHERE name = 'kernelName'
 UNION SELECT coalesce(display_name, kernel_name, '(unknown)') FROM temp.info_kernel_symbol
 UNION SELECT coalesce(kernel_name, display_name, '(unknown)') FROM temp.info_kernel_symbol
 UNION SELECT coalesce(nullif(symbol, ''), name) FROM temp.info_pmc
 UNION SELECT json_extract(extdata, '$.rpd.op_type') FROM temp.kernel_dispatch WHERE extdata LIKE '{"rpd"%' AND json_valid(extdata)
 UNION SELECT json_extract(extdata, '$.rpd.op_type') FROM temp.memory_copy WHERE extdata LIKE '{"rpd"%' AND json_valid(extdata)
 UNION SELECT json_extract(extdata, '$.rpd.description') FROM temp.memory_copy WHERE extdata LIKE '{"rpd"%' AND json_valid(extdata)
 UNION SELECT json_extract(frame.value, '$.name') FROM temp.event ev, json_each(ev.call_stack, '$.frames') frame
        WHERE ev.call_stack LIKE '{"frames"%' AND json_valid(ev.call_stack);
INSERT INTO rocpd_string (string)
SELECT CAST(needed.string AS TEXT) FROM needed
 WHERE needed.string IS NOT NULL AND NOT EXISTS (SELECT 1 FROM rocpd_string known WHERE known.string = CAST(needed.string AS TEXT));
-- Texts of calls begin with the empty one.
INSERT INTO rocpd_ustring (id, string) VALUES (1, '');

-- Categories of RocPD and the domains of RPD. rocprof-sys spells them `rocm_hip_api` and so on; LIKE takes capitals and
-- small letters to be the same.
CREATE TEMP TABLE category (id INTEGER PRIMARY KEY, is_range INTEGER NOT NULL, domain_id INTEGER NOT NULL);
INSERT INTO category
SELECT name.id, name.api LIKE 'MARKER\_%' ESCAPE '\',
       (SELECT min(id) FROM rocpd_string WHERE string = CASE
            WHEN name.api LIKE 'HIP\_%' ESCAPE '\' THEN 'hip'
            WHEN name.api LIKE 'HSA\_%' ESCAPE '\' THEN 'hsa'
            WHEN name.api LIKE 'MARKER\_%' ESCAPE '\' THEN 'roctx'
            WHEN name.api LIKE 'RCCL\_%' ESCAPE '\' THEN 'rccl'
            ELSE name.string END)
  FROM (SELECT id, string, iif(string LIKE 'rocm\_%' ESCAPE '\', substr(string, 6), string) AS api FROM temp.string) name
 WHERE name.id IN (SELECT DISTINCT category_id FROM temp.event);

-- Kernels by their symbol.
CREATE TEMP TABLE symbol (id INTEGER PRIMARY KEY, shown TEXT, shown_id INTEGER NOT NULL, kernel_id INTEGER NOT NULL);
INSERT INTO symbol
SELECT sym.id, coalesce(display_name, kernel_name, '(unknown)'),
       (SELECT min(id) FROM rocpd_string WHERE string = coalesce(display_name, kernel_name, '(unknown)')),
       (SELECT min(id) FROM rocpd_string WHERE string = coalesce(kernel_name, display_name, '(unknown)'))
  FROM temp.info_kernel_symbol sym;
