-- The views that users of RPD know. napi and nop are api and op with the node: in a merged file, ids of a node are
-- as far apart from those of the next one as the metadata says.

CREATE VIEW api AS
SELECT call.id, call.pid, call.tid, call.start, call."end",
       label.string AS apiName, category.string AS category, domain.string AS domain, arguments.string AS args
  FROM rocpd_api call
  JOIN rocpd_string label ON label.id = call.apiName_id
  JOIN rocpd_string category ON category.id = call.category_id
  JOIN rocpd_string domain ON domain.id = call.domain_id
  JOIN rocpd_ustring arguments ON arguments.id = call.args_id;

CREATE VIEW op AS
SELECT work.id, work.gpuId, work.queueId, work.sequenceId, work.start, work."end",
       description.string AS description, kind.string AS opType
  FROM rocpd_op work
  JOIN rocpd_string description ON description.id = work.description_id
  JOIN rocpd_string kind ON kind.id = work.opType_id;

CREATE VIEW napi AS
SELECT api.id, api.pid / stride.n AS node, api.pid, api.tid, api.start, api."end",
       api.apiName, api.category, api.domain, api.args
  FROM api, (SELECT CAST(value AS INTEGER) AS n FROM rocpd_metadata WHERE tag = 'pid_stride' LIMIT 1) stride;

CREATE VIEW nop AS
SELECT op.id, op.gpuId / stride.n AS node, op.gpuId, op.queueId, op.sequenceId, op.start, op."end",
       op.description, op.opType
  FROM op, (SELECT CAST(value AS INTEGER) AS n FROM rocpd_metadata WHERE tag = 'gpu_stride' LIMIT 1) stride;

CREATE VIEW busy AS
SELECT gpu.gpuId, gpu.ns AS GpuTime, wall.ns AS WallTime, gpu.ns * 1.0 / wall.ns AS Busy
  FROM (SELECT gpuId, sum("end" - start) AS ns FROM rocpd_op GROUP BY gpuId) gpu,
       (SELECT max("end") - min(start) AS ns FROM rocpd_op) wall;

-- Durations in microseconds. Operations without description are listed by their type.
CREATE VIEW top AS
SELECT Name, count(*) AS TotalCalls, sum(ns) / 1000 AS TotalDuration, (sum(ns) / count(*)) / 1000 AS Ave,
       sum(ns) * 100.0 / (SELECT sum("end" - start) FROM rocpd_op) AS Percentage
  FROM (SELECT CASE description WHEN '' THEN opType ELSE description END AS Name, "end" - start AS ns FROM op)
 GROUP BY Name
 ORDER BY TotalDuration DESC;

-- The calls that launched kernels, by kernel.
CREATE VIEW ktop AS
SELECT label.string AS Name, count(*) AS TotalCalls, sum(call."end" - call.start) / 1000 AS TotalDuration,
       (sum(call."end" - call.start) / count(*)) / 1000 AS Ave,
       sum(call."end" - call.start) * 100.0 /
           (SELECT sum(every."end" - every.start) FROM rocpd_kernelapi k JOIN rocpd_api every ON every.id = k.api_ptr_id)
           AS Percentage
  FROM rocpd_kernelapi launch
  JOIN rocpd_api call ON call.id = launch.api_ptr_id
  JOIN rocpd_string label ON label.id = launch.kernelName_id
 GROUP BY label.string
 ORDER BY TotalDuration DESC;

CREATE VIEW kernel AS
SELECT work.id, work.gpuId, work.queueId, work.sequenceId, work.start, work."end", work."end" - work.start AS duration,
       launch.stream, launch.gridX, launch.gridY, launch.gridZ,
       launch.workgroupX, launch.workgroupY, launch.workgroupZ,
       launch.groupSegmentSize, launch.privateSegmentSize, label.string AS kernelName
  FROM rocpd_api_ops pair
  JOIN rocpd_op work ON work.id = pair.op_id
  JOIN rocpd_kernelapi launch ON launch.api_ptr_id = pair.api_id
  JOIN rocpd_string label ON label.id = launch.kernelName_id;

CREATE VIEW copy AS
SELECT call.id, call.pid, call.tid, call.start, call."end", label.string AS apiName,
       request.stream, request.size, request.width, request.height, request.kind, request.dst, request.src,
       request.dstDevice, request.srcDevice, request.sync, request.pinned
  FROM rocpd_copyapi request
  JOIN rocpd_api call ON call.id = request.api_ptr_id
  JOIN rocpd_string label ON label.id = call.apiName_id;

CREATE VIEW copyop AS
SELECT work.id, work.gpuId, work.queueId, work.sequenceId, work.start, work."end", work."end" - work.start AS duration,
       request.stream, request.size, request.width, request.height, request.kind, request.dst, request.src,
       request.dstDevice, request.srcDevice, request.sync, request.pinned, label.string AS apiName
  FROM rocpd_api_ops pair
  JOIN rocpd_op work ON work.id = pair.op_id
  JOIN rocpd_copyapi request ON request.api_ptr_id = pair.api_id
  JOIN rocpd_api call ON call.id = pair.api_id
  JOIN rocpd_string label ON label.id = call.apiName_id;

CREATE VIEW stackframe AS
SELECT frame.id, frame.api_ptr_id, call.pid, call.tid, call.start, call."end", label.string AS apiName,
       frame.depth, name.string AS name
  FROM rocpd_stackframe frame
  JOIN rocpd_api call ON call.id = frame.api_ptr_id
  JOIN rocpd_string label ON label.id = call.apiName_id
  JOIN rocpd_string name ON name.id = frame.name_id;
