-- Kernel dispatches, and behind them memory copies, as operations. :gpu is the stride.

CREATE TEMP TABLE words AS
SELECT (SELECT min(id) FROM rocpd_string WHERE string = '') AS empty,
       (SELECT min(id) FROM rocpd_string WHERE string = 'KernelExecution') AS kernel,
       (SELECT coalesce(max(id), 0) FROM temp.kernel_dispatch) AS dispatches;

CREATE TEMP TABLE dispatch AS
SELECT disp.*, iif(disp.extdata LIKE '{"rpd"%' AND json_valid(disp.extdata), json_extract(disp.extdata, '$.rpd.op_type'), NULL) AS op_type,
       iif(disp.extdata LIKE '{"rpd"%' AND json_valid(disp.extdata), json_extract(disp.extdata, '$.rpd.sequence'), NULL) AS sequence
  FROM temp.kernel_dispatch disp;

INSERT INTO rocpd_op (id, gpuId, queueId, sequenceId, start, "end", description_id, opType_id)
SELECT d.id, coalesce(a.device, 0) + coalesce(a.node, 0) * :gpu,
       coalesce(q.number + q.node * :gpu, coalesce(a.node, 0) * :gpu),
       -- A `.rpd` has no dispatch ids; its sequence is told where it is not 0.
       coalesce(d.sequence, iif(q.is_kept, 0, d.dispatch_id)), d.start, d."end",
       -- What is listed by its type has no description.
       iif(d.op_type IS NOT NULL AND d.op_type = sym.shown, words.empty, coalesce(sym.shown_id, words.empty)),
       coalesce((SELECT min(id) FROM rocpd_string WHERE string = d.op_type), words.kernel)
  FROM dispatch d
  JOIN words
  LEFT JOIN agent a ON a.id = d.agent_id
  LEFT JOIN queue q ON q.id = d.queue_id
  LEFT JOIN symbol sym ON sym.id = d.kernel_id
 ORDER BY d.id;

-- The GPU of a copy is that of the `.rpd`, else where it goes to, else where it comes from. HIP's number of its kind comes from its name.
CREATE TEMP TABLE copied AS
SELECT c.id + words.dispatches AS op_id, c.size, c.event_id, c.stream_id, c.dst_address, c.src_address,
       coalesce(q.gpu, iif(dst.kind = 'gpu', dst.device, NULL), iif(src.kind = 'gpu', src.device, NULL), 0)
           + coalesce(iif(q.gpu IS NULL, NULL, q.node), dst.node, src.node, proc.n, 0) * :gpu AS gpu,
       iif(dst.kind = 'gpu', dst.device, 0) AS dst_device, iif(src.kind = 'gpu', src.device, 0) AS src_device,
       coalesce(q.number + q.node * :gpu, coalesce(proc.n, 0) * :gpu) AS queue,
       c.start, c."end", name.string AS name,
       iif(c.extdata LIKE '{"rpd"%' AND json_valid(c.extdata), json_extract(c.extdata, '$.rpd.op_type'), NULL) AS op_type,
       iif(c.extdata LIKE '{"rpd"%' AND json_valid(c.extdata), json_extract(c.extdata, '$.rpd.description'), NULL) AS description,
       iif(c.extdata LIKE '{"rpd"%' AND json_valid(c.extdata), json_extract(c.extdata, '$.rpd.sequence'), NULL) AS sequence
  FROM temp.memory_copy c
  JOIN words
  LEFT JOIN (SELECT p.id, node.n FROM temp.info_process p JOIN node ON node.nid = p.nid) proc ON proc.id = c.pid
  LEFT JOIN agent dst ON dst.id = c.dst_agent_id
  LEFT JOIN agent src ON src.id = c.src_agent_id
  LEFT JOIN queue q ON q.id = c.queue_id
  LEFT JOIN rocpd_string name ON name.id = c.name_id;

