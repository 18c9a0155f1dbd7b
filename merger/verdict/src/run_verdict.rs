//! The verdict on a run as it is stored, and printed in one line.

use crate::analysed_run::{AnalysedRun, AnalysisOptions};
use crate::crowded_cpus::CrowdedCpus;
use crate::cut::cut_texts;
use crate::verdict::verdict_lines;
use crate::why_not::{NO_COMMUNICATORS, limit_reason};
use rpd_calls::{MissingCalls, RunCalls};
use rpd_graph::DiagnosisLimit;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};

/// Maximum length of a stored verdict, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The verdict on a run.
///
/// It is stored as a JSON object with the keys that rpd-report prints for a verdict. The text of the object is kept,
/// so that all copies of a verdict are equal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunVerdict {
    headline: String,
    object: String,
}

impl RunVerdict {
    /// Returns the verdict on an analysed run.
    pub fn of(found: &AnalysedRun<'_>) -> RunVerdict {
        let verdict = RunVerdict::of_object(verdict_lines(found).json);
        if verdict.object.len() > MAX_BYTES {
            return RunVerdict::not_analysed("the verdict would be longer than 1 MiB");
        }
        verdict
    }

    /// Returns the verdict on a run without calls to MPI, in which nothing was recorded of `missing_ranks`.
    pub fn without_calls(missing_ranks: &[u32]) -> RunVerdict {
        let missing = MissingCalls::MissingRanks(missing_ranks.to_vec());
        let unavailable = if missing_ranks.is_empty() { Vec::new() } else { vec![missing] };
        let calls = RunCalls { unavailable, ..RunCalls::default() };
        let analysed = AnalysisOptions::default().analyse(calls, |found| Ok(RunVerdict::of(found)));
        analysed.unwrap_or_else(|failure| RunVerdict::not_analysed(&failure.to_string()))
    }

    /// Returns that no rank is named, because processes call MPI in several threads.
    pub fn in_threads(processes: u32) -> RunVerdict {
        RunVerdict::not_analysed(&limit_reason(&DiagnosisLimit::Threads { processes }, &RunCalls::default()))
    }

    /// Returns that no rank is named, because no input has the communicators of calls.
    pub fn without_communicators() -> RunVerdict {
        RunVerdict::not_analysed(NO_COMMUNICATORS)
    }

    /// Returns that no rank is named, because the calls were not analysed.
    pub fn not_analysed(reason: &str) -> RunVerdict {
        let keys = [
            ("verdict", json!("cannot_tell")),
            ("headline", json!(format!("CANNOT TELL which rank the others wait for: {reason}"))),
            ("findings", json!([])),
            ("reasons", json!([reason])),
        ];
        RunVerdict::of_object(keys.map(|(key, value)| (key.to_owned(), value)).into_iter().collect())
    }

    fn of_object(mut object: Map<String, Json>) -> RunVerdict {
        object.values_mut().for_each(cut_texts);
        let headline = object.get("headline").and_then(Json::as_str).unwrap_or_default().to_owned();
        RunVerdict { headline, object: Json::Object(object).to_string() }
    }

    /// Reads a stored verdict. Returns `None` if the text is no verdict, or too long.
    pub fn parse(text: &str) -> Option<RunVerdict> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let object: Map<String, Json> = serde_json::from_str(text).ok()?;
        let headline = object.get("headline")?.as_str()?.to_owned();
        object.get("verdict")?.as_str()?;
        Some(RunVerdict { headline, object: text.to_owned() })
    }

    /// Returns the verdict in one line.
    pub fn headline(&self) -> &str {
        &self.headline
    }

    /// Returns label and text of each line about CPUs that more ranks share than there are CPUs.
    pub fn crowded_cpu_lines(&self) -> Vec<(&'static str, String)> {
        #[derive(Deserialize, Default)]
        struct StoredCpus {
            #[serde(default)]
            crowded_cpus: Vec<CrowdedCpus>,
        }
        let stored: StoredCpus = serde_json::from_str(&self.object).unwrap_or_default();
        CrowdedCpus::lines(&stored.crowded_cpus).collect()
    }

    /// Returns the JSON object.
    pub fn object(&self) -> &str {
        &self.object
    }
}

impl Serialize for RunVerdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object: &RawValue = serde_json::from_str(&self.object).map_err(serde::ser::Error::custom)?;
        object.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stored_verdict_is_read_as_it_was() {
        for verdict in [RunVerdict::without_calls(&[1, 2]), RunVerdict::not_analysed("a\n\"b\"")] {
            assert_eq!(RunVerdict::parse(verdict.object()).unwrap(), verdict);
            assert_eq!(serde_json::to_string(&verdict).unwrap(), verdict.object);
        }
    }

    #[test]
    fn crowded_cpus_have_lines() {
        let stored = |crowded: &str| {
            let text = format!(r#"{{"verdict":"slow","headline":"a","crowded_cpus":{crowded}}}"#);
            RunVerdict::parse(&text).unwrap().crowded_cpu_lines()
        };
        let one = r#"{"host":"n1","cpus":"0-1","count":2,"ranks":[0,1,2]}"#;
        let line = ("CPUs", "ranks 0-2 on n1 may run on the 2 CPUs 0-1 only".to_owned());
        assert_eq!(stored(&format!("[{one}]")), std::slice::from_ref(&line));
        assert_eq!(stored(&format!("[{one},{one},{one},{one}]")), vec![line; 3]);
        for damaged in ["[]", "null", "[{}]", "7"] {
            assert_eq!(stored(damaged), []);
        }
        assert_eq!(RunVerdict::not_analysed("a").crowded_cpu_lines(), []);
    }

    #[test]
    fn missing_ranks_and_calls_are_reasons() {
        let verdict = RunVerdict::without_calls(&[1, 2]);
        let reasons = [
            "nothing was recorded of ranks 1-2",
            "no calls to MPI or RCCL of several ranks were recorded; rpd-collect records these, but no other communication, such as that of gloo",
        ];
        let object: Json = serde_json::from_str(verdict.object()).unwrap();
        assert_eq!((&object["verdict"], &object["reasons"]), (&json!("cannot_tell"), &json!(reasons)));
        let headline = format!("CANNOT TELL which rank the others wait for: {}", reasons.join("; "));
        assert_eq!(verdict.headline(), headline);
    }

    #[test]
    fn other_texts_are_no_verdicts() {
        let long = format!("{{\"verdict\":\"slow\",\"headline\":\"{}\"}}", "x".repeat(MAX_BYTES));
        let deep = format!("{{\"verdict\":\"slow\",\"headline\":\"a\",\"b\":{}}}", "[".repeat(1 << 16));
        for text in
            ["", "[]", "{}", "{\"headline\":\"a\"}", "{\"headline\":1,\"verdict\":\"slow\"}", &long, &deep]
        {
            assert_eq!(RunVerdict::parse(text), None, "{}", text.chars().take(40).collect::<String>());
        }
    }
}
