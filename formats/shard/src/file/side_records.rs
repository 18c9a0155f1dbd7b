//! Side records of a shard: all that is not rows.

use super::block::BlockKind;
use super::block_ref::Damage;
use super::writer::{ShardWriter, WriteError};
use crate::model::{FIRST_CARRIED_TABLE, Schema, Table, current_table_name, is_wider};
use crate::record::{
    COMMAND_SOURCE, ClockSet, Ledger, Loss, ProbeBurst, Process, ProfilerLoss, RunIdentity, Selection, wire,
};
use std::collections::BTreeMap;
use std::io::Write;

/// Maximum number of clock sets that are read from one shard: one every 5 s for a week.
const MAX_CLOCK_SETS: usize = 1 << 17;
/// Maximum number of probe bursts that are read from one shard: the same number.
const MAX_PROBE_BURSTS: usize = 1 << 17;
/// Maximum number of profiler losses that are read from one shard. Each profiler of a rank records a few of them.
const MAX_PROFILER_LOSSES: usize = 256;
/// Maximum bytes of a record of a run, a process, a command, a selection, a burst or a profiler loss. The command
/// and the selected environment of a process are the largest part.
const MAX_RECORD_BYTES: usize = 256 << 10;
/// Maximum bytes of all process records of one shard.
const MAX_PROCESS_BYTES: usize = 128 << 20;

impl<W: Write> ShardWriter<W> {
    /// Describes a table that is not built in, or that has more columns than the built-in one. Must be called
    /// before the first row of the table.
    pub fn table(&mut self, table: &Table) -> Result<(), WriteError> {
        let widens = self.schema.get(table.id).is_some_and(|known| is_wider(table, known));
        if table.id < FIRST_CARRIED_TABLE && !widens {
            return Err(WriteError::Reserved(table.id));
        }
        self.schema.define(table.clone());
        self.record(BlockKind::Table, 0, &wire::encode(table)).map(drop)
    }

    /// Writes a description of a process; called again after the process has ended. The last description counts.
    /// Facts of the file's owner replace those of the file.
    pub fn process(&mut self, process: &Process) -> Result<(), WriteError> {
        let raw = match &self.owner {
            Some(owner) => wire::encode(&owner.describe(process.clone())),
            None => wire::encode(process),
        };
        let before = self.processes.insert(process.source, raw.clone());
        self.reserve.exchange_process(before, &raw);
        self.record(BlockKind::Process, process.source, &raw).map(drop)
    }

    /// Writes a description of the command that the collector started, traced or not. Called again after the
    /// command has ended; the last description counts. A reader accepts only [`crate::record::COMMAND_SOURCE`] as
    /// its number.
    pub fn command(&mut self, command: &Process) -> Result<(), WriteError> {
        let raw = wire::encode(command);
        let before = self.command.replace(raw.clone());
        self.reserve.exchange_process(before, &raw);
        self.record(BlockKind::Command, 0, &raw).map(drop)
    }

    /// Stores a clock set.
    pub fn clock(&mut self, set: &ClockSet) -> Result<(), WriteError> {
        self.clock_record(BlockKind::Clock, wire::encode(set))
    }

    /// Stores a probe burst. A reader accepts it only if [`ProbeBurst::is_sound`].
    pub fn probes(&mut self, burst: &ProbeBurst) -> Result<(), WriteError> {
        let kind = if burst.kernel_times { BlockKind::KernelProbes } else { BlockKind::Probes };
        self.clock_record(kind, wire::encode(burst))
    }

    fn clock_record(&mut self, kind: BlockKind, raw: Vec<u8>) -> Result<(), WriteError> {
        let offset = self.position;
        let written = self.record(kind, 0, &raw)?;
        self.reserve.keep(kind, if written { offset } else { u64::MAX }, raw);
        Ok(())
    }

    /// Stores the ranks that the user chose to record. A reader accepts them only if [`Selection::is_sound`].
    pub fn selection(&mut self, selection: &Selection) -> Result<(), WriteError> {
        self.record(BlockKind::Selection, 0, &wire::encode(selection)).map(drop)
    }

