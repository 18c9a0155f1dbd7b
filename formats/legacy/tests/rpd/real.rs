//! Compares the views of real files with the rows of their shards.

use crate::support::{lines, number, options, real, same, shard, tables};
use rpd_legacy::{RpdTranslation, read_processes};
use rpd_shard::record::Clock;
use rusqlite::Connection;
use std::path::Path;

/// Names of operations in a shard, as AMD's view `top` states them.
const OPERATIONS: &str = "
    SELECT k.display_name AS name, d.start, d.end FROM rocpd_kernel_dispatch d
      JOIN rocpd_info_kernel_symbol k ON k.source = d.source AND k.id = d.kernel_id
     UNION ALL
    SELECT replace(replace(replace(s.string, 'MEMORY_COPY_HOST_TO_DEVICE', 'CopyHostToDevice'),
             'MEMORY_COPY_DEVICE_TO_HOST', 'CopyDeviceToHost'),
             'MEMORY_COPY_DEVICE_TO_DEVICE', 'CopyDeviceToDevice'), m.start, m.end
      FROM rocpd_memory_copy m JOIN rocpd_string s ON s.id = m.name_id";

/// Compares a file's views with its shard; returns both, and the translation result.
fn compare(path: &Path) -> (Connection, Connection, RpdTranslation) {
    let (made, account) = shard(path, &options());
    let (file, made) = (Connection::open(path).unwrap(), tables(&made));
    let top = format!(
        "SELECT name, count(*), sum(end - start) / 1000, sum(end - start) * 100.0 /
           (SELECT sum(end - start) FROM ({OPERATIONS})) FROM ({OPERATIONS}) GROUP BY 1 ORDER BY 1"
    );
    same(
        "top",
        (&file, "SELECT Name, TotalCalls, TotalDuration, Percentage FROM top ORDER BY 1"),
        (&made, &top),
    );
    same(
        "ktop",
        (&file, "SELECT Name, TotalCalls, TotalDuration FROM ktop ORDER BY 1"),
        (
            &made,
            "SELECT k.kernel_name, count(*), sum(r.end - r.start) / 1000 FROM rocpd_kernel_dispatch d
               JOIN rocpd_info_kernel_symbol k ON k.source = d.source AND k.id = d.kernel_id
               JOIN rocpd_event e ON e.source = d.source AND e.id = d.event_id
               JOIN rocpd_region r ON r.source = d.source AND r.id = e.stack_id
              WHERE d.workgroup_size_x > 0 GROUP BY 1 ORDER BY 1",
        ),
    );
    same(
        "kernel",
        (
            &file,
            "SELECT id, gpuId, queueId, start, end, duration, stream, gridX, gridY, gridZ, workgroupX, workgroupY,
                    workgroupZ, groupSegmentSize, privateSegmentSize, kernelName FROM kernel ORDER BY id",
        ),
        (
            &made,
            "SELECT d.dispatch_id, g.type_index, json_extract(q.extdata, '$.rpd.queue'), d.start, d.end,
                    d.end - d.start, json_extract(s.extdata, '$.rpd.stream'), grid_size_x, grid_size_y, grid_size_z,
                    workgroup_size_x, workgroup_size_y, workgroup_size_z, d.group_segment_size,
                    d.private_segment_size, k.kernel_name FROM rocpd_kernel_dispatch d
               JOIN rocpd_info_kernel_symbol k ON k.source = d.source AND k.id = d.kernel_id
               JOIN rocpd_info_agent g ON g.source = d.source AND g.id = d.agent_id
               JOIN rocpd_info_queue q ON q.source = d.source AND q.id = d.queue_id
               JOIN rocpd_info_stream s ON s.source = d.source AND s.id = d.stream_id
              WHERE d.workgroup_size_x > 0 ORDER BY d.dispatch_id",
        ),
    );
    same(
        "api",
        (
            &file,
            "SELECT apiName, count(*), sum(end - start), min(start), max(end) FROM api GROUP BY 1 ORDER BY 1",
        ),
        (
            &made,
            "SELECT s.string, count(*), sum(r.end - r.start), min(r.start), max(r.end) FROM rocpd_region r
               JOIN rocpd_string s ON s.id = r.name_id GROUP BY 1 ORDER BY 1",
        ),
    );
    same(
        "api, with threads and args",
        (&file, "SELECT pid, tid, start, end, apiName, args FROM api ORDER BY id"),
        (
            &made,
            "SELECT (SELECT max(pid) FROM process), t.tid, r.start, r.end, s.string,
                    coalesce(json_extract(e.extdata, '$.message'), a.value, '') FROM rocpd_region r
               JOIN rocpd_event e ON e.source = r.source AND e.id = r.event_id
               JOIN rocpd_info_thread t ON t.source = r.source AND t.id = r.tid
               JOIN rocpd_string s ON s.id = r.name_id
               LEFT JOIN rocpd_arg a ON a.source = r.source AND a.event_id = e.id AND a.name = 'args'
              ORDER BY r.id",
        ),
    );
    same(
        "copy",
        (
            &file,
            "SELECT apiName, start, end, stream, size, kind, dst, src, dstDevice, srcDevice, sync, pinned
               FROM copy ORDER BY start, end",
        ),
        (
            &made,
            "SELECT s.string, r.start, r.end, max(a.value) FILTER (WHERE a.name = 'stream'),
                    max(a.value) FILTER (WHERE a.name = 'size'), max(a.value) FILTER (WHERE a.name = 'kind'),
                    max(a.value) FILTER (WHERE a.name = 'dst'), max(a.value) FILTER (WHERE a.name = 'src'),
                    max(a.value) FILTER (WHERE a.name = 'dstDevice'), max(a.value) FILTER (WHERE a.name = 'srcDevice'),
                    max(a.value) FILTER (WHERE a.name = 'sync'), max(a.value) FILTER (WHERE a.name = 'pinned')
               FROM rocpd_region r JOIN rocpd_string s ON s.id = r.name_id
               JOIN rocpd_arg a ON a.source = r.source AND a.event_id = r.event_id
              GROUP BY r.source, r.id HAVING sum(a.name = 'pinned') ORDER BY r.start, r.end",
        ),
    );
    same(
        "copyop",
        (
            &file,
            "SELECT start, end, duration, gpuId, size, apiName FROM copyop
              WHERE id NOT IN (SELECT id FROM op WHERE opType NOT LIKE 'Copy%') ORDER BY start, end",
        ),
        (
            &made,
            "SELECT m.start, m.end, m.end - m.start, coalesce(json_extract(d.extdata, '$.rpd.gpu'),
                    json_extract(f.extdata, '$.rpd.gpu')), m.size, s.string FROM rocpd_memory_copy m
               JOIN rocpd_event e ON e.source = m.source AND e.id = m.event_id
               JOIN rocpd_region r ON r.source = m.source AND r.id = e.stack_id
               JOIN rocpd_string s ON s.id = r.name_id
               JOIN rocpd_info_agent d ON d.source = m.source AND d.id = m.dst_agent_id
               JOIN rocpd_info_agent f ON f.source = m.source AND f.id = m.src_agent_id
              WHERE EXISTS (SELECT 1 FROM rocpd_arg a WHERE a.event_id = r.event_id AND a.name = 'pinned')
              ORDER BY m.start, m.end",
        ),
    );
    same(
        "busy",
        (&file, "SELECT gpuId, GpuTime, WallTime FROM busy ORDER BY gpuId"),
        (
            &made,
            "WITH work(source, agent, start, end) AS (
                SELECT source, agent_id, start, end FROM rocpd_kernel_dispatch
                 UNION ALL
                SELECT m.source, iif(g.type = 'GPU', m.dst_agent_id, m.src_agent_id), m.start, m.end
                  FROM rocpd_memory_copy m
                  JOIN rocpd_info_agent g ON g.source = m.source AND g.id = m.dst_agent_id)
             SELECT g.type_index, sum(end - start), (SELECT max(end) - min(start) FROM work) FROM work
               JOIN rocpd_info_agent g ON g.source = work.source AND g.id = work.agent
              GROUP BY 1 ORDER BY 1",
        ),
    );
    same(
        "monitor",
        (
            &file,
            "SELECT deviceType || '.' || monitorType, deviceId, start, end, value + 0.0 FROM rocpd_monitor ORDER BY id",
        ),
        (
            &made,
            "SELECT p.name, g.type_index, s.timestamp, s.timestamp + json_extract(s.extdata, '$.rpd.duration_ns'),
                    v.value FROM rocpd_pmc_event v
               JOIN rocpd_info_pmc p ON p.source = v.source AND p.id = v.pmc_id
               JOIN rocpd_info_agent g ON g.source = p.source AND g.id = p.agent_id
               JOIN rocpd_sample s ON s.source = v.source AND s.event_id = v.event_id
               JOIN rocpd_event e ON e.source = v.source AND e.id = v.event_id
               JOIN rocpd_string c ON c.id = e.category_id AND c.string = 'SYSTEM_METRICS' ORDER BY v.id",
        ),
    );
    // Each row was read once.
    for (table, read) in &account.rows_read {
        let there = number(&file, &format!("SELECT count(*) FROM {table}"));
        assert_eq!(*read as i64, there, "{table}");
    }
    assert!(account.translation.lost.is_empty() && account.misses.is_empty(), "{account:?}");
    assert_eq!(account.clock, Clock::Monotonic);
    assert!(account.translation.warnings.is_empty(), "{:?}", account.translation.warnings);
    (file, made, account)
}

