//! Finds the functions to which calls are passed on.

use crate::runtime::scratch::ScratchMemory;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Not searched yet.
const UNKNOWN: usize = 0;
/// Searched, and not found.
const ABSENT: usize = 1;

/// A library, identified by a symbol that no other library has, including ours.
pub(crate) struct InterposedLibrary {
    symbol: &'static CStr,
    handle: AtomicUsize,
}

/// The C library of MPI.
pub(crate) static MPI: InterposedLibrary = InterposedLibrary::with(c"PMPI_Init");
/// The Fortran library of MPI, for `mpif.h` and `use mpi`.
pub(crate) static MPI_FORTRAN: InterposedLibrary = InterposedLibrary::with(c"mpi_initialized_");
/// The Fortran library of MPI for `use mpi_f08`.
pub(crate) static MPI_FORTRAN_2008: InterposedLibrary = InterposedLibrary::with(c"mpi_initialized_f08_");
/// RCCL, or NCCL.
pub(crate) static RCCL: InterposedLibrary = InterposedLibrary::with(c"ncclGetVersion");

/// Checks that a literal ends in a zero byte, and returns it as a name for the loader.
pub(crate) const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// A function of another library, which is searched at its first use.
pub(crate) struct RealFunction {
    name: &'static CStr,
    /// A loaded library to search if the libraries after ours lack the function. It may be hidden from the
    /// global scope.
    fallback: Option<&'static InterposedLibrary>,
    address: AtomicUsize,
}

impl RealFunction {
    /// Names the function.
    pub(crate) const fn new(
        name: &'static CStr,
        fallback: Option<&'static InterposedLibrary>,
    ) -> RealFunction {
        RealFunction { name, fallback, address: AtomicUsize::new(UNKNOWN) }
    }

    /// Returns its address.
    #[inline]
    pub(crate) fn address(&self) -> Option<usize> {
        match self.address.load(Acquire) {
            UNKNOWN => self.look_up(),
            ABSENT => None,
            address => Some(address),
        }
    }

    /// Searches the function now. If it is not found, its first use searches again.
    pub(crate) fn search(&self) {
        // SAFETY: as in `look_up`.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        self.address.store(address, Release);
        if address == 0 {
            // SAFETY: no arguments; forgets the error message of our failed search.
            unsafe { libc::dlerror() };
        }
    }

    #[cold]
    fn look_up(&self) -> Option<usize> {
        let _errno = crate::runtime::errno::PreservedErrno::new();
        if self.fallback.is_none() && is_as_loaded() {
            self.address.store(ABSENT, Release);
            return None;
        }
        // SAFETY: a valid name; RTLD_NEXT looks behind the library that holds this code, which glibc knows
        // by the return address.
        let mut address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        // A library may be loaded later, so the absence of a function is stored only if its library is
        // loaded.
        let mut absent = true;
        if address == 0
            && let Some(library) = self.fallback
        {
            (address, absent) = library.find(self.name).map_or((0, false), |address| (address, true));
        }
        match address {
            0 => {
                if absent {
                    self.address.store(ABSENT, Release);
                }
                // SAFETY: no arguments; forgets the error message of our failed search.
                unsafe { libc::dlerror() };
                None
            }
            found => {
                match self.fallback {
                    Some(library) => library.remember(found),
                    None => pin_library(found),
                }
                self.address.store(found, Release);
                Some(found)
            }
        }
    }
}

/// Number of objects that the loader had loaded when our constructor ran, 0 before that.
static LOADED: AtomicU64 = AtomicU64::new(0);

/// The constructor has searched functions without a fallback. They are not searched again,
/// which would allocate, unless an object was loaded since.
pub(crate) fn prepare() {
    LOADED.store(loaded(), Release);
}

fn is_as_loaded() -> bool {
    let before = LOADED.load(Acquire);
    before != 0 && before == loaded()
}

/// Returns the number of objects that the loader has ever loaded.
fn loaded() -> u64 {
    let mut objects = 0u64;
    // SAFETY: the callback gets `objects` back, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(count_loaded), (&raw mut objects).cast()) };
    objects
}

unsafe extern "C" fn count_loaded(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    objects: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a valid description, of glibc 2.4 at least, which has this field, and
    // `loaded` passes its number.
    unsafe { objects.cast::<u64>().write((*info).dlpi_adds) };
    1
}

