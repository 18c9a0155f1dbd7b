use std::collections::HashMap;
use std::rc::Rc;

/// Texts by their interning ids.
pub(super) type InternedTexts = HashMap<u64, Rc<[u8]>>;