INSERT INTO rocpd_op (id, gpuId, queueId, sequenceId, start, "end", description_id, opType_id)
SELECT c.op_id, c.gpu, c.queue, coalesce(c.sequence, 0), c.start, c."end",
       coalesce((SELECT min(id) FROM rocpd_string WHERE string = c.description), words.empty),
       coalesce((SELECT min(id) FROM rocpd_string WHERE string = coalesce(c.op_type, CASE c.name
            WHEN 'MEMORY_COPY_HOST_TO_DEVICE' THEN 'CopyHostToDevice'
            WHEN 'MEMORY_COPY_DEVICE_TO_HOST' THEN 'CopyDeviceToHost'
            WHEN 'MEMORY_COPY_DEVICE_TO_DEVICE' THEN 'CopyDeviceToDevice'
            WHEN 'MEMORY_COPY_HOST_TO_HOST' THEN 'CopyHostToHost'
            ELSE c.name END)), words.empty)
  FROM copied c, words
 ORDER BY c.op_id;

INSERT INTO rocpd_api_ops (api_id, op_id)
SELECT stack.api_id, d.id FROM dispatch d
  JOIN temp.event ev ON ev.id = d.event_id
  JOIN stack ON stack.stack_id = ev.stack_id ORDER BY d.id;
INSERT INTO rocpd_api_ops (api_id, op_id)
SELECT stack.api_id, c.op_id FROM copied c
  JOIN temp.event ev ON ev.id = c.event_id
  JOIN stack ON stack.stack_id = ev.stack_id ORDER BY c.op_id;

CREATE TEMP TABLE stream (id INTEGER PRIMARY KEY, shown TEXT NOT NULL);
INSERT INTO stream
SELECT id, coalesce(iif(json_valid(extdata), json_extract(extdata, '$.rpd.stream'), NULL),
                    iif(json_valid(extdata) AND json_type(extdata, '$.rpd.recorded_name') IS NOT NULL,
                        json_extract(extdata, '$.rpd.recorded_name'), name), '') FROM temp.info_stream;

CREATE TEMP TABLE first_dispatch (api_id INTEGER PRIMARY KEY, op_id INTEGER NOT NULL, dispatches INTEGER NOT NULL);
INSERT INTO first_dispatch
SELECT api_id, min(op_id), count(*) FROM rocpd_api_ops WHERE op_id <= (SELECT dispatches FROM words) GROUP BY api_id;
CREATE TEMP TABLE told_call (id INTEGER PRIMARY KEY, event_id INTEGER NOT NULL, kernelapi INTEGER, copyapi INTEGER);
INSERT INTO told_call
SELECT c.id, c.event_id, told.kernelapi, told.copyapi FROM call c JOIN told ON told.event_id = c.event_id
 WHERE told.kernelapi IS NOT NULL OR told.copyapi IS NOT NULL;

-- The launches of a `.rpd` are as they were. Where the name of the kernel is no arg, its dispatch has it.
INSERT INTO rocpd_kernelapi
SELECT c.id, coalesce(max(value) FILTER (WHERE name = 'stream'), ''),
       coalesce(max(value) FILTER (WHERE name = 'gridX'), ''), coalesce(max(value) FILTER (WHERE name = 'gridY'), ''),
       coalesce(max(value) FILTER (WHERE name = 'gridZ'), ''),
       coalesce(max(value) FILTER (WHERE name = 'workgroupX'), ''), coalesce(max(value) FILTER (WHERE name = 'workgroupY'), ''),
       coalesce(max(value) FILTER (WHERE name = 'workgroupZ'), ''),
       coalesce(max(value) FILTER (WHERE name = 'groupSegmentSize'), ''),
       coalesce(max(value) FILTER (WHERE name = 'privateSegmentSize'), ''),
       coalesce((SELECT min(id) FROM rocpd_string WHERE string = max(arg.value) FILTER (WHERE name = 'kernelName')),
                (SELECT sym.kernel_id FROM first_dispatch first
                   JOIN temp.kernel_dispatch d ON d.id = first.op_id
                   JOIN symbol sym ON sym.id = d.kernel_id WHERE first.api_id = c.id), words.empty)
  FROM told_call c
  JOIN words
  LEFT JOIN told_arg arg ON arg.event_id = c.event_id AND arg.of = 'kernelapi'
 WHERE c.kernelapi IS NOT NULL
 GROUP BY c.id;

