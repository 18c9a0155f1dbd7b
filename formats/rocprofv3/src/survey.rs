//! The first walk over a file: finds its processes and the positions of its arrays.

use crate::TOOL;
use crate::record::ProcessMetadata;
use crate::scan::{JsonScanner, ScanError, ScanFault};
use crate::source::JsonSource;
use rpd_translator::{FilePosition, IgnoredNames, TranslateError};
use std::collections::BTreeMap;
use std::path::Path;

/// Name of the member with the records.
pub(crate) const RECORDS: &str = "buffer_records";
/// Maximum length in bytes of a process description.
const MAX_METADATA_BYTES: usize = 4 << 20;
/// Maximum number of processes of one file.
const MAX_PROCESSES: usize = 1 << 16;
/// Maximum number of warnings about values of the wrong type.
const MAX_WARNINGS: usize = 100;
/// Maximum number of kinds of records of one process.
const MAX_KINDS: usize = 256;

/// Position of an array.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArraySection {
    /// Offset of its opening bracket in the file.
    pub(crate) offset: u64,
    /// Number of its complete elements.
    pub(crate) elements: u64,
}

/// Positions of the arrays of one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessSections {
    pub(crate) metadata: Option<ProcessMetadata>,
    /// The tables by path.
    pub(crate) tables: BTreeMap<&'static str, ArraySection>,
    /// The arrays of `buffer_records` by kind, in file order.
    pub(crate) records: Vec<(String, ArraySection)>,
    /// Numbers of complete elements of repeated arrays.
    pub(crate) repeated: Vec<(String, u64)>,
    /// Whether the member `buffer_records` exists.
    pub(crate) has_records: bool,
    /// Members that should be an array or an object, but have another type: their content is unknown.
    pub(crate) malformed: Vec<String>,
}

/// The reason why a walk did not reach the end of the file.
#[derive(Debug)]
pub(crate) struct FileDamage {
    /// Offset in bytes from the beginning.
    pub(crate) offset: u64,
    pub(crate) reason: String,
    /// Path of the array that contains the offset.
    pub(crate) inside: String,
}

#[derive(Debug, Default)]
pub(crate) struct FileSurvey {
    pub(crate) processes: Vec<ProcessSections>,
    pub(crate) damage: Option<FileDamage>,
    pub(crate) ignored: IgnoredNames,
    pub(crate) warnings: Vec<String>,
}

/// Walks over a file. Also returns its scanner, which reads the arrays later.
pub(crate) fn survey(path: &Path) -> Result<(FileSurvey, JsonScanner<JsonSource>), TranslateError> {
    let io = |source| TranslateError::io(path, source);
    let scanner = JsonScanner::new(JsonSource::open(path).map_err(io)?);
    let mut walk = SurveyWalk { scanner, survey: FileSurvey::default(), inside: String::new() };
    let walked = walk.file();
    let SurveyWalk { scanner, mut survey, inside } = walk;
    let (offset, reason) = match walked {
        Err(ScanError { fault: ScanFault::Io(source), .. }) => return Err(io(source)),
        Err(error) => {
            let ScanError { offset, fault } = error;
            survey.damage = Some(FileDamage { offset, reason: fault.to_string(), inside });
            (offset, fault.to_string())
        }
        Ok(offset) => (offset, format!("it has no array \"{TOOL}\" with a process")),
    };
    let known = |process: &ProcessSections| {
        process.metadata.is_some() || process.records.iter().any(|(_, section)| section.elements > 0)
    };
    if !survey.processes.iter().any(known) {
        return Err(TranslateError::NoContent {
            path: path.to_owned(),
            missing: "no process of rocprofv3 is in it",
            reason,
            position: FilePosition::Byte(offset),
            advice: "leave the file out or record again",
        });
    }
    Ok((survey, scanner))
}

struct SurveyWalk {
    scanner: JsonScanner<JsonSource>,
    survey: FileSurvey,
    /// Path of the array that the walk is in.
    inside: String,
}

