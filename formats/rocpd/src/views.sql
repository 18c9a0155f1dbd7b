-- Data and summary views of RocPD schema 3.0.0: same columns and same rows as AMD's. "busy" has three columns more.
-- An inner join drops the rows that AMD's view drops, a LEFT JOIN or scalar subquery keeps them.
--
-- Two of AMD's views multiply rows when ids repeat between guids: "threads" joins the process, and
-- "memory_allocations" the thread, without the guid of the row. Both join it here. Our databases
-- have one guid and unique ids, where the two forms are the same.
--
-- Views with a stack id take the guid of its event, equal to the row's by the join. So SQLite can
-- index both for a join of kernels to calls by (guid, stack_id). With the row's guid it indexes that
-- alone, and a job has only one: 26 s instead of 0.03 s for 6,000 kernels and 18,000 regions.

CREATE VIEW code_objects AS
SELECT obj.id, obj.guid, obj.nid, proc.pid,
       agent.absolute_index AS agent_abs_index,
       obj.uri, obj.load_base, obj.load_size, obj.load_delta,
       obj.storage_type AS storage_type_str,
       json_extract(obj.extdata, '$.size') AS code_object_size,
       json_extract(obj.extdata, '$.storage_type') AS storage_type,
       json_extract(obj.extdata, '$.memory_base') AS memory_base,
       json_extract(obj.extdata, '$.memory_size') AS memory_size
  FROM rocpd_info_code_object obj
  JOIN rocpd_info_process proc ON proc.id = obj.pid AND proc.guid = obj.guid
  JOIN rocpd_info_agent agent ON agent.id = obj.agent_id AND agent.guid = obj.guid;

CREATE VIEW kernel_symbols AS
SELECT sym.id, sym.guid, sym.nid, proc.pid, sym.code_object_id,
       sym.kernel_name, sym.display_name, sym.kernel_object,
       sym.kernarg_segment_size, sym.kernarg_segment_alignment,
       sym.group_segment_size, sym.private_segment_size,
       sym.sgpr_count, sym.arch_vgpr_count, sym.accum_vgpr_count,
       json_extract(sym.extdata, '$.size') AS kernel_symbol_size,
       json_extract(sym.extdata, '$.kernel_id') AS kernel_id,
       json_extract(sym.extdata, '$.kernel_code_entry_byte_offset') AS kernel_code_entry_byte_offset,
       json_extract(sym.extdata, '$.formatted_kernel_name') AS formatted_kernel_name,
       json_extract(sym.extdata, '$.demangled_kernel_name') AS demangled_kernel_name,
       json_extract(sym.extdata, '$.truncated_kernel_name') AS truncated_kernel_name,
       json_extract(sym.extdata, '$.kernel_address.handle') AS kernel_address
  FROM rocpd_info_kernel_symbol sym
  JOIN rocpd_info_process proc ON proc.id = sym.pid AND proc.guid = sym.guid;

CREATE VIEW processes AS
SELECT node.id AS nid, node.machine_id, node.system_name, node.hostname,
       node.release AS system_release, node.version AS system_version,
       proc.guid, proc.ppid, proc.pid,
       proc.init, proc.start, proc."end", proc.fini, proc.command
  FROM rocpd_info_process proc
  JOIN rocpd_info_node node ON node.id = proc.nid AND node.guid = proc.guid;

CREATE VIEW threads AS
SELECT node.id AS nid, node.machine_id, node.system_name, node.hostname,
       node.release AS system_release, node.version AS system_version,
       proc.guid, proc.ppid, proc.pid,
       thr.tid, thr.start, thr."end", thr.name
  FROM rocpd_info_thread thr
  JOIN rocpd_info_node node ON node.id = thr.nid AND node.guid = thr.guid
  JOIN rocpd_info_process proc ON proc.id = thr.pid AND proc.guid = thr.guid;

