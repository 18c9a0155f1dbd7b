//! Encodes the merged rows of a unit as leaf pages.

use super::index::LeafSlot;
use super::piece_reader::PieceReader;
use super::piece_rows::PieceRows;
use super::sets::TableSets;
use super::turns::EmitPart;
use super::units::PieceUnit;
use super::written_rows::WrittenRows;
use crate::input::{JobSchema, text_of};
use rpd_console::{Failure, Progress};
use rpd_rocpd::schema::default_value;
use rpd_shard::model::{Cells, Column, Kind, Merged, OwnedValue, Rows, Table, TableId, Value};
use rpd_sqlite::write::{Affinity, Field, LeafRun, LeafWriter, PageMemory};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Page bytes of a unit at which its pages are emitted before the unit is complete.
const MAX_OPEN_BYTES: usize = 6 << 20;
/// Bytes of text that are encoded at once.
const MAX_TEXT_BYTES: usize = 2 << 20;

/// How rows of one table are stored: columns with their names, SQLite affinities and values for missing cells.
type TableForm = Vec<(String, Affinity, Absent)>;

/// Value for cells that an input lacks.
#[derive(Debug)]
struct Absent {
    value: OwnedValue,
    /// Whether it also replaces NULL.
    for_null: bool,
}

fn form_of(table: &Table) -> TableForm {
    let column = |column: &Column| {
        let value = match default_value(column) {
            Value::Null if column.sql.not_null => match column.kind {
                Kind::Text | Kind::Json(_) | Kind::Any => OwnedValue::Text(Box::default()),
                _ => OwnedValue::Int(0),
            },
            value => value.to_owned(),
        };
        let absent = Absent { value, for_null: column.sql.not_null };
        (column.name.clone(), Affinity::of(&column.sql.type_name), absent)
    };
    table.columns.iter().map(column).collect()
}

/// How the tables of the output are stored.
#[derive(Debug)]
pub(crate) struct TableForms {
    forms: BTreeMap<TableId, TableForm>,
    sets: TableSets,
    /// Guid of each table set.
    guids: Vec<String>,
}

impl TableForms {
    /// Derives the forms from this schema. Rows of each table set carry its guid.
    pub(crate) fn new(schema: &JobSchema, sets: TableSets) -> TableForms {
        let tables = schema.schema.output_tables();
        let guids = sets.all.iter().map(|set| set.guid().to_owned()).collect();
        TableForms { forms: tables.map(|t| (t.id, form_of(t))).collect(), sets, guids }
    }
}

/// An encoded unit.
#[derive(Debug)]
pub(crate) struct EncodedUnit {
    /// Leaf pages of each table of which the unit has rows.
    pub runs: Vec<(LeafSlot, LeafRun)>,
    /// Number of pages of all runs.
    pub pages: u64,
    /// Rows of the unit.
    pub written: WrittenRows,
    /// Bytes of the inputs that end with this unit.
    pub finished: u64,
}

/// Pages of a unit that were not emitted yet.
#[derive(Debug, Default)]
struct OpenUnit {
    writers: BTreeMap<LeafSlot, LeafWriter>,
}

impl OpenUnit {
    fn bytes(&self) -> usize {
        self.writers.values().map(LeafWriter::bytes).sum()
    }

    fn finish(self) -> EncodedUnit {
        let runs: Vec<_> = self.writers.into_iter().map(|(slot, writer)| (slot, writer.finish())).collect();
        let pages = runs.iter().map(|(_, run)| run.pages()).sum();
        EncodedUnit { runs, pages, written: WrittenRows::default(), finished: 0 }
    }
}

/// Returns the rows, divided into small portions if their texts are long. A block of a shard contains each text once,
/// but the pages contain it in each row.
fn portions(rows: &Rows<Merged>) -> Vec<Cow<'_, Rows<Merged>>> {
    let bytes =
        |row: usize| -> usize { rows.columns.iter().map(|cells| text_of(cells.get(row)).len()).sum() };
    let is_long = |cells: &Cells| match cells {
        Cells::Text(text) => text.bytes.len() > MAX_TEXT_BYTES,
        Cells::Any(values) => values
            .iter()
            .any(|v| matches!(v, OwnedValue::Text(t) | OwnedValue::Blob(t) if t.len() > MAX_TEXT_BYTES)),
        _ => false,
    };
    if !rows.columns.iter().any(is_long) {
        return vec![Cow::Borrowed(rows)];
    }
    let mut portions = Vec::new();
    let (mut from, mut sum) = (0, 0);
    for row in 0..rows.len {
        sum += bytes(row);
        if sum > MAX_TEXT_BYTES {
            portions.push(from..row + 1);
            (from, sum) = (row + 1, 0);
        }
    }
    portions.push(from..rows.len);
    portions.into_iter().filter(|p| !p.is_empty()).map(|p| Cow::Owned(rows.portion(p))).collect()
}

