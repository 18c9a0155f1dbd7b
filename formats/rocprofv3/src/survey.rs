//! The first walk over a file: its processes, and where its arrays are.

use crate::TOOL;
use crate::record::ProcessMetadata;
use crate::scan::{JsonScanner, ScanError, ScanFault};
use crate::source::JsonSource;
use rpd_translator::{FilePosition, IgnoredNames, TranslateError};
use std::collections::BTreeMap;
use std::path::Path;

/// The member with the records.
pub(crate) const RECORDS: &str = "buffer_records";
/// Longest description of a process.
const MAX_METADATA_BYTES: usize = 4 << 20;
/// Maximum number of processes of one file.
const MAX_PROCESSES: usize = 1 << 16;
/// Maximum number of lines about values of the wrong type.
const MAX_WARNINGS: usize = 100;
/// Maximum number of kinds of records of one process.
const MAX_KINDS: usize = 256;

/// An array.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArraySection {
    /// Place of its bracket in the file.
    pub(crate) offset: u64,
    /// Its whole elements.
    pub(crate) elements: u64,
}

/// Where the arrays of one process are.
#[derive(Debug, Default)]
pub(crate) struct ProcessSections {
    pub(crate) metadata: Option<ProcessMetadata>,
    /// The tables, by their path.
    pub(crate) tables: BTreeMap<&'static str, ArraySection>,
    /// `buffer_records`, by kind, in the order of the file.
    pub(crate) records: Vec<(String, ArraySection)>,
    /// Whole elements of arrays that came a second time.
    pub(crate) repeated: Vec<(String, u64)>,
    /// Whether there is a member `buffer_records`.
    pub(crate) has_records: bool,
    /// What should be an array or an object, and is something else: its content is unknown.
    pub(crate) malformed: Vec<String>,
}

/// Why a walk did not reach the end of the file.
#[derive(Debug)]
pub(crate) struct FileDamage {
    /// Where, bytes from the beginning.
    pub(crate) offset: u64,
    pub(crate) reason: String,
    /// In which array, by its path.
    pub(crate) inside: String,
}

#[derive(Debug, Default)]
pub(crate) struct FileSurvey {
    pub(crate) processes: Vec<ProcessSections>,
    pub(crate) damage: Option<FileDamage>,
    pub(crate) ignored: IgnoredNames,
    pub(crate) warnings: Vec<String>,
}

/// Walks over a file. Returns its scanner, too, which finds the arrays again.
pub(crate) fn survey(path: &Path) -> Result<(FileSurvey, JsonScanner<JsonSource>), TranslateError> {
    let io = |source| TranslateError::io(path, source);
    let mut scanner = JsonScanner::new(JsonSource::open(path).map_err(io)?);
    let mut walk = SurveyWalk { survey: FileSurvey::default(), inside: String::new() };
    let walked = walk.file(&mut scanner);
    let SurveyWalk { mut survey, inside } = walk;
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
    survey: FileSurvey,
    /// Path of the array that the walk is in.
    inside: String,
}

impl SurveyWalk {
    /// Returns the length of the file.
    fn file(&mut self, scanner: &mut JsonScanner<JsonSource>) -> Result<u64, ScanError> {
        let mut more = scanner.open_object()?;
        while more {
            let name = scanner.name()?;
            if name == TOOL && scanner.token()? == b'[' {
                self.processes(scanner)?;
            } else {
                self.ignore(scanner, &name)?;
            }
            more = scanner.another_member()?;
        }
        if scanner.next_token()?.is_some() {
            let at = scanner.offset();
            self.survey.warnings.push(format!("there is more data after the end, from byte {at} on"));
        }
        Ok(scanner.offset())
    }

    fn processes(&mut self, scanner: &mut JsonScanner<JsonSource>) -> Result<(), ScanError> {
        let mut more = scanner.open_array()?;
        while more {
            if scanner.token()? == b'{' && self.survey.processes.len() < MAX_PROCESSES {
                self.survey.processes.push(ProcessSections::default());
                self.process(scanner)?;
            } else {
                self.ignore(scanner, TOOL)?;
            }
            more = scanner.another_element()?;
        }
        Ok(())
    }

