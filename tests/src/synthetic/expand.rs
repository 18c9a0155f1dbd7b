use super::cell::{Cell, Json, int_or_null, text};
use super::native::{Call, Native};
use super::process::{ProcessRows, owner};
use rpd_shard::model::rocpd;
use std::collections::BTreeMap;

/// The rows of a process with its native events written out as RocPD rows, the plain way: one
/// event each; a region for ranges and MPI calls, a sample on the track `roctxMark` of the thread for
/// marks; an argument for each value that an MPI call has.
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
        if let Call::Mark(_) = native.call {
            let track = *tracks.entry(native.thread).or_insert_with(|| {
                let name = Cell::Name("roctxMark".into());
                out.add(rocpd::TRACK, vec![nid, pid, thread, name, Json::empty()])
            });
            let row = vec![Cell::Row(rocpd::TRACK, track), Cell::Time(native.start), event, Json::empty()];
            out.add(rocpd::SAMPLE, row);
            out.api_ids.entry(rocpd::SAMPLE).or_default().push(api_id);
            continue;
        }
        let name = Cell::Name(native.name().into());
        let (start, end) = (Cell::Time(native.start), Cell::Time(native.end));
        out.add(rocpd::REGION, vec![nid, pid, thread, start, end, name, event.clone(), Json::empty()]);
        out.api_ids.entry(rocpd::REGION).or_default().push(api_id);
        if let Call::Mpi { comm, peer, root, tag, bytes, seq, .. } = native.call {
            let number = |v: Option<i64>| v.map(|v| v.to_string());
            let values = [
                ("comm", comm.map(str::to_owned)),
                ("peer", number(peer)),
                ("root", number(root)),
                ("tag", number(tag)),
                ("bytes", number(bytes)),
                ("seq", number(seq)),
            ];
            let present = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
            for (position, (name, value)) in present.enumerate() {
                let position = int_or_null(Some(position as i64));
                let row =
                    vec![event.clone(), position, text("value"), text(name), text(value), Json::empty()];
                out.add(rocpd::ARG, row);
            }
        }
    }
    out
}

fn event(out: &mut ProcessRows, native: &Native) -> usize {
    let message = |name: &str| Json::cell([("message", Json::Text(name.into()))]);
    let (category, extdata) = match &native.call {
        Call::Range(name) => ("MARKER_CORE_RANGE_API", message(name)),
        Call::Mark(name) => ("MARKER_CORE_API", message(name)),
        Call::Mpi { .. } => ("MPI_API", Json::empty()),
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