CREATE VIEW regions AS
SELECT reg.id, ev.guid,
       (SELECT cat.string FROM rocpd_string cat
         WHERE cat.id = ev.category_id AND cat.guid = ev.guid) AS category,
       label.string AS name,
       reg.nid, proc.pid, thr.tid,
       reg.start, reg."end", reg."end" - reg.start AS duration,
       reg.event_id, ev.stack_id, ev.parent_stack_id, ev.correlation_id AS corr_id,
       ev.extdata, ev.call_stack, ev.line_info
  FROM rocpd_region reg
  JOIN rocpd_event ev ON ev.id = reg.event_id AND ev.guid = reg.guid
  JOIN rocpd_info_thread thr ON thr.id = reg.tid AND thr.guid = reg.guid
  JOIN rocpd_info_process proc ON proc.id = reg.pid AND proc.guid = reg.guid
  JOIN rocpd_string label ON label.id = reg.name_id AND label.guid = reg.guid;

CREATE VIEW region_args AS
SELECT reg.id, reg.guid, reg.nid, proc.pid, arg.type, arg.name, arg.value
  FROM rocpd_region reg
  JOIN rocpd_event ev ON ev.id = reg.event_id AND ev.guid = reg.guid
  JOIN rocpd_arg arg ON arg.event_id = ev.id AND arg.guid = reg.guid
  JOIN rocpd_info_process proc ON proc.id = reg.pid AND proc.guid = reg.guid;

-- A sample takes its name, node, process and thread from its track.
CREATE VIEW samples AS
SELECT smp.id, ev.guid,
       (SELECT cat.string FROM rocpd_string cat
         WHERE cat.id = ev.category_id AND cat.guid = ev.guid) AS category,
       (SELECT label.string FROM rocpd_string label
         WHERE label.id = trk.name_id AND label.guid = trk.guid) AS name,
       trk.nid, proc.pid, thr.tid,
       smp.timestamp, smp.event_id,
       ev.stack_id, ev.parent_stack_id, ev.correlation_id AS corr_id,
       ev.extdata, ev.call_stack, ev.line_info
  FROM rocpd_sample smp
  JOIN rocpd_event ev ON ev.id = smp.event_id AND ev.guid = smp.guid
  JOIN rocpd_track trk ON trk.id = smp.track_id AND trk.guid = smp.guid
  JOIN rocpd_info_thread thr ON thr.id = trk.tid AND thr.guid = trk.guid
  JOIN rocpd_info_process proc ON proc.id = trk.pid AND proc.guid = trk.guid;

-- Samples as regions of length zero.
CREATE VIEW sample_regions AS
SELECT id, guid, category, name, nid, pid, tid,
       timestamp AS start, timestamp AS "END", timestamp - timestamp AS duration,
       event_id, stack_id, parent_stack_id, corr_id, extdata, call_stack, line_info
  FROM samples;

CREATE VIEW regions_and_samples AS
SELECT * FROM regions
 UNION ALL
SELECT * FROM sample_regions;

