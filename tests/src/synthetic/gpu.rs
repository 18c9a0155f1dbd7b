//! What a HIP program does: threads, agents, queues, streams, code; launches, copies, allocations.

use super::cell::{JsonCell, ModelCell, Row, text};
use super::clock::RUN_START;
use super::process::{Author, owner};
use rpd_shard::model::{TableId, rocpd};

/// GPUs that a process sees; one CPU stands before them.
const GPUS: usize = 2;
const QUEUES: usize = 4;
const STREAMS: usize = 5;
const CODE_OBJECTS: usize = 5;
const COUNTERS: [&str; 2] = ["SQ_WAVES", "GRBM_GUI_ACTIVE"];

fn owned<const N: usize>(cells: [ModelCell; N]) -> Row {
    owner().into_iter().chain(cells).collect()
}

fn at(table: TableId, row: usize) -> ModelCell {
    ModelCell::Row(table, row)
}

/// The rows that describe the process and its devices.
pub(super) fn describe(author: &mut Author<'_>) {
    let pid = i64::from(author.process.pid);
    let [nid, process] = owner();
    for thread in 0..author.threads() as i64 {
        let tid = if thread == 0 { pid } else { pid * 100 + thread };
        let started = if thread == 1 { ModelCell::Time(RUN_START - 40) } else { ModelCell::Null };
        let name = if thread == 0 { text("main") } else { ModelCell::Null };
        let ppid = ModelCell::Int(i64::from(author.process.ppid));
        let row = vec![
            nid.clone(),
            ppid,
            process.clone(),
            ModelCell::Int(tid),
            name,
            started,
            ModelCell::Null,
            JsonCell::empty(),
        ];
        author.rows.add(rocpd::INFO_THREAD, row);
    }
    for agent in 0..=GPUS {
        agent_row(author, agent);
    }
    for (table, what, count) in
        [(rocpd::INFO_QUEUE, "Queue", QUEUES), (rocpd::INFO_STREAM, "Stream", STREAMS)]
    {
        for i in 0..count {
            let name = if i == 0 { format!("Default {what}") } else { format!("{what} {}", i - 1) };
            author.rows.add(table, owned([text(name), JsonCell::empty()]));
        }
    }
    for (i, counter) in COUNTERS.into_iter().enumerate() {
        counter_row(author, i, counter);
    }
    for i in 0..CODE_OBJECTS {
        code_object_row(author, i);
    }
    for i in 0..author.kernels.len() {
        kernel_row(author, i);
    }
    for thread in 0..author.threads() {
        let row = vec![
            nid.clone(),
            process.clone(),
            at(rocpd::INFO_THREAD, thread),
            ModelCell::Name("HIP_RUNTIME_API_EXT".into()),
            JsonCell::empty(),
        ];
        author.rows.add(rocpd::TRACK, row);
    }
}

fn agent_row(author: &mut Author<'_>, agent: usize) {
    let index = ModelCell::Int(agent as i64);
    let gpu = agent > 0;
    let extdata = JsonCell::cell([
        ("node_id", JsonCell::Int(agent as i64)),
        ("cu_count", JsonCell::Int(304)),
        ("name", JsonCell::Text("gfx942".into())),
    ]);
    let row = owned([
        text(if gpu { "GPU" } else { "CPU" }),
        index.clone(),
        index,
        ModelCell::Int(agent.saturating_sub(1) as i64),
        ModelCell::Int(0),
        text(if gpu { "gfx942" } else { "AMD EPYC 9654" }),
        if gpu { text("aqua_vanjaram") } else { text("") },
        text(if gpu { "AMD" } else { "CPU" }),
        ModelCell::Null,
        ModelCell::Null,
        extdata,
    ]);
    author.rows.add(rocpd::INFO_AGENT, row);
}

fn counter_row(author: &mut Author<'_>, i: usize, counter: &str) {
    let row = owned([
        at(rocpd::INFO_AGENT, 1),
        text("GPU"),
        ModelCell::Int(i as i64 + 4),
        ModelCell::Null,
        text(counter),
        text(counter.to_lowercase()),
        text("a counter of the shader engines"),
        text(""),
        text("rocm"),
        text(""),
        text("ABS"),
        text("SQ"),
        ModelCell::Null,
        ModelCell::Int(0),
        ModelCell::Int(i as i64),
        JsonCell::empty(),
    ]);
    author.rows.add(rocpd::INFO_PMC, row);
}