impl SurveyWalk {
    /// Walks over the file; returns its length in bytes.
    fn file(&mut self) -> Result<u64, ScanError> {
        let mut more = self.scanner.open_object()?;
        while more {
            let name = self.scanner.name()?;
            if name == TOOL && self.scanner.token()? == b'[' {
                self.processes()?;
            } else {
                self.ignore(&name)?;
            }
            more = self.scanner.another_member()?;
        }
        if self.scanner.next_token()?.is_some() {
            let at = self.scanner.offset();
            self.survey.warnings.push(format!("there is more data after the end, from byte {at} on"));
        }
        Ok(self.scanner.offset())
    }

    fn processes(&mut self) -> Result<(), ScanError> {
        let mut more = self.scanner.open_array()?;
        while more {
            if self.scanner.token()? == b'{' && self.survey.processes.len() < MAX_PROCESSES {
                self.survey.processes.push(ProcessSections::default());
                self.process()?;
            } else {
                self.ignore(TOOL)?;
            }
            more = self.scanner.another_element()?;
        }
        Ok(())
    }

    fn process(&mut self) -> Result<(), ScanError> {
        let mut more = self.scanner.open_object()?;
        while more {
            match self.scanner.name()?.as_str() {
                "metadata" => self.metadata()?,
                "agents" => self.table("agents")?,
                "counters" => self.table("counters")?,
                "code_objects" => self.table("code_objects")?,
                "kernel_symbols" => self.table("kernel_symbols")?,
                "strings" => self.object("strings", SurveyWalk::strings)?,
                "callback_records" => self.object("callback_records", SurveyWalk::callbacks)?,
                RECORDS => {
                    if let Some(process) = self.survey.processes.last_mut() {
                        process.has_records = true;
                    }
                    self.object(RECORDS, SurveyWalk::buffers)?;
                }
                other => self.ignore(other)?,
            }
            more = self.scanner.another_member()?;
        }
        Ok(())
    }

    fn strings(&mut self, member: &str) -> Result<(), ScanError> {
        match member {
            "buffer_records" => self.table("strings.buffer_records"),
            "marker_api" => self.table("strings.marker_api"),
            "correlation_id" => self.object("strings.correlation_id", SurveyWalk::correlation),
            other => self.ignore(&format!("strings.{other}")),
        }
    }

    fn correlation(&mut self, member: &str) -> Result<(), ScanError> {
        match member {
            "external" => self.table("strings.correlation_id.external"),
            other => self.ignore(&format!("strings.correlation_id.{other}")),
        }
    }

    fn callbacks(&mut self, member: &str) -> Result<(), ScanError> {
        match member {
            "counter_collection" => self.table("callback_records.counter_collection"),
            other => self.ignore(&format!("callback_records.{other}")),
        }
    }

    fn buffers(&mut self, kind: &str) -> Result<(), ScanError> {
        let name = format!("buffer_records.{kind}");
        let Some(process) = self.survey.processes.last_mut() else { return self.scanner.skip() };
        if !is_taken(kind) || process.records.len() >= MAX_KINDS {
            return self.ignore(&name);
        }
        if self.scanner.token()? != b'[' {
            return self.malformed(&name, "array");
        }
        if process.records.iter().any(|(before, _)| before == kind) {
            return self.repeated(&name);
        }
        process.records.push((kind.to_owned(), ArraySection { offset: self.scanner.offset(), elements: 0 }));
        self.elements(name, |process| process.records.last_mut().map(|(_, section)| section))
    }

    fn metadata(&mut self) -> Result<(), ScanError> {
        let at = self.scanner.offset();
        let mut bytes = Vec::new();
        let fits = self.scanner.value(&mut bytes, MAX_METADATA_BYTES)?;
        let Some(process) = self.survey.processes.last_mut() else { return Ok(()) };
        if process.metadata.is_some() {
            self.survey.ignored.add("metadata (again)", 1);
            return Ok(());
        }
        match serde_json::from_slice::<ProcessMetadata>(&bytes) {
            Ok(metadata) if fits => {
                self.survey.ignored.add("metadata.config", u64::from(metadata.config.is_some()));
                process.metadata = Some(metadata);
            }
            Ok(_) => self.survey.warnings.push(format!("the metadata at byte {at} is too long")),
            Err(error) => self.survey.warnings.push(format!("the metadata at byte {at} is broken: {error}")),
        }
        Ok(())
    }

