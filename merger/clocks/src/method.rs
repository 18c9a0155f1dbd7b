use serde::{Deserialize, Serialize};

/// How a domain was connected to the reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlignMethod {
    /// The domain of the reference node; its times are unchanged.
    Reference,
    /// Probes and collectives together.
    Fusion,
    /// Probes between nodes.
    Probes,
    /// Exits of collectives.
    Collectives,
    /// Offsets that a site measured itself, see `--clock-file`.
    ClockFile,
    /// Offset between REALTIME and BOOTTIME on both nodes.
    RealtimeAnchors,
    /// Not aligned, because there is no clock set or no connection, or because `--align none` asks for it; times are
    /// unchanged.
    #[default]
    None,
}

impl AlignMethod {
    /// Returns the name in reports and metadata.
    pub fn name(self) -> &'static str {
        match self {
            AlignMethod::Reference => "reference",
            AlignMethod::Fusion => "fusion",
            AlignMethod::Probes => "probes",
            AlignMethod::Collectives => "collectives",
            AlignMethod::ClockFile => "clock_file",
            AlignMethod::RealtimeAnchors => "realtime_anchors",
            AlignMethod::None => "none",
        }
    }
}