#[test]
fn a_matrix_multiplication_says_the_same_as_a_shard() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = real("matmul_result.rpd", dir.path()) else { return };
    let (file, made, account) = compare(&path);
    // FillBuffer is neither a copy nor a kernel: it becomes a dispatch under its own name.
    let fill = "SELECT display_name FROM rocpd_info_kernel_symbol WHERE display_name = 'FillBuffer'";
    assert_eq!(lines(&made, fill), ["FillBuffer"]);
    assert_eq!(account.unknown_copy_sizes, 0);
    assert!(account.carried.is_empty());
    assert_eq!(account.metadata[0], ("schema_version".to_owned(), "2".to_owned()));
    let processes = read_processes(&path).unwrap();
    assert_eq!(processes.iter().map(|p| (p.source, p.pid)).collect::<Vec<_>>(), [(1, 1_087_077)]);
    assert_eq!(processes[0].first_seen, number(&file, "SELECT min(start) FROM rocpd_api"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "something was left beside the file");
}

#[test]
fn a_training_run_says_the_same_as_a_shard() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = real("mytrace.rpd", dir.path()) else { return };
    let (file, made, account) = compare(&path);
    assert_eq!(account.unknown_copy_sizes, 640);
    same(
        "autograd",
        (
            &file,
            "SELECT B.start, B.end, C.string, seq, op_id, sizes, input_op_ids FROM ext_autogradapi A
               JOIN rocpd_api B ON B.id = A.api_ptr_id JOIN rocpd_string C ON C.id = A.autogradName_id
              ORDER BY A.api_ptr_id",
        ),
        (
            &made,
            "SELECT r.start, r.end, s.string, seq, op_id, sizes, input_op_ids FROM rpd_ext_autogradapi a
               JOIN rocpd_region r ON r.source = a.source AND r.id = a.api_ptr_id
               JOIN rocpd_string s ON s.id = a.autogradName_id ORDER BY a.id",
        ),
    );
    same(
        "callstack",
        (
            &file,
            "SELECT S.id, P.start, C.start, depth, cpu_time, gpu_time FROM ext_callstack S
               JOIN rocpd_api P ON P.id = S.parent_id JOIN rocpd_api C ON C.id = S.child_id ORDER BY S.id",
        ),
        (
            &made,
            "SELECT s.rpd_id, p.start, c.start, depth, cpu_time, gpu_time FROM rpd_ext_callstack s
               JOIN rocpd_region p ON p.source = s.source AND p.id = s.parent_id
               JOIN rocpd_region c ON c.source = s.source AND c.id = s.child_id ORDER BY s.rpd_id",
        ),
    );
    // Ranges have the category of ranges, and their text.
    let ranges = "SELECT count(*) FROM rocpd_event e JOIN rocpd_string s ON s.id = e.category_id
                   WHERE s.string = 'MARKER_CORE_RANGE_API' AND json_extract(e.extdata, '$.message') IS NOT NULL";
    let texts = "SELECT count(*) FROM api WHERE apiName = 'UserMarker' AND args <> ''";
    assert_eq!(number(&made, ranges), number(&file, texts));
    // The process was active until its last operation or call, whichever ended later.
    let last = "SELECT max(end) FROM (SELECT end FROM rocpd_api UNION ALL SELECT end FROM rocpd_op)";
    assert_eq!(number(&made, "SELECT max(last) FROM process"), number(&file, last));
}