/// Encodes this rank's units into pages. Threads share it.
#[derive(Debug)]
pub(crate) struct UnitEncoder<'a> {
    units: Vec<PieceUnit>,
    rows: PieceReader<'a>,
    forms: TableForms,
    progress: &'a Progress,
    /// Memory pool to which written pages return.
    pub memory: Arc<PageMemory>,
}

impl<'a> UnitEncoder<'a> {
    /// Creates an encoder for these units. Keeps at most `spare_bytes` of page memory for reuse.
    pub(crate) fn new(
        units: Vec<PieceUnit>,
        rows: PieceReader<'a>,
        forms: TableForms,
        progress: &'a Progress,
        spare_bytes: usize,
    ) -> UnitEncoder<'a> {
        UnitEncoder { units, rows, forms, progress, memory: Arc::new(PageMemory::new(spare_bytes)) }
    }

    /// Returns the number of units.
    pub(crate) fn units(&self) -> usize {
        self.units.len()
    }

    /// Announces the units that will be encoded, each exactly once. Must be called before the first `encode`.
    pub(crate) fn expect(&self, units: impl Iterator<Item = usize>) {
        self.rows.expect(units.flat_map(|unit| &self.units[unit]));
    }

    /// Encodes a unit; the result is always the same. If the pages exceed [`MAX_OPEN_BYTES`], emits parts of them through
    /// `emit` first.
    pub(crate) fn encode(
        &self,
        unit: usize,
        emit: &mut EmitPart<'_, EncodedUnit>,
    ) -> Result<EncodedUnit, Failure> {
        let mut open = OpenUnit::default();
        let mut written = WrittenRows::default();
        let mut finished = 0;
        for part in &self.units[unit] {
            let set = self.forms.sets.of(part.input, part.source) as u32;
            finished += self.rows.rows(*part, PieceRows::Others, &mut written, &mut |rows| {
                for portion in portions(&rows) {
                    self.append(&mut open, set, &portion)?;
                    if open.bytes() > MAX_OPEN_BYTES {
                        emit(std::mem::take(&mut open).finish())?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(EncodedUnit { written, finished, ..open.finish() })
    }

    fn append(&self, open: &mut OpenUnit, set: u32, rows: &Rows<Merged>) -> Result<(), Failure> {
        let slot = LeafSlot { set, table: rows.id() };
        let writer = open.writers.entry(slot).or_insert_with(|| LeafWriter::new(self.memory.clone()));
        let unknown = || Failure::internal(format!("{} has no place in the output", rows.id()));
        let form = self.forms.forms.get(&rows.id()).ok_or_else(unknown)?;
        let guid = self.forms.guids.get(set as usize).ok_or_else(unknown)?;
        let mut fields = Vec::with_capacity(form.len() + 2);
        fields.push(Field::Key);
        fields.push(Field::Same { value: Value::Text(guid.as_bytes()), affinity: Affinity::Text });
        for (name, affinity, absent) in form {
            let own = rows.table.position(name).map(|i| &rows.columns[i]);
            fields.push(match own {
                None | Some(Cells::Absent) => {
                    Field::Same { value: absent.value.as_value(), affinity: *affinity }
                }
                Some(cells) => {
                    let null = if absent.for_null { absent.value.as_value() } else { Value::Null };
                    Field::Cells { cells, null, affinity: *affinity }
                }
            });
        }
        writer.append(&rows.keys, &fields, rows.len).map_err(|error| {
            Failure::output(format!("{error} (in {}); leave the input with that row out", rows.table.name))
        })
    }

    /// Reports progress: this many bytes of inputs are completed.
    pub(crate) fn finished(&self, bytes: u64) {
        self.progress.add(bytes);
    }
}