fn code_object_row(author: &mut Author<'_>, i: usize) {
    let extdata = JsonCell::cell([
        ("size", JsonCell::Int(72)),
        ("code_object_id", JsonCell::Row(rocpd::INFO_CODE_OBJECT, i)),
        ("storage_type", JsonCell::Int(1)),
    ]);
    let agent = if i % 3 == 2 { ModelCell::Null } else { at(rocpd::INFO_AGENT, 1 + i % GPUS) };
    let row = owned([
        agent,
        text(format!("file:///opt/rocm/lib/libkernels{i}.so#offset=4096&size=77")),
        ModelCell::Int(1 << 40),
        ModelCell::Int(65_536),
        ModelCell::Int(1 << 40),
        if i == 1 { text("MEMORY") } else { text("FILE") },
        extdata,
    ]);
    author.rows.add(rocpd::INFO_CODE_OBJECT, row);
}

fn kernel_row(author: &mut Author<'_>, i: usize) {
    let name = author.kernels[i].clone();
    let object = i % CODE_OBJECTS;
    let short: String = name.chars().take(40).collect();
    let extdata = JsonCell::cell([
        ("size", JsonCell::Int(136)),
        ("kernel_id", JsonCell::Row(rocpd::INFO_KERNEL_SYMBOL, i)),
        ("code_object_id", JsonCell::Row(rocpd::INFO_CODE_OBJECT, object)),
        (
            "kernel_address",
            JsonCell::Object(vec![("handle", JsonCell::Int(0x7f00_0000_0000 + i as i64 * 64))]),
        ),
        ("formatted_kernel_name", JsonCell::Text(name.clone())),
        ("truncated_kernel_name", JsonCell::Text(short.into())),
    ]);
    let row = owned([
        at(rocpd::INFO_CODE_OBJECT, object),
        text(format!("{name}.kd")),
        ModelCell::Text(name),
        ModelCell::Int(0x7f00_0000_0000 + i as i64 * 64),
        ModelCell::Int(296),
        ModelCell::Int(64),
        ModelCell::Int(i as i64 * 1_024),
        ModelCell::Int(0),
        ModelCell::Int(112),
        ModelCell::Int(64),
        ModelCell::Int(4),
        extdata,
    ]);
    author.rows.add(rocpd::INFO_KERNEL_SYMBOL, row);
}

/// One HIP call of a thread, and what the GPU does for it.
pub(super) fn call(author: &mut Author<'_>, thread: usize) {
    match author.random.between(0, 100) {
        0..45 => launch(author, thread),
        45..62 => copy(author, thread),
        62..72 => allocation(author, thread),
        72..78 => instant(author, thread),
        _ => plain(author, thread),
    }
}

/// A HIP call as a region with its event. Returns the positions of both.
fn region(
    author: &mut Author<'_>,
    thread: usize,
    function: &str,
    (start, end): (i64, i64),
    stack: ModelCell,
) -> (usize, usize) {
    let parent = ModelCell::Stack(author.parent(thread));
    let event = author.event("HIP_RUNTIME_API_EXT", stack, parent, JsonCell::empty());
    let row = owned([
        at(rocpd::INFO_THREAD, thread),
        ModelCell::Time(start),
        ModelCell::Time(end),
        ModelCell::Name(function.into()),
        at(rocpd::EVENT, event),
        JsonCell::empty(),
    ]);
    (event, author.api(rocpd::REGION, row))
}

fn arg(author: &mut Author<'_>, event: usize, position: i64, kind: &str, name: &str, value: ModelCell) {
    let row = vec![
        at(rocpd::EVENT, event),
        ModelCell::Int(position),
        text(kind),
        text(name),
        value,
        JsonCell::empty(),
    ];
    author.rows.add(rocpd::ARG, row);
}

