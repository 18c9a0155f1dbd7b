//! `rpd-collect`: see the library.

fn main() {
    let arguments: Vec<_> = std::env::args_os().collect();
    rpd_collect::run(&arguments)
}