/// Returns the address of a variable of a library. A program that is not position independent has a copy of
/// the variable, which every library uses. So this searches in the program's order, from the first object.
pub(crate) fn variable(name: &'static CStr, library: &InterposedLibrary) -> Option<usize> {
    let _errno = crate::runtime::errno::PreservedErrno::new();
    // SAFETY: a valid name.
    let address = match unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize {
        0 => library.find(name).unwrap_or(0),
        found => found,
    };
    if address == 0 {
        // SAFETY: no arguments; forgets the error message of our failed search.
        unsafe { libc::dlerror() };
    }
    (address != 0).then_some(address)
}

impl InterposedLibrary {
    const fn with(symbol: &'static CStr) -> InterposedLibrary {
        InterposedLibrary { symbol, handle: AtomicUsize::new(UNKNOWN) }
    }

    /// Returns the address of a symbol, 0 if the library lacks it; `None` without the library.
    fn find(&self, name: &CStr) -> Option<usize> {
        let library = self.handle()?;
        // SAFETY: a valid name, and a handle that dlopen returned and that is never closed.
        Some(unsafe { libc::dlsym(library as *mut libc::c_void, name.as_ptr()) } as usize)
    }

    /// Returns a handle of the object that exports the symbol, whatever its file name.
    fn handle(&self) -> Option<usize> {
        match self.handle.load(Acquire) {
            UNKNOWN => {}
            library => return Some(library),
        }
        let mut scratch = ScratchMemory::new(NAMES_BYTES)?;
        let mut objects = Objects { names: scratch.bytes(), used: 0 };
        // SAFETY: the callback gets `objects` back, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(collect_name), (&raw mut objects).cast()) };
        let names = objects.names.get(..objects.used).unwrap_or_default();
        for name in names.split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            if let Some(library) = self.open_if(name) {
                self.handle.store(library, Release);
                return Some(library);
            }
        }
        None
    }

    /// Keeps the library loaded before an address in it is stored.
    fn remember(&self, address: usize) {
        if self.handle.load(Acquire) == UNKNOWN
            && let Some(library) = object_of(address).and_then(|name| self.open_if(name))
        {
            self.handle.store(library, Release);
        }
    }

    /// Opens a loaded object again, and keeps it, if it or one of its dependencies exports the symbol.
    fn open_if(&self, name: &CStr) -> Option<usize> {
        // SAFETY: RTLD_NOLOAD only returns a handle to what is loaded already; closed if not stored.
        unsafe {
            let library = libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if library.is_null() {
                libc::dlerror();
                return None;
            }
            if libc::dlsym(library, self.symbol.as_ptr()).is_null() {
                libc::dlerror();
                libc::dlclose(library);
                return None;
            }
            Some(library as usize)
        }
    }
}

/// Returns the loader's path of the object that contains an address. The object stays loaded, since the
/// program is about to call a function in it.
fn object_of<'a>(address: usize) -> Option<&'a CStr> {
    // SAFETY: Dl_info is plain data, for which all zeros are valid. It is filled in if the result is not
    // 0, and the name is there as long as the object is.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(address as *const libc::c_void, &raw mut info) != 0;
        (found && !info.dli_fname.is_null()).then(|| CStr::from_ptr(info.dli_fname))
    }
}

/// Keeps an object loaded.
fn pin_library(address: usize) {
    let Some(name) = object_of(address) else { return };
    // SAFETY: a valid name. RTLD_NOLOAD loads nothing; the handle is not needed, as the object stays.
    let pinned =
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    if pinned.is_null() {
        // SAFETY: no arguments; forgets the error message.
        unsafe { libc::dlerror() };
    }
}

/// Memory for the paths of the loaded objects.
const NAMES_BYTES: usize = 1 << 20;

struct Objects<'a> {
    names: &'a mut [u8],
    used: usize,
}

/// Stores a path. The loader is locked during the walk, so the object is opened later.
unsafe extern "C" fn collect_name(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    objects: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a valid description, and its name stays there as long as the object is
    // loaded, and `InterposedLibrary::handle` passes its `Objects`, which it does not use meanwhile.
    let (name, objects) = unsafe {
        let name = (*info).dlpi_name;
        if name.is_null() || ptr::read(name) == 0 {
            return 0;
        }
        (CStr::from_ptr(name).to_bytes_with_nul(), &mut *objects.cast::<Objects<'_>>())
    };
    let end = objects.used + name.len();
    if let Some(room) = objects.names.get_mut(objects.used..end) {
        room.copy_from_slice(name);
        objects.used = end;
    }
    0
}
