//! The collector's settings from the environment, read once at load time: later the program may change its
//! environment during the read.

use rpd_ring::layout;
use rpd_ring::message::{
    MEMORY_VARIABLE, RING_VARIABLE, SOCKET_VARIABLE, TICKS_VARIABLE, TRACE_VARIABLE, TRACED, TRACER_VARIABLE,
};
use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// Address of the collector, and what it wants.
pub(crate) struct TraceSettings {
    /// Address of its socket.
    pub(crate) address: libc::sockaddr_un,
    /// Bytes of the address in use.
    pub(crate) address_bytes: libc::socklen_t,
    /// Maximum number of bytes of a ring.
    pub(crate) ring_bytes: usize,
    /// Maximum number of bytes of all rings of a process.
    pub(crate) memory: usize,
    /// Time namespace in which times may be ticks.
    pub(crate) ticks_namespace: Option<u64>,
    /// Process id of the collector, if it needs permission to read the memory of this process.
    pub(crate) tracer: Option<usize>,
    /// Bits of [`TracedApi`] that are recorded.
    traced: u8,
}

/// APIs that can be recorded, as bits.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum TracedApi {
    Roctx = 1,
    Mpi = 2,
    Rccl = 4,
}

static SETTINGS: OnceLock<TraceSettings> = OnceLock::new();
/// Bits of the APIs that are recorded now: none before the settings are known, and none while the program has
/// paused recording.
static GATE: AtomicU8 = AtomicU8::new(0);

/// Reads the settings. Called once, by the constructor.
pub(crate) fn read() {
    let Some((address, address_bytes)) = variable(SOCKET_VARIABLE).and_then(address) else { return };
    let ring_bytes = number(RING_VARIABLE).unwrap_or(layout::DEFAULT_RING_BYTES);
    let settings = TraceSettings {
        address,
        address_bytes,
        ring_bytes: layout::ring_bytes(ring_bytes),
        memory: number(MEMORY_VARIABLE).unwrap_or(layout::DEFAULT_MEMORY_BYTES),
        ticks_namespace: number(TICKS_VARIABLE).map(|inode| inode as u64),
        tracer: number(TRACER_VARIABLE),
        traced: variable(TRACE_VARIABLE).map_or(u8::MAX, traced),
    };
    GATE.store(settings.traced, Relaxed);
    // Only the constructor sets it, so it cannot be set already.
    let _ = SETTINGS.set(settings);
}

/// Returns the settings; `None` outside of rpd-collect, and before the constructor has run.
#[inline]
pub(crate) fn get() -> Option<&'static TraceSettings> {
    SETTINGS.get()
}

/// Whether this is to be recorded, paused or not.
#[inline]
pub(crate) fn is_traced(api: TracedApi) -> bool {
    get().is_some_and(|settings| settings.traced & api as u8 != 0)
}

/// Whether this is recorded now.
#[inline(always)]
pub(crate) fn is_open(api: TracedApi) -> bool {
    GATE.load(Relaxed) & api as u8 != 0
}

/// Pauses or resumes recording in this process.
pub(crate) fn pause(paused: bool) {
    let traced = get().map_or(0, |settings| settings.traced);
    GATE.store(if paused { 0 } else { traced }, Relaxed);
}

fn variable(name: &str) -> Option<&'static [u8]> {
    let mut place = [0u8; 32];
    place.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    let name = CStr::from_bytes_until_nul(&place).ok()?;
    // SAFETY: the constructor runs before `main`, with one thread, so nobody changes the environment, and
    // the bytes are used up before it returns.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

fn number(name: &str) -> Option<usize> {
    std::str::from_utf8(variable(name)?).ok()?.parse().ok()
}

/// Returns the bits of a list of words.
fn traced(words: &[u8]) -> u8 {
    let bits = [TracedApi::Roctx, TracedApi::Mpi, TracedApi::Rccl];
    let known = TRACED.iter().zip(bits);
    words
        .split(|byte| *byte == b',')
        .filter_map(|word| known.clone().find(|(name, _)| name.as_bytes() == word))
        .fold(0, |all, (_, bit)| all | bit as u8)
}

/// Converts a name to an abstract address. `@` represents the leading zero byte.
fn address(name: &[u8]) -> Option<(libc::sockaddr_un, libc::socklen_t)> {
    let rest = name.strip_prefix(b"@")?;
    // SAFETY: sockaddr_un is plain data, for which all zeros are valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let place = address.sun_path.get_mut(1..=rest.len())?;
    for (to, from) in place.iter_mut().zip(rest) {
        *to = *from as libc::c_char;
    }
    let bytes = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + rest.len();
    Some((address, bytes as libc::socklen_t))
}
