//! SQLite databases by their pages: finished leaf pages out, leaf pages in.
