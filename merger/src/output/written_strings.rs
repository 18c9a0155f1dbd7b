//! The strings that a merge rank writes, each once.

use crate::input::BuiltinString;
use crate::input::survey::InputSurvey;
use crate::strings::StringIds;
use rpd_console::Failure;

/// Callback for a string; gets its id in the job, and its text.
pub(crate) type TakeWrittenString<'a> = dyn FnMut(i64, &[u8]) -> Result<(), Failure> + 'a;

/// Passes on the strings that this rank writes, ascending by their ids: those that no previous input has, input by
/// input.
pub(crate) fn each_written_string(
    surveys: &[InputSurvey],
    strings: &StringIds,
    take: &mut TakeWrittenString<'_>,
) -> Result<(), Failure> {
    let mut next = strings.written().peekable();
    let mut before = 0u32;
    for survey in surveys {
        let tables = survey.input.string_tables();
        let is_own = |table: u32| (before..before + tables).contains(&table);
        while let Some((_, seen)) = next.peek().filter(|(_, seen)| is_own(seen.table)) {
            let table = seen.table;
            survey.input.each_string((table - before) as usize, &mut |index, text| match next
                .next_if(|(_, seen)| seen.table == table && seen.index == index)
            {
                Some((id, _)) => take(id, text),
                None => Ok(()),
            })?;
            // Builtin strings follow the strings of their table.
            while let Some((id, seen)) = next.next_if(|(_, seen)| seen.table == table) {
                let builtin = BuiltinString::at(seen.index).unwrap_or(BuiltinString::Lost);
                take(id, builtin.text().as_bytes())?;
            }
        }
        survey.input.release();
        before += tables;
    }
    Ok(())
}