    fn process(&mut self, scanner: &mut JsonScanner<JsonSource>) -> Result<(), ScanError> {
        let mut more = scanner.open_object()?;
        while more {
            match scanner.name()?.as_str() {
                "metadata" => self.metadata(scanner)?,
                "agents" => self.table(scanner, "agents")?,
                "counters" => self.table(scanner, "counters")?,
                "code_objects" => self.table(scanner, "code_objects")?,
                "kernel_symbols" => self.table(scanner, "kernel_symbols")?,
                "strings" => self.object(scanner, "strings", SurveyWalk::strings)?,
                "callback_records" => self.object(scanner, "callback_records", SurveyWalk::callbacks)?,
                RECORDS => {
                    if let Some(process) = self.survey.processes.last_mut() {
                        process.has_records = true;
                    }
                    self.object(scanner, RECORDS, SurveyWalk::buffers)?;
                }
                other => self.ignore(scanner, other)?,
            }
            more = scanner.another_member()?;
        }
        Ok(())
    }

    fn strings(&mut self, scanner: &mut JsonScanner<JsonSource>, member: &str) -> Result<(), ScanError> {
        match member {
            "buffer_records" => self.table(scanner, "strings.buffer_records"),
            "marker_api" => self.table(scanner, "strings.marker_api"),
            "correlation_id" => self.object(scanner, "strings.correlation_id", SurveyWalk::correlation),
            other => self.ignore(scanner, &format!("strings.{other}")),
        }
    }

    fn correlation(&mut self, scanner: &mut JsonScanner<JsonSource>, member: &str) -> Result<(), ScanError> {
        match member {
            "external" => self.table(scanner, "strings.correlation_id.external"),
            other => self.ignore(scanner, &format!("strings.correlation_id.{other}")),
        }
    }

    fn callbacks(&mut self, scanner: &mut JsonScanner<JsonSource>, member: &str) -> Result<(), ScanError> {
        match member {
            "counter_collection" => self.table(scanner, "callback_records.counter_collection"),
            other => self.ignore(scanner, &format!("callback_records.{other}")),
        }
    }

    fn buffers(&mut self, scanner: &mut JsonScanner<JsonSource>, kind: &str) -> Result<(), ScanError> {
        let name = format!("buffer_records.{kind}");
        let Some(process) = self.survey.processes.last_mut() else { return scanner.skip() };
        if !is_taken(kind) || process.records.len() >= MAX_KINDS {
            return self.ignore(scanner, &name);
        }
        if scanner.token()? != b'[' {
            return self.malformed(scanner, &name, "array");
        }
        if process.records.iter().any(|(before, _)| before == kind) {
            return self.repeated(scanner, &name);
        }
        process.records.push((kind.to_owned(), ArraySection { offset: scanner.offset(), elements: 0 }));
        self.elements(scanner, name, |process| process.records.last_mut().map(|(_, section)| section))
    }

