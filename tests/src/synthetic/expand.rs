use super::cell::{JsonCell, ModelCell, int_or_null, text};
use super::native::{NativeCall, NativeRows};
use super::process::{ProcessRows, owner};
use rpd_shard::model::rocpd;
use std::collections::BTreeMap;

/// The rows of a process with its native events written out as RocPD rows, the plain way: one
/// event each; a region for ranges and calls, a sample on a track of the thread for marks, requests and
/// communicators; an argument for each value.
pub fn expand(rows: &ProcessRows) -> ProcessRows {
    let mut out = rows.clone();
    out.native.clear();
    let mut tracks = BTreeMap::new();
    let mut api_id = out.api_ids.values().flatten().copied().max().unwrap_or(0);
    for native in &rows.native {
        api_id += 1;
        let [nid, pid] = owner();
        let thread = ModelCell::Row(rocpd::INFO_THREAD, native.thread);
        let event = ModelCell::Row(rocpd::EVENT, event(&mut out, native));
        let on_track = match native.call {
            NativeCall::Mark(_) => Some("roctxMark"),
            NativeCall::Request { .. } => Some("MPI request"),
            NativeCall::Communicator { .. } => Some("communicator"),
            NativeCall::Range(_) | NativeCall::Mpi { .. } | NativeCall::Rccl { .. } => None,
        };
        if let Some(name) = on_track {
            let track = *tracks.entry((native.thread, name)).or_insert_with(|| {
                out.add(rocpd::TRACK, vec![nid, pid, thread, ModelCell::Name(name.into()), JsonCell::empty()])
            });
            let track = ModelCell::Row(rocpd::TRACK, track);
            let row = vec![track, ModelCell::Time(native.start), event.clone(), JsonCell::empty()];
            out.add(rocpd::SAMPLE, row);
            out.api_ids.entry(rocpd::SAMPLE).or_default().push(api_id);
        } else {
            let name = ModelCell::Name(native.name().into());
            let (start, end) = (ModelCell::Time(native.start), ModelCell::Time(native.end));
            out.add(
                rocpd::REGION,
                vec![nid, pid, thread, start, end, name, event.clone(), JsonCell::empty()],
            );
            out.api_ids.entry(rocpd::REGION).or_default().push(api_id);
        }
        for (position, (name, value)) in values(&native.call).into_iter().enumerate() {
            let position = int_or_null(Some(position as i64));
            let row =
                vec![event.clone(), position, text("value"), text(name), text(value), JsonCell::empty()];
            out.add(rocpd::ARG, row);
        }
    }
    out
}

/// The values that an event has, by the names that people read.
fn values(call: &NativeCall) -> Vec<(&'static str, String)> {
    let number = |v: Option<i64>| v.map(|v| v.to_string());
    let word = |v: Option<&str>| v.map(str::to_owned);
    let values = match call {
        NativeCall::Range(_) | NativeCall::Mark(_) => vec![],
        NativeCall::Mpi { comm, peer, root, tag, bytes, seq, .. } => vec![
            ("comm", word(*comm)),
            ("peer", number(*peer)),
            ("root", number(*root)),
            ("tag", number(*tag)),
            ("bytes", number(*bytes)),
            ("seq", number(*seq)),
        ],
        NativeCall::Rccl { comm, root, elements, seq, .. } => vec![
            ("comm", word(*comm)),
            ("root", number(*root)),
            ("count", number(elements.map(|(count, ..)| count))),
            ("datatype", word(elements.map(|(_, datatype, _)| datatype))),
            ("bytes", number(elements.map(|(.., bytes)| bytes))),
            ("seq", number(*seq)),
        ],
        NativeCall::Request { message, bytes, .. } => vec![
            ("peer", number(message.map(|(peer, _)| peer))),
            ("tag", number(message.map(|(_, tag)| tag))),
            ("bytes", number(*bytes)),
        ],
        NativeCall::Communicator { comm, label, size_rank, .. } => vec![
            ("comm", word(Some(comm))),
            ("name", word(*label)),
            ("size", number(size_rank.map(|(size, _)| size))),
            ("rank", number(size_rank.map(|(_, rank)| rank))),
        ],
    };
    values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn event(out: &mut ProcessRows, native: &NativeRows) -> usize {
    let message = |name: &str| JsonCell::cell([("message", JsonCell::Text(name.into()))]);
    let (category, extdata) = match &native.call {
        NativeCall::Range(name) => ("MARKER_CORE_RANGE_API", message(name)),
        NativeCall::Mark(name) => ("MARKER_CORE_API", message(name)),
        NativeCall::Mpi { .. } => ("MPI_API", JsonCell::empty()),
        NativeCall::Rccl { .. } => ("RCCL_API", JsonCell::empty()),
        NativeCall::Request { function, .. } => ("MPI_API", message(function)),
        NativeCall::Communicator { function, .. } => ("COMMUNICATOR", message(function)),
    };
    let row = vec![
        ModelCell::Name(category.into()),
        ModelCell::Stack(native.stack),
        ModelCell::Stack(native.parent),
        ModelCell::Int(0),
        JsonCell::empty(),
        JsonCell::empty(),
        extdata,
    ];
    out.add(rocpd::EVENT, row)
}
