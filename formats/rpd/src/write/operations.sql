-- Kernel dispatches, and behind them memory copies, as operations. :gpu is the stride.

CREATE TEMP TABLE words AS
SELECT (SELECT min(id) FROM rocpd_string WHERE string = '') AS empty,
       (SELECT min(id) FROM rocpd_string WHERE string = 'KernelExecution') AS kernel,
       (SELECT coalesce(max(id), 0) FROM temp.kernel_dispatch) AS dispatches,
       -- Numbers of queues on their node, as long as there are enough.
       (SELECT coalesce(max(on_node), 0) < :gpu FROM queue) AS numbered_on_node;

CREATE TEMP TABLE dispatch AS
SELECT disp.*, iif(disp.extdata LIKE '{"rpd"%' AND json_valid(disp.extdata), json_extract(disp.extdata, '$.rpd.op_type'), NULL) AS op_type
  FROM temp.kernel_dispatch disp;

INSERT INTO rocpd_op (id, gpuId, queueId, sequenceId, start, "end", description_id, opType_id)
SELECT d.id, coalesce(a.device, 0) + coalesce(a.node, 0) * :gpu,
       coalesce(iif(words.numbered_on_node, q.on_node, q.in_process) + q.node * :gpu, coalesce(a.node, 0) * :gpu),
       d.dispatch_id, d.start, d."end",
       -- What is listed by its type has no description.
       iif(d.op_type IS NOT NULL AND d.op_type = sym.shown, words.empty, coalesce(sym.shown_id, words.empty)),
       coalesce((SELECT min(id) FROM rocpd_string WHERE string = d.op_type), words.kernel)
  FROM dispatch d
  JOIN words
  LEFT JOIN agent a ON a.id = d.agent_id
  LEFT JOIN queue q ON q.id = d.queue_id
  LEFT JOIN symbol sym ON sym.id = d.kernel_id
 ORDER BY d.id;

-- The GPU of a copy is where it goes to, else where it comes from. HIP's number of its kind comes from its name.
CREATE TEMP TABLE copied AS
SELECT c.id + words.dispatches AS op_id, c.size, c.event_id, c.stream_id, c.dst_address, c.src_address,
       coalesce(iif(dst.kind = 'gpu', dst.device, NULL), iif(src.kind = 'gpu', src.device, NULL), 0)
           + coalesce(dst.node, src.node, proc.n, 0) * :gpu AS gpu,
       iif(dst.kind = 'gpu', dst.device, 0) AS dst_device, iif(src.kind = 'gpu', src.device, 0) AS src_device,
       coalesce(iif(words.numbered_on_node, q.on_node, q.in_process) + q.node * :gpu, coalesce(proc.n, 0) * :gpu) AS queue,
       c.start, c."end", name.string AS name,
       iif(c.extdata LIKE '{"rpd"%' AND json_valid(c.extdata), json_extract(c.extdata, '$.rpd.op_type'), NULL) AS op_type
  FROM temp.memory_copy c
  JOIN words
  LEFT JOIN (SELECT p.id, node.n FROM temp.info_process p JOIN node ON node.nid = p.nid) proc ON proc.id = c.pid
  LEFT JOIN agent dst ON dst.id = c.dst_agent_id
  LEFT JOIN agent src ON src.id = c.src_agent_id
  LEFT JOIN queue q ON q.id = c.queue_id
  LEFT JOIN rocpd_string name ON name.id = c.name_id;

INSERT INTO rocpd_op (id, gpuId, queueId, sequenceId, start, "end", description_id, opType_id)
SELECT c.op_id, c.gpu, c.queue, 0, c.start, c."end", words.empty,
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
SELECT id, coalesce(iif(json_valid(extdata), json_extract(extdata, '$.rpd.stream'), NULL), name, '') FROM temp.info_stream;

-- A call has room for one launch: of a graph of many, none has its sizes. So has one without sizes.
INSERT INTO rocpd_kernelapi
SELECT pair.api_id, coalesce(stream.shown, ''), d.grid_size_x, d.grid_size_y, d.grid_size_z,
       d.workgroup_size_x, d.workgroup_size_y, d.workgroup_size_z,
       coalesce(d.group_segment_size, 0), coalesce(d.private_segment_size, 0), coalesce(sym.kernel_id, words.empty)
  FROM (SELECT api_id, min(op_id) AS op_id FROM rocpd_api_ops
         WHERE op_id <= (SELECT dispatches FROM words) GROUP BY api_id HAVING count(*) = 1) pair
  JOIN words
  JOIN temp.kernel_dispatch d ON d.id = pair.op_id
  LEFT JOIN symbol sym ON sym.id = d.kernel_id
  LEFT JOIN stream ON stream.id = d.stream_id
 WHERE d.workgroup_size_x > 0;

-- Of several copies of a call, which are parts of one request, the first tells the size.
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
 WHERE c.size <> 0;