-- The process is found through the queue: a dispatch without its queue is not listed, nor is one
-- without the string of region_name_id.
CREATE VIEW kernels AS
SELECT disp.id, ev.guid, thr.tid,
       (SELECT cat.string FROM rocpd_string cat
         WHERE cat.id = ev.category_id AND cat.guid = ev.guid) AS category,
       outer_name.string AS region,
       sym.display_name AS name,
       disp.nid, proc.pid,
       agent.absolute_index AS agent_abs_index,
       agent.logical_index AS agent_log_index,
       agent.type_index AS agent_type_index,
       agent.type AS agent_type,
       sym.code_object_id, disp.kernel_id, disp.dispatch_id, disp.stream_id, disp.queue_id,
       queue.name AS queue,
       (SELECT stream.name FROM rocpd_info_stream stream
         WHERE stream.id = disp.stream_id AND stream.guid = disp.guid) AS stream,
       disp.start, disp."end", disp."end" - disp.start AS duration,
       disp.grid_size_x AS grid_x, disp.grid_size_y AS grid_y, disp.grid_size_z AS grid_z,
       disp.workgroup_size_x AS workgroup_x,
       disp.workgroup_size_y AS workgroup_y,
       disp.workgroup_size_z AS workgroup_z,
       disp.group_segment_size AS lds_size,
       disp.private_segment_size AS scratch_size,
       sym.arch_vgpr_count AS vgpr_count,
       sym.accum_vgpr_count, sym.sgpr_count,
       sym.group_segment_size AS static_lds_size,
       sym.private_segment_size AS static_scratch_size,
       ev.stack_id, ev.parent_stack_id, ev.correlation_id AS corr_id
  FROM rocpd_kernel_dispatch disp
  JOIN rocpd_event ev ON ev.id = disp.event_id AND ev.guid = disp.guid
  JOIN rocpd_info_kernel_symbol sym ON sym.id = disp.kernel_id AND sym.guid = disp.guid
  JOIN rocpd_info_agent agent ON agent.id = disp.agent_id AND agent.guid = disp.guid
  JOIN rocpd_info_queue queue ON queue.id = disp.queue_id AND queue.guid = disp.guid
  JOIN rocpd_info_process proc ON proc.id = queue.pid AND proc.guid = queue.guid
  JOIN rocpd_info_thread thr ON thr.id = disp.tid AND thr.guid = disp.guid
  JOIN rocpd_string outer_name ON outer_name.id = disp.region_name_id AND outer_name.guid = disp.guid;

CREATE VIEW pmc_info AS
SELECT pmc.id, pmc.guid, pmc.nid, proc.pid,
       agent.absolute_index AS agent_abs_index,
       pmc.is_constant, pmc.is_derived, pmc.name, pmc.description, pmc.block, pmc.expression
  FROM rocpd_info_pmc pmc
  JOIN rocpd_info_process proc ON proc.id = pmc.pid AND proc.guid = pmc.guid
  JOIN rocpd_info_agent agent ON agent.id = pmc.agent_id AND agent.guid = pmc.guid;

-- Counter values of kernels. Value and dispatch meet at the event that both name.
CREATE VIEW pmc_events AS
SELECT val.id, val.guid, val.pmc_id, ev.id AS event_id,
       (SELECT cat.string FROM rocpd_string cat
         WHERE cat.id = ev.category_id AND cat.guid = ev.guid) AS category,
       (SELECT sym.display_name FROM rocpd_info_kernel_symbol sym
         WHERE sym.id = disp.kernel_id AND sym.guid = disp.guid) AS name,
       disp.nid, proc.pid, disp.dispatch_id,
       disp.start, disp."end", disp."end" - disp.start AS duration,
       pmc.name AS counter_name,
       val.value AS counter_value
  FROM rocpd_pmc_event val
  JOIN rocpd_kernel_dispatch disp ON disp.event_id = val.event_id AND disp.guid = val.guid
  JOIN rocpd_event ev ON ev.id = val.event_id AND ev.guid = val.guid
  JOIN rocpd_info_pmc pmc ON pmc.id = val.pmc_id AND pmc.guid = val.guid
  JOIN rocpd_info_process proc ON proc.id = disp.pid AND proc.guid = disp.guid;

CREATE VIEW events_args AS
SELECT ev.id AS event_id,
       (SELECT cat.string FROM rocpd_string cat
         WHERE cat.id = ev.category_id AND cat.guid = ev.guid) AS category,
       ev.stack_id, ev.parent_stack_id, ev.correlation_id,
       arg.position AS arg_position, arg.type AS arg_type,
       arg.name AS arg_name, arg.value AS arg_value,
       ev.call_stack, ev.line_info, arg.extdata
  FROM rocpd_arg arg
  JOIN rocpd_event ev ON ev.id = arg.event_id AND ev.guid = arg.guid;