    /// Stores that rows of a profiler are missing. A reader accepts the record only if [`ProfilerLoss::is_sound`].
    pub fn profiler_loss(&mut self, loss: &ProfilerLoss) -> Result<(), WriteError> {
        self.record(BlockKind::ProfilerLoss, 0, &wire::encode(loss)).map(drop)
    }

    /// Adds an entry to the loss ledger, which is written at the end.
    pub fn loss(&mut self, loss: Loss) {
        let sum = self.losses.entry((loss.source, loss.table, loss.cause)).or_insert(Some(0));
        *sum = sum.zip(loss.rows).map(|(a, b)| a.saturating_add(b));
    }
}

/// Side records collected while a shard is opened.
#[derive(Default)]
pub(super) struct SideRecords {
    pub(super) identity: Option<RunIdentity>,
    pub(super) processes: BTreeMap<u32, Process>,
    process_bytes: usize,
    pub(super) command: Option<Box<Process>>,
    pub(super) clocks: Vec<ClockSet>,
    pub(super) probes: Vec<ProbeBurst>,
    pub(super) ledger: Option<Ledger>,
    pub(super) selection: Option<Selection>,
    pub(super) profiler_losses: Vec<ProfilerLoss>,
    pub(super) schema: Option<Schema>,
    pub(super) damaged: Vec<Damage>,
}

impl SideRecords {
    /// Returns whether the limit for records of this kind is reached.
    pub(super) fn is_full_of(&self, kind: BlockKind) -> bool {
        match kind {
            BlockKind::Clock => self.clocks.len() >= MAX_CLOCK_SETS,
            BlockKind::Probes | BlockKind::KernelProbes => self.probes.len() >= MAX_PROBE_BURSTS,
            BlockKind::ProfilerLoss => self.profiler_losses.len() >= MAX_PROFILER_LOSSES,
            _ => false,
        }
    }

    /// Decodes a record and stores it. Returns `None` if it cannot be decoded or exceeds its limits.
    pub(super) fn take(&mut self, kind: BlockKind, raw: &[u8]) -> Option<()> {
        match kind {
            BlockKind::Identity
            | BlockKind::Process
            | BlockKind::Command
            | BlockKind::Selection
            | BlockKind::Probes
            | BlockKind::KernelProbes
            | BlockKind::ProfilerLoss
                if raw.len() > MAX_RECORD_BYTES =>
            {
                return None;
            }
            BlockKind::Identity => self.identity = Some(wire::decode(raw).ok()?),
            BlockKind::Process => {
                let process: Process = wire::decode(raw).ok()?;
                self.process_bytes += raw.len();
                if process.source == 0 || self.process_bytes > MAX_PROCESS_BYTES {
                    return None;
                }
                self.processes.insert(process.source, process);
            }
            BlockKind::Command => {
                let is_sound = |command: &Process| command.source == COMMAND_SOURCE;
                self.command = Some(Box::new(wire::decode(raw).ok().filter(is_sound)?));
            }
            BlockKind::Clock => self.clocks.push(wire::decode(raw).ok()?),
            BlockKind::Probes | BlockKind::KernelProbes => {
                let mut burst: ProbeBurst = wire::decode(raw).ok().filter(ProbeBurst::is_sound)?;
                burst.kernel_times = kind == BlockKind::KernelProbes;
                self.probes.push(burst);
            }
            BlockKind::Ledger => self.ledger = Some(wire::decode(raw).ok()?),
            BlockKind::Selection => {
                self.selection = Some(wire::decode(raw).ok().filter(Selection::is_sound)?);
            }
            BlockKind::ProfilerLoss => {
                self.profiler_losses.push(wire::decode(raw).ok().filter(ProfilerLoss::is_sound)?);
            }
            BlockKind::Table => {
                let mut table: Table = wire::decode(raw).ok()?;
                table.name = current_table_name(&table.name).into_owned();
                let schema = self.schema.get_or_insert_with(|| Schema::builtin().clone());
                let widens = schema.get(table.id).is_some_and(|known| is_wider(&table, known));
                if (table.id < FIRST_CARRIED_TABLE && !widens) || schema.tables().len() > 1024 {
                    return None;
                }
                schema.define(table);
            }
            BlockKind::Index | BlockKind::Unknown(_) | BlockKind::Rows(_) => {}
        }
        Some(())
    }
}
