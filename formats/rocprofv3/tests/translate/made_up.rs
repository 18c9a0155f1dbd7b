//! Generates files like those of rocprofv3.

use serde_json::{Value as Json, json};

/// Kinds and their operations in `strings.buffer_records`; the position of a kind is its number.
const KINDS: [(&str, &[&str]); 9] = [
    ("NONE", &[]),
    (
        "HIP_RUNTIME_API_EXT",
        &["hipApiName", "hipLaunchKernel", "hipMemcpyAsync", "hipMalloc", "hipGetDevice"],
    ),
    ("HSA_CORE_API", &["hsa_init", "hsa_shut_down", "hsa_signal_wait"]),
    ("MARKER_CORE_RANGE_API", &["roctxMarkA", "roctxThreadRangeA", "roctxProcessRangeA", "roctxGetThreadId"]),
    ("RCCL_API", &["ncclAllGather", "ncclAllReduce"]),
    ("KERNEL_DISPATCH", &["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_ENQUEUE", "KERNEL_DISPATCH_COMPLETE"]),
    ("MEMORY_COPY", &["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_HOST", "MEMORY_COPY_HOST_TO_DEVICE"]),
    (
        "MEMORY_ALLOCATION",
        &[
            "MEMORY_ALLOCATION_NONE",
            "MEMORY_ALLOCATION_ALLOCATE",
            "MEMORY_ALLOCATION_VMEM_ALLOCATE",
            "MEMORY_ALLOCATION_FREE",
            "MEMORY_ALLOCATION_VMEM_FREE",
        ],
    ),
    (
        "SCRATCH_MEMORY",
        &[
            "SCRATCH_MEMORY_NONE",
            "SCRATCH_MEMORY_ALLOC",
            "SCRATCH_MEMORY_FREE",
            "SCRATCH_MEMORY_ASYNC_RECLAIM",
        ],
    ),
];

/// Handles of the agents: a CPU, a GPU, a GPU.
pub(crate) const AGENTS: [u64; 3] = [900, 901, 902];
const THREADS: u64 = 3;

/// Properties of a generated file.
pub(crate) struct MadeUp {
    pub(crate) processes: u64,
    /// Number of HIP calls of each process; it determines the numbers of other records.
    pub(crate) calls: u64,
    /// Offset that is added to correlation ids and handles.
    pub(crate) high: u64,
    pub(crate) counters: bool,
}

impl Default for MadeUp {
    fn default() -> MadeUp {
        MadeUp { processes: 1, calls: 200, high: 0, counters: false }
    }
}

impl MadeUp {
    /// Builds the file with members in alphabetical order: records precede tables.
    pub(crate) fn json(&self) -> Json {
        let processes: Vec<Json> = (0..self.processes).map(|i| self.process(i)).collect();
        json!({ "rocprofiler-sdk-tool": processes })
    }