CREATE VIEW stream_args AS
SELECT arg.id AS argument_id, arg.event_id,
       arg.position AS arg_position, arg.type AS arg_type, arg.value AS arg_value,
       json_extract(arg.extdata, '$.stream_id') AS stream_id,
       stream.nid, proc.pid, stream.name AS stream_name, stream.extdata
  FROM rocpd_arg arg
  JOIN rocpd_info_stream stream
    ON stream.id = json_extract(arg.extdata, '$.stream_id') AND stream.guid = arg.guid
  JOIN rocpd_info_process proc ON proc.id = stream.pid AND proc.guid = stream.guid
 WHERE arg.name = 'stream';

CREATE VIEW memory_copies AS
SELECT copy.id, ev.guid,
       (SELECT cat.string FROM rocpd_string cat
         WHERE cat.id = ev.category_id AND cat.guid = ev.guid) AS category,
       copy.nid, proc.pid, thr.tid,
       copy.start, copy."end", copy."end" - copy.start AS duration,
       label.string AS name,
       (SELECT outer_name.string FROM rocpd_string outer_name
         WHERE outer_name.id = copy.region_name_id AND outer_name.guid = copy.guid) AS region_name,
       copy.stream_id, copy.queue_id,
       (SELECT stream.name FROM rocpd_info_stream stream
         WHERE stream.id = copy.stream_id AND stream.guid = copy.guid) AS stream_name,
       (SELECT queue.name FROM rocpd_info_queue queue
         WHERE queue.id = copy.queue_id AND queue.guid = copy.guid) AS queue_name,
       copy.size,
       dst.name AS dst_device,
       dst.absolute_index AS dst_agent_abs_index,
       dst.logical_index AS dst_agent_log_index,
       dst.type_index AS dst_agent_type_index,
       dst.type AS dst_agent_type,
       copy.dst_address,
       src.name AS src_device,
       src.absolute_index AS src_agent_abs_index,
       src.logical_index AS src_agent_log_index,
       src.type_index AS src_agent_type_index,
       src.type AS src_agent_type,
       copy.src_address,
       ev.stack_id, ev.parent_stack_id, ev.correlation_id AS corr_id
  FROM rocpd_memory_copy copy
  JOIN rocpd_event ev ON ev.id = copy.event_id AND ev.guid = copy.guid
  JOIN rocpd_info_agent src ON src.id = copy.src_agent_id AND src.guid = copy.guid
  JOIN rocpd_info_agent dst ON dst.id = copy.dst_agent_id AND dst.guid = copy.guid
  JOIN rocpd_info_thread thr ON thr.id = copy.tid AND thr.guid = copy.guid
  JOIN rocpd_info_process proc ON proc.id = copy.pid AND proc.guid = copy.guid
  JOIN rocpd_string label ON label.id = copy.name_id AND label.guid = copy.guid;

CREATE VIEW memory_allocations AS
SELECT mem.id, ev.guid,
       (SELECT cat.string FROM rocpd_string cat
         WHERE cat.id = ev.category_id AND cat.guid = ev.guid) AS category,
       mem.nid, proc.pid, thr.tid,
       mem.start, mem."end", mem."end" - mem.start AS duration,
       mem.type, mem.level,
       agent.name AS agent_name,
       agent.absolute_index AS agent_abs_index,
       agent.logical_index AS agent_log_index,
       agent.type_index AS agent_type_index,
       agent.type AS agent_type,
       mem.address, mem.size,
       mem.queue_id,
       (SELECT queue.name FROM rocpd_info_queue queue
         WHERE queue.id = mem.queue_id AND queue.guid = mem.guid) AS queue_name,
       mem.stream_id,
       (SELECT stream.name FROM rocpd_info_stream stream
         WHERE stream.id = mem.stream_id AND stream.guid = mem.guid) AS stream_name,
       ev.stack_id, ev.parent_stack_id, ev.correlation_id AS corr_id
  FROM rocpd_memory_allocate mem
  JOIN rocpd_event ev ON ev.id = mem.event_id AND ev.guid = mem.guid
  JOIN rocpd_info_thread thr ON thr.id = mem.tid AND thr.guid = mem.guid
  JOIN rocpd_info_process proc ON proc.id = mem.pid AND proc.guid = mem.guid
  -- A FREE may have no agent.
  LEFT JOIN rocpd_info_agent agent ON agent.id = mem.agent_id AND agent.guid = mem.guid;