/// The argument that says which stream: the handle as text, the id in extdata.
fn stream_arg(author: &mut Author<'_>, event: usize, position: i64, stream: usize) {
    let extdata = JsonCell::cell([("stream_id", JsonCell::Row(rocpd::INFO_STREAM, stream))]);
    let value = text(format!("0x7f12{stream:08x}"));
    let row = vec![
        at(rocpd::EVENT, event),
        ModelCell::Int(position),
        text("hipStream_t"),
        text("stream"),
        value,
        extdata,
    ];
    author.rows.add(rocpd::ARG, row);
}

fn launch(author: &mut Author<'_>, thread: usize) {
    let (start, end) = author.span(thread);
    let stack = author.new_stack();
    let (call, launching) = region(author, thread, "hipLaunchKernel", (start, end), ModelCell::Stack(stack));
    let (queue, stream) = (author.random.index(QUEUES), author.random.index(STREAMS));
    let address = text(format!("0x7f{:010x}", author.random.between(0, 64) * 4_096));
    arg(author, call, 0, "void const*", "function_address", address);
    let blocks = author.random.between(1, 4_096);
    arg(author, call, 1, "dim3", "numBlocks", text(format!("{{{blocks},1,1}}")));
    arg(author, call, 2, "size_t", "sharedMemBytes", ModelCell::Null);
    stream_arg(author, call, 3, stream);

    let parent =
        if author.random.chance(50) { ModelCell::Stack(author.parent(thread)) } else { ModelCell::Null };
    let event = author.event("KERNEL_DISPATCH", ModelCell::Stack(stack), parent, JsonCell::empty());
    let begins = end + author.random.duration(4_000);
    let ends = begins + author.random.duration(30_000);
    // A few kernels take most of the dispatches.
    let kernels = author.kernels.len();
    let kernel = author.random.index(kernels).min(author.random.index(kernels));
    let dispatches = author.rows.of(rocpd::KERNEL_DISPATCH).len() as i64;
    let size = |author: &mut Author<'_>| ModelCell::Int(64 << author.random.between(0, 5));
    let row = owned([
        at(rocpd::INFO_THREAD, thread),
        at(rocpd::INFO_AGENT, 1 + queue % GPUS),
        at(rocpd::INFO_KERNEL_SYMBOL, kernel),
        ModelCell::Int(dispatches + 1),
        at(rocpd::INFO_QUEUE, queue),
        at(rocpd::INFO_STREAM, stream),
        ModelCell::Time(begins),
        ModelCell::Time(ends),
        ModelCell::Int(0),
        size(author),
        size(author),
        ModelCell::Int(1),
        ModelCell::Int(1),
        size(author),
        ModelCell::Int(1),
        ModelCell::Int(1),
        ModelCell::Name("".into()),
        at(rocpd::EVENT, event),
        JsonCell::empty(),
    ]);
    let dispatch = author.rows.add(rocpd::KERNEL_DISPATCH, row);
    author.rows.launches.push((launching, dispatch));
    if author.random.chance(25) {
        for counter in 0..COUNTERS.len() {
            let value = ModelCell::Real(author.random.between(0, 1 << 30) as f64 / 8.0);
            let row = vec![at(rocpd::EVENT, event), at(rocpd::INFO_PMC, counter), value, JsonCell::empty()];
            author.rows.add(rocpd::PMC_EVENT, row);
        }
    }
}

fn copy(author: &mut Author<'_>, thread: usize) {
    let (start, end) = author.span(thread);
    let stack = author.new_stack();
    let (call, _) = region(author, thread, "hipMemcpyAsync", (start, end), ModelCell::Stack(stack));
    let stream = author.random.index(STREAMS);
    let size = 1 << author.random.between(8, 28);
    arg(author, call, 0, "size_t", "sizeBytes", text(format!("{size}")));
    stream_arg(author, call, 1, stream);
    let event = author.event("MEMORY_COPY", ModelCell::Stack(stack), ModelCell::Stack(0), JsonCell::empty());
    let to_device = author.random.chance(50);
    let (from, to) = if to_device { (0, 1) } else { (1, 0) };
    let name = if to_device { "MEMORY_COPY_HOST_TO_DEVICE" } else { "MEMORY_COPY_DEVICE_TO_HOST" };
    let begins = end + author.random.duration(4_000);
    let row = owned([
        if author.random.chance(90) { at(rocpd::INFO_THREAD, thread) } else { ModelCell::Null },
        ModelCell::Time(begins),
        ModelCell::Time(begins + author.random.duration(80_000)),
        ModelCell::Name(name.into()),
        at(rocpd::INFO_AGENT, to),
        ModelCell::Int(0x2000_0000_0000),
        at(rocpd::INFO_AGENT, from),
        ModelCell::Int(0x1000_0000_0000 + size),
        ModelCell::Int(size),
        ModelCell::Null,
        at(rocpd::INFO_STREAM, stream),
        ModelCell::Null,
        at(rocpd::EVENT, event),
        JsonCell::empty(),
    ]);
    author.rows.add(rocpd::MEMORY_COPY, row);
}

