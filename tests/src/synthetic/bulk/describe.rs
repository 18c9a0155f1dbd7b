//! What stands before the events of a rank: strings, process, devices, code.

use super::author::{Author, Result};
use super::events::{GPUS, QUEUES, STREAMS};
use crate::synthetic::clock::RUN_START;
use crate::synthetic::run::Run;
use rpd_shard::model::{Value, rocpd};
use serde_json::json;

/// Categories and functions that events have; the other operations have no event.
const USED: [&str; 15] = [
    "",
    "HIP_RUNTIME_API_EXT",
    "MARKER_CORE_RANGE_API",
    "KERNEL_DISPATCH",
    "MEMORY_COPY",
    "MEMORY_ALLOCATION",
    "hipLaunchKernel",
    "hipMemcpyAsync",
    "hipMalloc",
    "hipGetLastError",
    "roctxThreadRangeA",
    "MEMORY_COPY_HOST_TO_DEVICE",
    "MEMORY_COPY_DEVICE_TO_HOST",
    "MPI_Allreduce",
    "MPI_COMM_WORLD",
];
const CODE_OBJECTS: usize = 8;

impl<'a> Author<'a, '_> {
    /// The strings of the rank. A shard has those that it refers to.
    pub(super) fn strings(&mut self) -> Result {
        for text in USED {
            let id = self.string(text)?;
            self.used.insert(text, id);
        }
        if !self.sink.is_native() {
            for i in USED.len()..self.bulk.operations {
                self.string(&format!("operation_{i:05}_of_the_runtime"))?;
            }
            for kernel in 0..self.kernels.len() {
                for name in self.kernel_names(kernel) {
                    self.string(&name)?;
                }
            }
        }
        let (count, first) = self.bulk.share(self.process.rank);
        for i in first..first + count.max(1) {
            let id = self.string(&format!("phase {i} of the program"))?;
            self.markers.push(id);
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<i64> {
        self.next(rocpd::STRING);
        self.sink.string(text)
    }

    /// The four names of a kernel: as in the code object, and three forms of it for people.
    fn kernel_names(&self, kernel: usize) -> [String; 4] {
        let name = &self.kernels[kernel];
        let short: String = name.chars().take_while(|c| *c != '<').collect();
        [format!("{name}.kd"), name.to_string(), format!("{name} [clone .kd]"), format!("{short} ({kernel})")]
    }

    /// Node, process, threads, devices and code.
    pub(super) fn describe(&mut self) -> Result {
        let [nid, pid] = self.owner();
        if !self.sink.is_native() {
            self.node_and_process()?;
        }
        let ppid = Value::Int(self.process.ppid.into());
        for thread in 0..self.bulk.threads.max(1) {
            let tid = self.tid(thread);
            let row = [nid, ppid, pid, Value::Int(tid)];
            self.push_as(rocpd::INFO_THREAD, tid, &row)?;
        }
        for agent in 0..=GPUS {
            let index = Value::Int(agent as i64);
            let (kind, name) = if agent == 0 { ("CPU", "AMD EPYC 9654") } else { ("GPU", "gfx942") };
            let type_index = Value::Int(agent.saturating_sub(1) as i64);
            let extdata = json!({ "size": 288, "node_id": agent, "cu_count": 304, "name": name }).to_string();
            let (name, none) = (Value::from(name), Value::from(""));
            let extdata = extdata.as_str().into();
            let row = [
                nid,
                pid,
                kind.into(),
                index,
                index,
                type_index,
                0.into(),
                name,
                none,
                none,
                none,
                none,
                extdata,
            ];
            self.push_as(rocpd::INFO_AGENT, agent as i64, &row)?;
        }
        for (table, what, count) in
            [(rocpd::INFO_QUEUE, "Queue", QUEUES), (rocpd::INFO_STREAM, "Stream", STREAMS)]
        {
            for i in 0..count {
                let name = if i == 0 { format!("Default {what}") } else { format!("{what} {}", i - 1) };
                self.push_as(table, i as i64, &[nid, pid, name.as_str().into()])?;
            }
        }
        for object in 1..=CODE_OBJECTS {
            let uri = format!("file:///opt/lib/libkernels{object}.so#offset=4096&size=77");
            let extdata = json!({ "size": 88, "code_object_id": object }).to_string();
            let agent = self.agent(1);
            let (base, size) = (Value::Int(1 << 40), Value::Int(65_536));
            let (uri, extdata) = (uri.as_str().into(), extdata.as_str().into());
            let row = [nid, pid, agent, uri, base, size, base, "FILE".into(), extdata];
            self.push(rocpd::INFO_CODE_OBJECT, &row)?;
        }
        for kernel in 0..self.kernels.len() {
            self.kernel_symbol(kernel)?;
        }
        for thread in 0..self.bulk.threads.max(1) {
            let row = [nid, pid, self.thread(thread), self.used("HIP_RUNTIME_API_EXT")];
            self.push(rocpd::TRACK, &row)?;
        }
        Ok(())
    }

    fn kernel_symbol(&mut self, kernel: usize) -> Result {
        let [nid, pid] = self.owner();
        let object = 1 + kernel % CODE_OBJECTS;
        let names = self.kernel_names(kernel);
        let extdata = json!({
            "size": 88, "kernel_id": kernel + 1, "code_object_id": object,
            "kernel_code_entry_byte_offset": 6_912, "kernel_address": { "handle": 140_341_013_926_144u64 },
            "formatted_kernel_name": names[1], "demangled_kernel_name": names[2],
            "truncated_kernel_name": names[3],
        });
        let extdata = extdata.to_string();
        let [size, alignment, zero, sgprs, vgprs] = [48, 16, 0, 32, 64].map(Value::Int);
        let address = Value::Int(140_341_013_919_232 + 64 * kernel as i64);
        let (name, shown) = (names[0].as_str().into(), names[1].as_str().into());
        let object = Value::Int(object as i64);
        let extdata = extdata.as_str().into();
        let row = [
            nid, pid, object, name, shown, address, size, alignment, zero, zero, sgprs, vgprs, zero, extdata,
        ];
        self.push(rocpd::INFO_KERNEL_SYMBOL, &row).map(drop)
    }

    /// A shard has records instead.
    fn node_and_process(&mut self) -> Result {
        let [nid, pid] = self.owner();
        let Run { nodes, .. } = self.run;
        let node = &nodes[self.process.node].node;
        let hash = Value::Int(308_220_289_812_934_058 + self.process.node as i64);
        let text = |text: &'a String| Value::from(text.as_str());
        let row = [
            hash,
            text(&node.machine_id),
            text(&node.system_name),
            text(&node.hostname),
            text(&node.release),
            text(&node.version),
            text(&node.hardware_name),
            text(&node.domain_name),
        ];
        let (Value::Int(node), Value::Int(process)) = (nid, pid) else { return Ok(()) };
        self.push_as(rocpd::INFO_NODE, node, &row)?;
        let payload = self.payload();
        let environment = json!({
            "OMPI_COMM_WORLD_RANK": self.process.rank.to_string(),
            "OMPI_COMM_WORLD_SIZE": self.run.ranks.len().to_string(),
            "OMPI_COMM_WORLD_LOCAL_RANK": self.process.local_rank.to_string(),
            "PATH": "/opt/rocm/bin:/usr/bin:/bin", "HOME": "/users/me",
            "SERVICE_TOKEN": "not-a-secret-but-looks-like-one", "LARGE": payload,
        });
        let environment = environment.to_string();
        let command = format!("python3 train.py --rank {}", self.process.rank);
        let (from, to) = (self.time(RUN_START), self.time(RUN_START + self.run.length()));
        let ppid = Value::Int(self.process.ppid.into());
        let (command, environment) = (command.as_str().into(), environment.as_str().into());
        let row = [nid, ppid, pid, from, to, from, to, command, environment];
        self.push_as(rocpd::INFO_PROCESS, process, &row)
    }
}