CREATE VIEW scratch_memory AS
SELECT mem.id, ev.guid, mem.nid, proc.pid,
       mem.type AS operation,
       agent.name AS agent_name,
       agent.absolute_index AS agent_abs_index,
       agent.logical_index AS agent_log_index,
       agent.type_index AS agent_type_index,
       agent.type AS agent_type,
       mem.queue_id, thr.tid,
       json_extract(mem.extdata, '$.flags') AS alloc_flags,
       mem.start, mem."end", mem."end" - mem.start AS duration,
       mem.size, mem.address,
       ev.correlation_id, ev.stack_id, ev.parent_stack_id, ev.correlation_id AS corr_id,
       (SELECT cat.string FROM rocpd_string cat
         WHERE cat.id = ev.category_id AND cat.guid = ev.guid) AS category,
       ev.extdata AS event_extdata
  FROM rocpd_memory_allocate mem
  JOIN rocpd_event ev ON ev.id = mem.event_id AND ev.guid = mem.guid
  JOIN rocpd_info_thread thr ON thr.id = mem.tid AND thr.guid = mem.guid
  JOIN rocpd_info_process proc ON proc.id = mem.pid AND proc.guid = mem.guid
  LEFT JOIN rocpd_info_agent agent ON agent.id = mem.agent_id AND agent.guid = mem.guid
 WHERE mem.level = 'SCRATCH'
 ORDER BY mem.start;

-- One row per dispatch and counter, summed over the instances of the counter. min(id) makes SQLite
-- take the ungrouped columns from the row of that id.
CREATE VIEW counters_collection AS
SELECT min(val.id) AS id, val.guid,
       disp.dispatch_id, disp.kernel_id,
       ev.id AS event_id, ev.correlation_id, ev.stack_id, ev.parent_stack_id,
       proc.pid, thr.tid,
       disp.agent_id,
       agent.absolute_index AS agent_abs_index,
       agent.logical_index AS agent_log_index,
       agent.type_index AS agent_type_index,
       agent.type AS agent_type,
       disp.queue_id,
       disp.grid_size_x, disp.grid_size_y, disp.grid_size_z,
       disp.grid_size_x * disp.grid_size_y * disp.grid_size_z AS grid_size,
       sym.display_name AS kernel_name,
       (SELECT outer_name.string FROM rocpd_string outer_name
         WHERE outer_name.id = disp.region_name_id AND outer_name.guid = disp.guid) AS kernel_region,
       disp.workgroup_size_x, disp.workgroup_size_y, disp.workgroup_size_z,
       disp.workgroup_size_x * disp.workgroup_size_y * disp.workgroup_size_z AS workgroup_size,
       disp.group_segment_size AS lds_block_size,
       disp.private_segment_size AS scratch_size,
       sym.arch_vgpr_count AS vgpr_count,
       sym.accum_vgpr_count, sym.sgpr_count,
       pmc.name AS counter_name, pmc.symbol AS counter_symbol,
       pmc.component, pmc.description, pmc.block, pmc.expression, pmc.value_type,
       pmc.id AS counter_id,
       sum(val.value) AS value,
       disp.start, disp."end",
       pmc.is_constant, pmc.is_derived,
       disp."end" - disp.start AS duration,
       (SELECT cat.string FROM rocpd_string cat
         WHERE cat.id = ev.category_id AND cat.guid = ev.guid) AS category,
       disp.nid, ev.extdata, sym.code_object_id
  FROM rocpd_pmc_event val
  JOIN rocpd_kernel_dispatch disp ON disp.event_id = val.event_id AND disp.guid = val.guid
  JOIN rocpd_event ev ON ev.id = val.event_id AND ev.guid = val.guid
  JOIN rocpd_info_pmc pmc ON pmc.id = val.pmc_id AND pmc.guid = val.guid
  JOIN rocpd_info_kernel_symbol sym ON sym.id = disp.kernel_id AND sym.guid = disp.guid
  JOIN rocpd_info_agent agent ON agent.id = disp.agent_id AND agent.guid = disp.guid
  JOIN rocpd_info_thread thr ON thr.id = disp.tid AND thr.guid = disp.guid
  JOIN rocpd_info_process proc ON proc.id = disp.pid AND proc.guid = disp.guid
 GROUP BY val.guid, disp.dispatch_id, pmc.name, disp.agent_id;