    fn process(&self, i: u64) -> Json {
        let agents: Vec<Json> = (0..).zip(AGENTS).map(|(n, handle)| agent(n, handle)).collect();
        let kinds: Vec<Json> =
            KINDS.iter().map(|(kind, operations)| json!({"kind": kind, "operations": operations})).collect();
        let records = self.records(i);
        let markers: Vec<Json> = records["marker_api"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| {
                let id = r["correlation_id"]["internal"].as_u64().unwrap();
                json!({"key": id, "value": format!("step {} of \"epoch\"", id % 7)})
            })
            .collect();
        json!({
            "metadata": {
                "node": {"id": 3, "hash": 5, "machine_id": format!("{:032}", 7), "system_name": "Linux",
                    "hostname": "gpu000", "release": "6.8", "version": "#1", "hardware_name": "x86_64",
                    "domain_name": "(none)"},
                "pid": 4000 + i, "init_time": 1_000, "fini_time": 9_000_000_000_000u64,
                "command": ["python3", "train.py"], "config": {"output_file": "x"},
            },
            "agents": agents,
            "counters": [
                {"agent_id": {"handle": AGENTS[1]}, "id": {"handle": 70}, "is_constant": 0, "is_derived": 1,
                 "name": "SQ_WAVES", "description": "waves", "block": "SQ", "expression": ""},
                {"agent_id": {"handle": AGENTS[2]}, "id": {"handle": 71}, "is_constant": false,
                 "is_derived": false, "name": "SQ_BUSY", "description": "", "block": "SQ", "expression": ""},
            ],
            "strings": {
                "callback_records": kinds.clone(), "buffer_records": kinds, "marker_api": markers,
                "correlation_id": {"external": [{"key": 5, "value": "renamed"}]},
                "counters": {"dimension_ids": []}, "pc_sample_comments": [],
            },
            "code_objects": [
                {"size": 0, "code_object_id": 0, "agent_id": {"handle": 0}, "uri": ""},
                {"size": 88, "code_object_id": 11, "agent_id": {"handle": AGENTS[1]}, "uri": "file:///x.so",
                 "load_base": 4096, "load_size": 10, "load_delta": -4096, "storage_type": 1},
                {"size": 88, "code_object_id": 12, "agent_id": {"handle": AGENTS[2]},
                 "uri": "memory://4000#offset=0x10&size=4", "load_base": 8192, "load_size": 10,
                 "load_delta": 8192, "storage_type": 2},
            ],
            "kernel_symbols": (0..9u64).map(|k| kernel(k, self.high)).collect::<Vec<_>>(),
            "host_functions": [{"size": 0}],
            "summary": [],
            "callback_records": {"counter_collection": if self.counters { self.counted() } else { json!([]) }},
            "buffer_records": records,
        })
    }

    fn records(&self, process: u64) -> Json {
        let mut kinds: [Vec<Json>; 8] = Default::default();
        let [hip, hsa, markers, rccl, kernels, copies, allocations, scratch] = &mut kinds;
        for i in 0..self.calls {
            let id = self.high + 3 * i + 1;
            let start = 1_000_000 + 10_000 * i + process;
            let operation = 1 + i % 4;
            let thread = 4000 + process + i % THREADS;
            let record = |kind: u64, operation: u64, start: u64, end: u64| {
                json!({"size": 64, "kind": kind, "operation": operation, "thread_id": thread,
                    "correlation_id": {"internal": id, "external": i % 6, "ancestor": 0},
                    "start_timestamp": start, "end_timestamp": end})
            };
            let with = |mut record: Json, more: Json| {
                record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                record
            };
            let length = if i % 10 == 3 { 0 } else { 500 + i % 97 };
            let args = json!([{"type": "int*", "name": "deviceId", "value": "0"},
                {"type": "hipStream_t", "name": "stream", "value": format!("0x{i:x}")}]);
            let more =
                if i % 3 == 0 { json!({"args": args, "retval": {"uint64_t_retval": 0}}) } else { json!({}) };
            hip.push(with(record(1, operation, start, start + length), more));
            match operation {
                1 => kernels.push(with(
                    record(5, 2, start + 900, start + 3_000 + i % 31),
                    json!({"dispatch_info": self.dispatch(i), "stream_id": {"handle": self.high + i % 3}}),
                )),
                2 => copies.push(with(
                    record(6, 1 + i % 2, start + 700, start + 2_000),
                    json!({"src_agent_id": {"handle": AGENTS[0]}, "dst_agent_id": {"handle": AGENTS[1]},
                        "bytes": 4096 + i, "stream_id": {"handle": i % 2},
                        "src_address": {"handle": u64::MAX - i}, "dst_address": "0x00007f0000001000"}),
                )),
                3 => allocations.push(with(
                    record(7, 1 + i % 4, start + 10, start + 100),
                    json!({"agent_id": {"handle": AGENTS[1]}, "address": format!("{:#018x}", i << 12),
                        "allocation_size": i}),
                )),
                _ => {}
            }
            match i % 5 {
                0 => markers.push(record(3, i % 3, start, if i % 15 == 0 { start } else { start + 9_000 })),
                1 => hsa.push(record(2, i % 3, start + 5, start + 50)),
                2 => rccl.push(record(4, i % 2, start + 5, start + 60)),
                3 => scratch.push(with(
                    record(8, 1 + i % 3, start + 5, start + 60),
                    json!({"agent_id": {"handle": AGENTS[2]}, "queue_id": {"handle": 2}, "flags": 1}),
                )),
                _ => {}
            }
        }
        let [hip, hsa, markers, rccl, kernels, copies, allocations, scratch] = kinds;
        json!({"kernel_dispatch": kernels, "hip_api": hip, "hsa_api": hsa, "marker_api": markers,
            "rccl_api": rccl, "memory_copy": copies, "memory_allocation": allocations,
            "scratch_memory": scratch, "pc_sample_host_trap": [{"pc": 1}, {"pc": 2}]})
    }