-- Else a call has room for one launch: of a graph of many, none has its sizes. So has one without sizes.
INSERT INTO rocpd_kernelapi
SELECT first.api_id, coalesce(stream.shown, ''), d.grid_size_x, d.grid_size_y, d.grid_size_z,
       d.workgroup_size_x, d.workgroup_size_y, d.workgroup_size_z,
       coalesce(d.group_segment_size, 0), coalesce(d.private_segment_size, 0), coalesce(sym.kernel_id, words.empty)
  FROM first_dispatch first
  JOIN words
  JOIN temp.kernel_dispatch d ON d.id = first.op_id
  LEFT JOIN symbol sym ON sym.id = d.kernel_id
  LEFT JOIN stream ON stream.id = d.stream_id
 WHERE first.dispatches = 1 AND d.workgroup_size_x > 0 AND first.api_id NOT IN (SELECT id FROM told_call WHERE kernelapi IS NOT NULL);

-- So are its copies.
INSERT INTO rocpd_copyapi
SELECT c.id, coalesce(max(value) FILTER (WHERE name = 'stream'), ''), coalesce(max(value) FILTER (WHERE name = 'size'), ''),
       coalesce(max(value) FILTER (WHERE name = 'width'), ''), coalesce(max(value) FILTER (WHERE name = 'height'), ''),
       coalesce(max(value) FILTER (WHERE name = 'kind'), ''),
       coalesce(max(value) FILTER (WHERE name = 'dst'), ''), coalesce(max(value) FILTER (WHERE name = 'src'), ''),
       coalesce(max(value) FILTER (WHERE name = 'dstDevice'), ''), coalesce(max(value) FILTER (WHERE name = 'srcDevice'), ''),
       coalesce(max(value) FILTER (WHERE name = 'sync'), ''), coalesce(max(value) FILTER (WHERE name = 'pinned'), '')
  FROM told_call c
  LEFT JOIN told_arg arg ON arg.event_id = c.event_id AND arg.of = 'copyapi'
 WHERE c.copyapi IS NOT NULL
 GROUP BY c.id;

-- Else, of several copies of a call, which are parts of one request, the first tells the size.
CREATE UNIQUE INDEX temp.copied_op ON copied (op_id);
INSERT INTO rocpd_copyapi
SELECT pair.api_id, coalesce(stream.shown, ''), c.size, 0, 0,
       CASE c.name WHEN 'MEMORY_COPY_HOST_TO_HOST' THEN 0 WHEN 'MEMORY_COPY_HOST_TO_DEVICE' THEN 1
                   WHEN 'MEMORY_COPY_DEVICE_TO_HOST' THEN 2 WHEN 'MEMORY_COPY_DEVICE_TO_DEVICE' THEN 3 ELSE 4 END,
       coalesce(printf('0x%x', c.dst_address), ''), coalesce(printf('0x%x', c.src_address), ''),
       coalesce(c.dst_device, 0), coalesce(c.src_device, 0), 0, 0
  FROM (SELECT api_id, min(op_id) AS op_id FROM rocpd_api_ops
         WHERE op_id > (SELECT dispatches FROM words) GROUP BY api_id) pair
  JOIN copied c ON c.op_id = pair.op_id
  LEFT JOIN stream ON stream.id = c.stream_id
 WHERE c.size <> 0 AND pair.api_id NOT IN (SELECT id FROM told_call WHERE copyapi IS NOT NULL);
