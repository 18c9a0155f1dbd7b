//! `rpd-merge inspect PATH`: prints the content of a shard; for any other path, what it is and what to do next.

use super::inspect_other::describe;
use crate::input::survey::exit_text;
use rpd_console::Failure;
use rpd_console::wording::rank_list;
use rpd_shard::Shard;
use rpd_shard::file::{BlockKind, BlockRef};
use rpd_shard::model::TableId;
use rpd_shard::record::{ClockDomain, ClockSet, Probe};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

/// Prints header, processes, blocks, clocks and ledger of a shard on standard output, or a description of another
/// path.
pub(crate) fn inspect(path: &Path, every_block: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let printed = match describe(path)? {
        Some(lines) => lines.iter().try_for_each(|line| writeln!(out, "{line}")),
        None => print(&Shard::open(path)?, every_block, &mut out),
    };
    match printed {
        // A pipe closed by the reader, as by `| head`, is not a failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::output(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

fn print(shard: &Shard, every_block: bool, out: &mut impl Write) -> io::Result<()> {
    let id = &shard.identity;
    let finished = if shard.complete() { "finished" } else { "NOT finished by its collector" };
    let format = shard.version().0;
    writeln!(
        out,
        "shard      {} ({} bytes, format {format}, {finished})",
        shard.path().display(),
        shard.bytes()
    )?;
    writeln!(out, "run        {} (from {})", id.run_id, id.run_id_from)?;
    let number = |n: Option<u32>| n.map_or("none".to_owned(), |n| n.to_string());
    writeln!(out, "collector  rank {} of {}, rpd-collect {}", number(id.rank), number(id.size), id.version)?;
    if let Some(selection) = &shard.selection {
        writeln!(out, "chosen     rank {}, with --ranks", rank_list(&selection.ranks))?;
    }
    for process in shard.processes.values() {
        let worker = if process.worker { " worker" } else { "" };
        let exit = process.exit.map_or("still running when last seen".to_owned(), exit_text);
        writeln!(
            out,
            "process {:2} rank {}{worker} pid {} on {}: {} ({exit}; {})",
            process.source,
            number(process.rank),
            process.pid,
            process.node.hostname,
            process.command,
            process.clock.name(),
        )?;
    }
    if let Some(command) = &shard.command {
        let exit = command.exit.map_or("still running when last seen".to_owned(), exit_text);
        let host = &command.node.hostname;
        writeln!(out, "command    pid {} on {host}: {} ({exit})", command.pid, command.command)?;
    }
    if let (Some(first), Some(last)) = (shard.clocks.first(), shard.clocks.last()) {
        let tightest = shard.clocks.iter().map(|c| c.bracket).min().unwrap_or(0);
        let anchor = |set: &ClockSet| set.realtime.saturating_sub(set.boottime);
        let drift = anchor(last).saturating_sub(anchor(first));
        writeln!(
            out,
            "clocks     {} sets, tightest bracket {tightest} ns, REALTIME moved {drift:+} ns against BOOTTIME",
            shard.clocks.len()
        )?;
    }
    if !shard.probes.is_empty() {
        let answered: u64 = shard.probes.iter().map(|burst| u64::from(burst.answered)).sum();
        let sent: u64 = shard.probes.iter().map(|burst| u64::from(burst.sent)).sum();
        let peers: BTreeSet<&ClockDomain> = shard.probes.iter().map(|burst| &burst.to).collect();
        let trips = shard.probes.iter().flat_map(|burst| &burst.best).filter_map(Probe::round_trip);
        let shortest = trips.min().unwrap_or(0);
        writeln!(
            out,
            "probes     {} bursts to {} other nodes, {answered} of {sent} answered, shortest round trip {shortest} ns",
            shard.probes.len(),
            peers.len()
        )?;
    }
    tables(shard, out)?;
    let mut readable = true;
    for block in shard.blocks() {
        let state = match block.header.kind {
            BlockKind::Rows(_) => shard.rows(block).err().map(|error| error.cause.to_string()),
            _ => None,
        };
        readable &= state.is_none();
        if every_block || state.is_some() {
            block_line(block, state.as_deref(), out)?;
        }
    }
    for damage in shard.damage() {
        writeln!(out, "damage     {} bytes at offset {}", damage.bytes, damage.offset)?;
    }
    for loss in &shard.profiler_losses {
        let rank = loss.rank.map_or(String::new(), |rank| format!(" for rank {rank}"));
        writeln!(out, "profiler   no rows, or not all, of {}{rank}: {:?}", loss.profiler, loss.reason)?;
    }
    match &shard.ledger {
        None => writeln!(out, "ledger     missing: the end of the shard was never written")?,
        Some(ledger) if ledger.losses.is_empty() && readable => writeln!(out, "ledger     nothing was lost")?,
        Some(ledger) => {
            for loss in &ledger.losses {
                let table = loss.table.map_or("unknown".to_owned(), |t| t.to_string());
                let rows = loss.rows.map_or("unknown".to_owned(), |r| r.to_string());
                writeln!(
                    out,
                    "lost       {rows} rows of {table}, process {}: {}",
                    loss.source,
                    loss.cause.name()
                )?;
            }
        }
    }
    Ok(())
}

/// Prints rows, blocks and bytes of each table.
fn tables(shard: &Shard, out: &mut impl Write) -> io::Result<()> {
    let mut tables: BTreeMap<TableId, (u64, u64, u64)> = BTreeMap::new();
    for block in shard.blocks() {
        if let BlockKind::Rows(table) = block.header.kind {
            let sum = tables.entry(table).or_default();
            sum.0 += u64::from(block.header.rows);
            sum.1 += 1;
            sum.2 += block.header.total_bytes();
        }
    }
    for (table, (rows, blocks, bytes)) in tables {
        let name = shard.schema().get(table).map_or_else(|| table.to_string(), |t| t.name.clone());
        let each = bytes as f64 / rows.max(1) as f64;
        writeln!(out, "table      {name}: {rows} rows in {blocks} blocks, {bytes} bytes ({each:.1} a row)")?;
    }
    Ok(())
}

fn block_line(block: &BlockRef, state: Option<&str>, out: &mut impl Write) -> io::Result<()> {
    let h = &block.header;
    let kind = match h.kind {
        BlockKind::Rows(table) => table.to_string(),
        kind => format!("{kind:?}").to_lowercase(),
    };
    let state = state.map_or(String::new(), |s| format!("  UNREADABLE: {s}"));
    writeln!(
        out,
        "block      offset {:>10}  {kind:<24} process {:<4} keys {}..{}  {} -> {} bytes{state}",
        block.offset,
        h.source,
        h.first_key,
        h.next_key(),
        h.raw_bytes,
        h.stored_bytes,
    )
}
