use super::program::Program;
use super::recorder::{CallOperation, ModelCall, RunRecorder};
use super::row_recorder::{ColumnValue, RankRows, RecordedRow};
use super::scenarios::gpus::REDUCTION;
use rpd_shard::model::{native, rocpd};
use std::collections::VecDeque;

/// Records the rows that a profiler and collectors write of a program with GPUs: calls to HIP, kernels, and in some runs
/// the calls to RCCL that number these.
pub(super) struct GpuRecorder<'a> {
    program: &'a Program,
    /// Whether calls to RCCL are recorded. Without them, kernels match by their order.
    has_rccl_calls: bool,
    pub(super) processes: Vec<RankRows>,
    /// Stack ids of the launches of each process whose work has not begun.
    launched: Vec<VecDeque<i64>>,
    /// Stack id of the launch of the work that comes next on each GPU.
    current: Vec<i64>,
    /// Number of reductions of each GPU.
    reductions: Vec<i64>,
}

impl<'a> GpuRecorder<'a> {
    pub(super) fn new(program: &'a Program, has_rccl_calls: bool) -> GpuRecorder<'a> {
        let count = program.processes() as usize;
        GpuRecorder {
            program,
            has_rccl_calls,
            processes: vec![RankRows::default(); count],
            launched: vec![VecDeque::new(); count],
            current: vec![0; count],
            reductions: vec![0; count],
        }
    }

    /// Adds a kernel. What follows the kernel of a reduction under its name belongs to it.
    fn kernel(&mut self, process: u32, name: &str, (start_ns, end_ns): (i64, i64)) {
        let (rows, stack) = (&mut self.processes[process as usize], self.current[process as usize]);
        let last = rows.rows.iter_mut().rev().find(|row| row.table == rocpd::KERNEL_DISPATCH);
        match last.filter(|last| last.name == name && last.stack == stack) {
            Some(last) => last.end_ns = end_ns,
            None => rows.rows.push(RecordedRow {
                table: rocpd::KERNEL_DISPATCH,
                start_ns,
                end_ns,
                name: name.to_owned(),
                stack,
                parent: 0,
                values: Vec::new(),
            }),
        }
    }

    /// Numbers the reduction of the last launch by a call to RCCL around it.
    fn rccl_call(&mut self, process: u32, stack: i64) {
        let rows = &mut self.processes[process as usize];
        let Some(launch) =
            rows.rows.iter().rev().find(|row| row.stack == stack && row.table == rocpd::REGION)
        else {
            return;
        };
        let (start_ns, end_ns) = (launch.start_ns, launch.end_ns);
        self.reductions[process as usize] += 1;
        let name = &self.program.communicators[1].name;
        let values = vec![
            ("comm_id", ColumnValue::Text(name.clone())),
            ("seq", ColumnValue::Int(self.reductions[process as usize])),
        ];
        let (stack, name) = (rows.new_stack(), "ncclAllReduce".to_owned());
        rows.rows.push(RecordedRow {
            table: native::RCCL_CALL,
            start_ns,
            end_ns,
            name,
            stack,
            parent: 0,
            values,
        });
    }

    fn communicator(&mut self, process: u32, at_ns: i64) {
        let communicator = &self.program.communicators[1];
        let rows = &mut self.processes[process as usize];
        let values = vec![
            ("comm_id", ColumnValue::Text(communicator.name.clone())),
            ("size", ColumnValue::Int(communicator.size() as i64)),
            ("rank", ColumnValue::Int(i64::from(process))),
        ];
        let (table, stack) = (native::COMMUNICATOR, rows.new_stack());
        let name = communicator.made_by.to_owned();
        rows.rows.push(RecordedRow { table, start_ns: at_ns, end_ns: at_ns, name, stack, parent: 0, values });
    }
}

impl RunRecorder for GpuRecorder<'_> {
    fn worked(&mut self, rank: u32, range: Option<&'static str>, start_ns: i64, end_ns: i64) {
        let Some(range) = range.filter(|_| end_ns > start_ns) else { return };
        match self.program.process_of_gpu(rank) {
            Some(process) => self.kernel(process, range, (start_ns, end_ns)),
            None => {
                let rows = &mut self.processes[rank as usize];
                let stack = rows.new_stack();
                rows.add_range(range, (start_ns, end_ns), stack, rows.parent());
            }
        }
    }

    fn called(&mut self, call: &ModelCall<'_>) {
        let Some(operation) = call.operations.first() else { return };
        match (self.program.process_of_gpu(call.rank), operation) {
            (_, CallOperation::Collective(entered)) if entered.communicator == 0 => {
                if call.function == "MPI_Init"
                    && self.has_rccl_calls
                    && self.program.process_of_gpu(call.rank).is_none()
                {
                    self.communicator(call.rank, call.exit_ns);
                }
            }
            (None, operation) => {
                let rows = &mut self.processes[call.rank as usize];
                let stack = rows.new_stack();
                let is_launch = matches!(operation, CallOperation::Send(..));
                let name = if is_launch { "hipLaunchKernel" } else { "hipStreamSynchronize" }.to_owned();
                let (table, parent) = (rocpd::REGION, rows.parent());
                let (start_ns, end_ns) = (call.enter_ns, call.exit_ns);
                let values = Vec::new();
                rows.rows.push(RecordedRow { table, start_ns, end_ns, name, stack, parent, values });
                if is_launch {
                    self.launched[call.rank as usize].push_back(stack);
                }
            }
            (Some(process), CallOperation::Receive(..)) => {
                let launched = self.launched[process as usize].pop_front();
                self.current[process as usize] = launched.unwrap_or(0);
            }
            (Some(process), CallOperation::Collective(_)) => {
                self.kernel(process, REDUCTION, (call.enter_ns, call.exit_ns));
                if self.has_rccl_calls {
                    self.rccl_call(process, self.current[process as usize]);
                }
            }
            (Some(_), _) => {}
        }
    }

    fn step_begins(&mut self, rank: u32, _: u32, at_ns: i64) {
        if let Some(rows) = self.processes.get_mut(rank as usize) {
            rows.end_step(at_ns);
            rows.begin_step(at_ns);
        }
    }

    fn steps_end(&mut self, rank: u32, at_ns: i64) {
        if let Some(rows) = self.processes.get_mut(rank as usize) {
            rows.end_step(at_ns);
        }
    }
}