    /// Builds `dispatch_info` of call `i`.
    fn dispatch(&self, i: u64) -> Json {
        json!({"size": 72, "agent_id": {"handle": AGENTS[1 + (i % 2) as usize]},
            "queue_id": {"handle": 1 + i % 2}, "kernel_id": self.high + 21 + i % 8, "dispatch_id": i + 1,
            "private_segment_size": 0, "group_segment_size": 64,
            "workgroup_size": {"x": 256, "y": 1, "z": 1}, "grid_size": {"x": 256 * (i + 1), "y": 2, "z": 3}})
    }

    /// Builds counters of every second dispatch; the first dispatch occurs twice.
    fn counted(&self) -> Json {
        let dispatched = (0..self.calls).filter(|i| i % 8 == 0);
        let counted = std::iter::once(0).chain(dispatched).map(|i| {
            json!({"thread_id": 4000, "dispatch_data": {"size": 9, "correlation_id": {"internal": self.high + 3 * i + 1,
                "external": 0}, "start_timestamp": 1_000_900 + 10_000 * i, "end_timestamp": 1_003_000 + 10_000 * i,
                "dispatch_info": self.dispatch(i)},
                "records": [{"counter_id": {"handle": 70}, "value": i as f64 + 0.1},
                            {"counter_id": {"handle": 71}, "value": 3}], "kernel_rename_val": 0})
        });
        Json::Array(counted.collect())
    }
}

fn agent(n: u64, handle: u64) -> Json {
    let cpu = n == 0;
    json!({"size": 312, "id": {"handle": handle}, "type": if cpu { 1 } else { 2 }, "device_id": 30_112,
        "hive_id": u64::MAX, "name": if cpu { "EPYC" } else { "gfx950" }, "vendor_name": "AMD",
        "product_name": "AMD Instinct", "model_name": "", "node_id": n, "logical_node_id": n,
        "logical_node_type_id": n.saturating_sub(1), "gpu_index": n as i64 - 1, "caches": [{"size": 1}]})
}

/// Builds a kernel symbol; the first one is an entry that was never filled.
fn kernel(k: u64, high: u64) -> Json {
    let (id, object) = if k == 0 { (0, 0) } else { (high + 20 + k, 11 + k % 2) };
    let name = format!("void kernel<{}, \"{}\">(int)", k % 4, "x".repeat(300));
    json!({"size": 88, "kernel_id": id, "code_object_id": object, "kernel_name": format!("{name}.kd"),
        "kernel_object": 140_341_013_919_232u64 + k, "kernarg_segment_size": 48,
        "kernarg_segment_alignment": 16, "group_segment_size": 0, "private_segment_size": 0,
        "sgpr_count": 32, "arch_vgpr_count": 8, "accum_vgpr_count": 0, "kernel_code_entry_byte_offset": 64,
        "kernel_address": {"handle": 5}, "formatted_kernel_name": name, "demangled_kernel_name": name,
        "truncated_kernel_name": "kernel"})
}

/// Returns the text of a value. Members of objects are in the given order; unlisted members are first.
pub(crate) fn ordered(value: &Json, last: &[&str]) -> String {
    match value {
        Json::Object(object) => {
            let mut members: Vec<(&String, &Json)> = object.iter().collect();
            members.sort_by_key(|(name, _)| last.iter().position(|l| l == name).map_or(0, |i| i + 1));
            let members: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{}:{}", json!(name), ordered(value, last)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Json::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(|value| ordered(value, last)).collect();
            format!("[{}]", elements.join(","))
        }
        other => other.to_string(),
    }
}