-- Durations in microseconds; the average is cut to whole nanoseconds first. Percentages are of all
-- dispatches, also of those whose kernel is unknown.
CREATE VIEW top_kernels AS
WITH everything(ns) AS (SELECT sum("end" - start) FROM rocpd_kernel_dispatch)
SELECT sym.display_name AS name,
       count(*) AS total_calls,
       sum(disp."end" - disp.start) / 1000.0 AS total_duration,
       (sum(disp."end" - disp.start) / count(*)) / 1000.0 AS average,
       sum(disp."end" - disp.start) * 100.0 / (SELECT ns FROM everything) AS percentage
  FROM rocpd_kernel_dispatch disp
  JOIN rocpd_info_kernel_symbol sym ON sym.id = disp.kernel_id AND sym.guid = disp.guid
 GROUP BY sym.display_name
 ORDER BY total_duration DESC;

-- A copy counts for the agent that receives it. The last three columns are not AMD's: an agent's id is that of its row
-- here, while a profiler's own file has the index of the device there, the same in each process.
CREATE VIEW busy AS
WITH work(agent_id, guid, start, finish) AS (
    SELECT agent_id, guid, start, "end" FROM rocpd_kernel_dispatch
     UNION ALL
    SELECT dst_agent_id, guid, start, "end" FROM rocpd_memory_copy
), wall(ns) AS (
    SELECT max(finish) - min(start) FROM work
), used(agent_id, guid, ns) AS (
    SELECT agent_id, guid, sum(finish - start) FROM work GROUP BY agent_id, guid
)
SELECT used.agent_id, agent.type,
       used.ns AS GpuTime, wall.ns AS WallTime, used.ns * 1.0 / wall.ns AS Busy,
       agent.absolute_index AS agent_abs_index, agent.nid,
       (SELECT proc.pid FROM rocpd_info_process proc
         WHERE proc.id = agent.pid AND proc.guid = agent.guid) AS pid
  FROM used
  JOIN wall
  JOIN rocpd_info_agent agent ON agent.id = used.agent_id AND agent.guid = used.guid;

CREATE VIEW top AS
WITH everything(ns) AS (
    SELECT sum(ns) FROM (
        SELECT sum("end" - start) AS ns FROM rocpd_kernel_dispatch
         UNION ALL
        SELECT sum("end" - start) FROM rocpd_memory_copy
         UNION ALL
        SELECT sum("end" - start) FROM rocpd_region)
), operation(name, ns) AS (
    SELECT sym.display_name, disp."end" - disp.start
      FROM rocpd_kernel_dispatch disp
      JOIN rocpd_info_kernel_symbol sym ON sym.id = disp.kernel_id AND sym.guid = disp.guid
     UNION ALL
    SELECT label.string, copy."end" - copy.start
      FROM rocpd_memory_copy copy
      JOIN rocpd_string label ON label.id = copy.name_id AND label.guid = copy.guid
     UNION ALL
    SELECT label.string, reg."end" - reg.start
      FROM rocpd_region reg
      JOIN rocpd_string label ON label.id = reg.name_id AND label.guid = reg.guid
)
SELECT name,
       count(*) AS total_calls,
       sum(ns) / 1000.0 AS total_duration,
       (sum(ns) / count(*)) / 1000.0 AS average,
       sum(ns) * 100.0 / (SELECT ns FROM everything) AS percentage
  FROM operation
 GROUP BY name
 ORDER BY total_duration DESC;
