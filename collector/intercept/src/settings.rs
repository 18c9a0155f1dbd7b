//! What the collector says in the environment, noted down once at load time: later the program may
//! change its environment while we would read it.

use rpd_ring::layout;
use std::sync::OnceLock;

/// How to reach the collector.
pub(crate) struct Settings {
    /// Address of its socket.
    pub(crate) address: libc::sockaddr_un,
    /// Bytes of the address in use.
    pub(crate) address_bytes: libc::socklen_t,
    /// Bytes of a ring.
    pub(crate) ring_bytes: usize,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// Reads the settings. Called once, by the constructor.
pub(crate) fn read() {
    let settings = variable(c"RPD_SOCKET").and_then(address).map(|(address, address_bytes)| {
        let wanted = variable(c"RPD_RING_BYTES")
            .and_then(|v| std::str::from_utf8(v).ok()?.parse().ok())
            .unwrap_or(layout::RING_DEFAULT);
        Settings { address, address_bytes, ring_bytes: layout::ring_bytes(wanted) }
    });
    if let Some(settings) = settings {
        // Only the constructor sets it, so it cannot be set already.
        let _ = SETTINGS.set(settings);
    }
}

/// The settings; none outside of rpd-collect, and before the constructor has run.
#[inline]
pub(crate) fn get() -> Option<&'static Settings> {
    SETTINGS.get()
}

fn variable(name: &std::ffi::CStr) -> Option<&'static [u8]> {
    // SAFETY: the constructor runs before the program can change its environment, and the bytes are
    // used up before it returns.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| std::ffi::CStr::from_ptr(value).to_bytes())
    }
}

/// An abstract address from its name, `@` standing for the leading zero byte.
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
