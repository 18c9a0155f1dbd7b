use super::cell::{Cell, Json, int_or_null, text};
use super::native::{Call, Native};
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
        let thread = Cell::Row(rocpd::INFO_THREAD, native.thread);
        let event = Cell::Row(rocpd::EVENT, event(&mut out, native));
        let on_track = match native.call {
            Call::Mark(_) => Some("roctxMark"),
            Call::Request { .. } => Some("MPI request"),
            Call::Communicator { .. } => Some("communicator"),
            Call::Range(_) | Call::Mpi { .. } | Call::Rccl { .. } => None,
        };
        if let Some(name) = on_track {
            let track = *tracks.entry((native.thread, name)).or_insert_with(|| {
                out.add(rocpd::TRACK, vec![nid, pid, thread, Cell::Name(name.into()), Json::empty()])
            });
            let track = Cell::Row(rocpd::TRACK, track);
            let row = vec![track, Cell::Time(native.start), event.clone(), Json::empty()];
            out.add(rocpd::SAMPLE, row);
            out.api_ids.entry(rocpd::SAMPLE).or_default().push(api_id);
        } else {
            let name = Cell::Name(native.name().into());
            let (start, end) = (Cell::Time(native.start), Cell::Time(native.end));
            out.add(rocpd::REGION, vec![nid, pid, thread, start, end, name, event.clone(), Json::empty()]);
            out.api_ids.entry(rocpd::REGION).or_default().push(api_id);
        }
        for (position, (name, value)) in values(&native.call).into_iter().enumerate() {
            let position = int_or_null(Some(position as i64));
            let row = vec![event.clone(), position, text("value"), text(name), text(value), Json::empty()];
            out.add(rocpd::ARG, row);
        }
    }
    out
}

/// The values that an event has, by the names that people read.
fn values(call: &Call) -> Vec<(&'static str, String)> {
    let number = |v: Option<i64>| v.map(|v| v.to_string());
    let word = |v: Option<&str>| v.map(str::to_owned);
    let values = match call {
        Call::Range(_) | Call::Mark(_) => vec![],
        Call::Mpi { comm, peer, root, tag, bytes, seq, .. } => vec![
            ("comm", word(*comm)),
            ("peer", number(*peer)),
            ("root", number(*root)),
            ("tag", number(*tag)),
            ("bytes", number(*bytes)),
            ("seq", number(*seq)),
        ],
        Call::Rccl { comm, root, elements, seq, .. } => vec![
            ("comm", word(*comm)),
            ("root", number(*root)),
            ("count", number(elements.map(|(count, ..)| count))),
            ("datatype", word(elements.map(|(_, datatype, _)| datatype))),
            ("bytes", number(elements.map(|(.., bytes)| bytes))),
            ("seq", number(*seq)),
        ],
        Call::Request { message, bytes, .. } => vec![
            ("peer", number(message.map(|(peer, _)| peer))),
            ("tag", number(message.map(|(_, tag)| tag))),
            ("bytes", number(*bytes)),
        ],
        Call::Communicator { comm, label, size_rank, .. } => vec![
            ("comm", word(Some(comm))),
            ("name", word(*label)),
            ("size", number(size_rank.map(|(size, _)| size))),
            ("rank", number(size_rank.map(|(_, rank)| rank))),
        ],
    };
    values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn event(out: &mut ProcessRows, native: &Native) -> usize {
    let message = |name: &str| Json::cell([("message", Json::Text(name.into()))]);
    let (category, extdata) = match &native.call {
        Call::Range(name) => ("MARKER_CORE_RANGE_API", message(name)),
        Call::Mark(name) => ("MARKER_CORE_API", message(name)),
        Call::Mpi { .. } => ("MPI_API", Json::empty()),
        Call::Rccl { .. } => ("RCCL_API", Json::empty()),
        Call::Request { function, .. } => ("MPI_API", message(function)),
        Call::Communicator { function, .. } => ("COMMUNICATOR", message(function)),
    };
    let row = vec![
        Cell::Name(category.into()),
        Cell::Stack(native.stack),
        Cell::Stack(native.parent),
        Cell::Int(0),
        Json::empty(),
        Json::empty(),
        extdata,
    ];
    out.add(rocpd::EVENT, row)
}