    /// Records the position of a table.
    fn table(&mut self, name: &'static str) -> Result<(), ScanError> {
        let array = self.scanner.token()? == b'[';
        match self.survey.processes.last_mut() {
            Some(process) if array && process.tables.contains_key(name) => self.repeated(name),
            Some(process) if array => {
                process.tables.insert(name, ArraySection { offset: self.scanner.offset(), elements: 0 });
                self.elements(name.to_owned(), |process| process.tables.get_mut(name))
            }
            _ => self.malformed(name, "array"),
        }
    }

    /// Counts the elements of an array at a recorded position.
    fn elements(
        &mut self,
        name: String,
        section: impl Fn(&mut ProcessSections) -> Option<&mut ArraySection>,
    ) -> Result<(), ScanError> {
        self.inside = name;
        let mut more = self.scanner.open_array()?;
        while more {
            self.scanner.skip()?;
            more = self.scanner.another_element()?;
            if let Some(section) = self.survey.processes.last_mut().and_then(&section) {
                section.elements += 1;
            }
        }
        self.inside.clear();
        Ok(())
    }

    /// Counts an array that occurred before: only the first one is used.
    fn repeated(&mut self, name: &str) -> Result<(), ScanError> {
        let at = self.scanner.offset();
        let elements = self.count()?;
        self.survey.ignored.add(&format!("{name} (again)"), elements);
        self.survey.warnings.push(format!("{name} at byte {at} was there before; {elements} left out"));
        if let Some(process) = self.survey.processes.last_mut()
            && process.repeated.len() < MAX_KINDS
        {
            process.repeated.push((name.to_owned(), elements));
        }
        Ok(())
    }

    /// Walks over an object; `member` must consume each member.
    fn object(
        &mut self,
        name: &str,
        member: fn(&mut SurveyWalk, &str) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        if self.scanner.token()? != b'{' {
            return self.malformed(name, "object");
        }
        let mut more = self.scanner.open_object()?;
        while more {
            let name = self.scanner.name()?;
            member(self, &name)?;
            more = self.scanner.another_member()?;
        }
        Ok(())
    }

    /// Skips a value of the wrong type. `null` means that the value is missing.
    fn malformed(&mut self, name: &str, wanted: &str) -> Result<(), ScanError> {
        if self.scanner.token()? == b'n' {
            return self.scanner.skip();
        }
        let at = self.scanner.offset();
        self.scanner.skip()?;
        let Some(process) = self.survey.processes.last_mut() else { return Ok(()) };
        if process.malformed.len() < MAX_KINDS {
            process.malformed.push(name.to_owned());
        }
        if self.survey.warnings.len() < MAX_WARNINGS {
            self.survey.warnings.push(format!("{name} at byte {at} is not an {wanted}: its content is lost"));
        }
        Ok(())
    }

    /// Skips a value that is not read.
    fn ignore(&mut self, name: &str) -> Result<(), ScanError> {
        let elements = self.count()?;
        self.survey.ignored.add(name, elements);
        Ok(())
    }

    /// Skips a value and returns its size: an array counts its elements; `null` and an empty object count 0.
    fn count(&mut self) -> Result<u64, ScanError> {
        match self.scanner.token()? {
            b'[' => {
                let mut elements = 0;
                let mut more = self.scanner.open_array()?;
                while more {
                    self.scanner.skip()?;
                    elements += 1;
                    more = self.scanner.another_element()?;
                }
                Ok(elements)
            }
            b'{' => {
                let full = self.scanner.open_object()?;
                let mut more = full;
                while more {
                    self.scanner.name()?;
                    self.scanner.skip()?;
                    more = self.scanner.another_member()?;
                }
                Ok(u64::from(full))
            }
            first => self.scanner.skip().map(|()| u64::from(first != b'n')),
        }
    }
}

/// Returns whether records of this kind are translated.
fn is_taken(kind: &str) -> bool {
    let memory = ["kernel_dispatch", "memory_copy", "memory_allocation", "scratch_memory"];
    memory.contains(&kind) || kind.ends_with("_api")
}