fn allocation(author: &mut Author<'_>, thread: usize) {
    let (start, end) = author.span(thread);
    let stack = author.new_stack();
    let free = author.random.chance(40);
    let function = if free { "hipFree" } else { "hipMalloc" };
    let (call, _) = region(author, thread, function, (start, end), ModelCell::Stack(stack));
    arg(author, call, 0, "void**", "ptr", text("0x7ffd12345678"));
    let event =
        author.event("MEMORY_ALLOCATION", ModelCell::Stack(stack), ModelCell::Stack(0), JsonCell::empty());
    let row = owned([
        at(rocpd::INFO_THREAD, thread),
        if free { ModelCell::Null } else { at(rocpd::INFO_AGENT, 1) },
        text(if free { "FREE" } else { "ALLOC" }),
        text("REAL"),
        ModelCell::Time(start + 100),
        ModelCell::Time(end),
        ModelCell::Int(0x4000_0000_0000 + author.random.between(0, 1 << 30)),
        ModelCell::Int(if free { 0 } else { author.random.between(1, 1 << 30) }),
        at(rocpd::INFO_QUEUE, 0),
        if author.random.chance(50) { at(rocpd::INFO_STREAM, 0) } else { ModelCell::Null },
        at(rocpd::EVENT, event),
        JsonCell::empty(),
    ]);
    author.rows.add(rocpd::MEMORY_ALLOCATE, row);
}

/// A call without length: a sample on the track of its thread.
fn instant(author: &mut Author<'_>, thread: usize) {
    let at_time = author.pass(thread, 2_000);
    let stack = ModelCell::Stack(author.new_stack());
    let parent = ModelCell::Stack(author.parent(thread));
    let extdata = JsonCell::cell([("message", JsonCell::Text("hipGetLastError".into()))]);
    let event = author.event("HIP_RUNTIME_API_EXT", stack, parent, extdata);
    let event = if author.random.chance(90) { at(rocpd::EVENT, event) } else { ModelCell::Null };
    let row = vec![at(rocpd::TRACK, thread), ModelCell::Time(at_time), event, JsonCell::empty()];
    author.api(rocpd::SAMPLE, row);
}

/// A call that launches nothing.
fn plain(author: &mut Author<'_>, thread: usize) {
    const FUNCTIONS: [&str; 5] =
        ["hipGetDevice", "hipSetDevice", "hipEventRecord", "hipStreamSynchronize", "hipPointerGetAttributes"];
    let span = author.span(thread);
    let stack = match author.random.between(0, 20) {
        0 => ModelCell::Null,
        1 => ModelCell::Stack(0),
        _ => ModelCell::Stack(author.new_stack()),
    };
    let function = *author.random.pick(&FUNCTIONS);
    if author.random.chance(3) {
        let row = owned([
            at(rocpd::INFO_THREAD, thread),
            ModelCell::Time(span.0),
            ModelCell::Time(span.1),
            ModelCell::Name(function.into()),
            ModelCell::Null,
            JsonCell::cell([("note", JsonCell::Text("a region without an event".into()))]),
        ]);
        author.api(rocpd::REGION, row);
        return;
    }
    let (event, _) = region(author, thread, function, span, stack);
    if author.random.chance(60) {
        arg(author, event, 0, "int*", "deviceId", text("0"));
    }
}