    fn metadata(&mut self, scanner: &mut JsonScanner<JsonSource>) -> Result<(), ScanError> {
        let at = scanner.offset();
        let mut bytes = Vec::new();
        let fits = scanner.value(&mut bytes, MAX_METADATA_BYTES)?;
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

    /// Remembers a table.
    fn table(&mut self, scanner: &mut JsonScanner<JsonSource>, name: &'static str) -> Result<(), ScanError> {
        let array = scanner.token()? == b'[';
        match self.survey.processes.last_mut() {
            Some(process) if array && process.tables.contains_key(name) => self.repeated(scanner, name),
            Some(process) if array => {
                process.tables.insert(name, ArraySection { offset: scanner.offset(), elements: 0 });
                self.elements(scanner, name.to_owned(), |process| process.tables.get_mut(name))
            }
            _ => self.malformed(scanner, name, "array"),
        }
    }

    /// Counts the elements of an array that was remembered.
    fn elements(
        &mut self,
        scanner: &mut JsonScanner<JsonSource>,
        name: String,
        section: impl Fn(&mut ProcessSections) -> Option<&mut ArraySection>,
    ) -> Result<(), ScanError> {
        self.inside = name;
        let mut more = scanner.open_array()?;
        while more {
            scanner.skip()?;
            more = scanner.another_element()?;
            if let Some(section) = self.survey.processes.last_mut().and_then(&section) {
                section.elements += 1;
            }
        }
        self.inside.clear();
        Ok(())
    }

    /// An array that occurred before: the first one counts.
    fn repeated(&mut self, scanner: &mut JsonScanner<JsonSource>, name: &str) -> Result<(), ScanError> {
        let at = scanner.offset();
        let elements = self.count(scanner)?;
        self.survey.ignored.add(&format!("{name} (again)"), elements);
        self.survey.warnings.push(format!("{name} at byte {at} was there before; {elements} left out"));
        if let Some(process) = self.survey.processes.last_mut()
            && process.repeated.len() < MAX_KINDS
        {
            process.repeated.push((name.to_owned(), elements));
        }
        Ok(())
    }

    /// Walks over an object, each member of which `member` steps over.
    fn object(
        &mut self,
        scanner: &mut JsonScanner<JsonSource>,
        name: &str,
        member: fn(&mut SurveyWalk, &mut JsonScanner<JsonSource>, &str) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        if scanner.token()? != b'{' {
            return self.malformed(scanner, name, "object");
        }
        let mut more = scanner.open_object()?;
        while more {
            let name = scanner.name()?;
            member(self, scanner, &name)?;
            more = scanner.another_member()?;
        }
        Ok(())
    }

    /// Steps over a value of another type than it should have. `null` represents nothing.
    fn malformed(
        &mut self,
        scanner: &mut JsonScanner<JsonSource>,
        name: &str,
        wanted: &str,
    ) -> Result<(), ScanError> {
        if scanner.token()? == b'n' {
            return scanner.skip();
        }
        let at = scanner.offset();
        scanner.skip()?;
        let Some(process) = self.survey.processes.last_mut() else { return Ok(()) };
        if process.malformed.len() < MAX_KINDS {
            process.malformed.push(name.to_owned());
        }
        if self.survey.warnings.len() < MAX_WARNINGS {
            self.survey.warnings.push(format!("{name} at byte {at} is not an {wanted}: its content is lost"));
        }
        Ok(())
    }

    /// Steps over a value that is not taken.
    fn ignore(&mut self, scanner: &mut JsonScanner<JsonSource>, name: &str) -> Result<(), ScanError> {
        let elements = self.count(scanner)?;
        self.survey.ignored.add(name, elements);
        Ok(())
    }

    /// Steps over a value: an array counts by its elements, `null` and an empty object not at all.
    fn count(&mut self, scanner: &mut JsonScanner<JsonSource>) -> Result<u64, ScanError> {
        match scanner.token()? {
            b'[' => {
                let mut elements = 0;
                let mut more = scanner.open_array()?;
                while more {
                    scanner.skip()?;
                    elements += 1;
                    more = scanner.another_element()?;
                }
                Ok(elements)
            }
            b'{' => {
                let full = scanner.open_object()?;
                let mut more = full;
                while more {
                    scanner.name()?;
                    scanner.skip()?;
                    more = scanner.another_member()?;
                }
                Ok(u64::from(full))
            }
            first => scanner.skip().map(|()| u64::from(first != b'n')),
        }
    }
}

/// Whether records of this kind are translated.
fn is_taken(kind: &str) -> bool {
    let memory = ["kernel_dispatch", "memory_copy", "memory_allocation", "scratch_memory"];
    memory.contains(&kind) || kind.ends_with("_api")
}
