//! Serves the files of a trace on loopback to Perfetto's UI in the user's browser, until Ctrl-C.
//!
//! Any user of this machine can connect, so the path contains a secret. The page of the UI may read the answers,
//! other pages may not.

use super::open::{TraceFile, WrittenTrace, counted_files, is_plain};
use super::rank_order::{UI, startup_commands};
use rpd_console::Failure;
use rpd_files::open_input;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// See [`WrittenTrace::PERFETTO_PORT`].
const PERFETTO_PORT: u16 = WrittenTrace::PERFETTO_PORT;
/// The only origin with scripts that may read the answers.
const ORIGIN: &str = UI;
/// Folder of the short addresses that lead to the UI.
const OPEN: &str = "open/";
/// Maximum size of a request, bytes.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// Maximum number of requests that are answered at once.
const MAX_REQUESTS: usize = 16;
/// Maximum time for receiving a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for which a client may accept no bytes.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves the files of a trace until Ctrl-C or SIGTERM. Port 0 selects a free port.
pub(super) fn serve(trace: &WrittenTrace, port: u16, ssh: &str) -> Result<(), Failure> {
    if let Some(name) = trace.names().find(|name| !is_plain(name)) {
        let why =
            "an address has only letters, digits and . _ - + , = @; rename it, or write the trace again";
        return Err(Failure::usage(format!("{name:?} cannot be served: {why}")));
    }
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))
            .map_err(|error| serve_failure("be stopped", &error))?;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
        Failure::usage(format!(
            "port {port} of 127.0.0.1 cannot be served at ({error}); choose another one, as --serve=9002, and see it \
             through ssh -L {PERFETTO_PORT}:127.0.0.1:9002 {ssh}"
        ))
    })?;
    let port = listener.local_addr().map_err(|error| serve_failure("listen", &error))?.port();
    let site = Arc::new(Site {
        secret: secret().map_err(|error| serve_failure("make a secret", &error))?,
        trace: trace.clone(),
    });
    eprint!("{}", site.instructions(port, ssh));
    site.answer_all(&listener, &stopped);
    eprintln!("no longer serving");
    Ok(())
}

fn serve_failure(what: &str, error: &io::Error) -> Failure {
    Failure::output(format!("--serve cannot {what} ({error}); copy the files instead"))
}

/// Returns 128 random bits as hexadecimal digits.
fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The served trace.
struct Site {
    secret: String,
    trace: WrittenTrace,
}

impl Site {
    fn instructions(&self, port: u16, ssh: &str) -> String {
        let address = |file: &TraceFile| match startup_commands([&*file.ranks]) {
            None => self.page(file),
            // The commands are long, so the server adds them.
            Some(_) => format!("http://127.0.0.1:{PERFETTO_PORT}/{}/{OPEN}{}", self.secret, file.name),
        };
        let files = counted_files(self.trace.files.len());
        let mut text = format!("serving {files} at 127.0.0.1:{port} until Ctrl-C; open in a browser\n");
        text += &self.trace.table(address);
        text += &format!(
            "if the browser is on another machine, first there: ssh -L {PERFETTO_PORT}:127.0.0.1:{port} {ssh}\n"
        );
        if port != PERFETTO_PORT {
            text += &format!(
                "the page may fetch from port {PERFETTO_PORT} only: on this machine, too, that ssh (to localhost) is needed\n"
            );
        }
        text
    }

    /// Returns the address at which the UI opens a file.
    fn page(&self, file: &TraceFile) -> String {
        let page = format!("{ORIGIN}/#!/?url=http://127.0.0.1:{PERFETTO_PORT}/{}/{}", self.secret, file.name);
        match startup_commands([&*file.ranks]) {
            None => page,
            Some(commands) => format!("{page}&startupCommands={commands}"),
        }
    }

    /// Answers requests, several at once, until `stopped` is set.
    fn answer_all(self: &Arc<Site>, listener: &TcpListener, stopped: &AtomicBool) {
        while !stopped.load(Ordering::Relaxed) {
            let timeout = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
            // A signal ends the wait.
            if !matches!(poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout)), Ok(1..)) {
                continue;
            }
            let Ok((stream, _)) = listener.accept() else { continue };
            // Each thread that answers a request holds the site.
            if Arc::strong_count(self) > MAX_REQUESTS {
                continue;
            }
            let site = Arc::clone(self);
            let answering = thread::Builder::new().spawn(move || {
                // A client that disconnects, or a file that was removed, is not a failure of the server.
                let _ = site.answer(stream);
            });
            // If no thread can be started, the connection is closed.
            drop(answering);
        }
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let head = read_head(&mut stream)?;
        match self.find(&head) {
            Answer::Refuse(status) => respond(&mut stream, status, 0, ""),
            Answer::Allow => {
                let more = "Access-Control-Allow-Methods: GET, HEAD, OPTIONS\r\n\
                    Access-Control-Allow-Private-Network: true\r\nAccess-Control-Max-Age: 600\r\n";
                respond(&mut stream, "204 No Content", 0, more)
            }
            Answer::Redirect(page) => respond(
                &mut stream,
                "302 Found",
                0,
                &format!("Location: {page}\r\nReferrer-Policy: no-referrer\r\n"),
            ),
            Answer::File { name, body } => {
                let Ok(file) = open_input(&self.trace.folder.join(name)) else {
                    return respond(&mut stream, "404 Not Found", 0, "");
                };
                let length = file.metadata()?.len();
                respond(&mut stream, "200 OK", length, "Content-Type: application/octet-stream\r\n")?;
                if body {
                    // Bytes that are appended meanwhile are not sent.
                    io::copy(&mut file.take(length), &mut stream)?;
                }
                Ok(())
            }
        }
    }

    /// Returns the answer to a request.
    fn find(&self, head: &[u8]) -> Answer<'_> {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let mut words = std::str::from_utf8(line).unwrap_or_default().split(' ');
        let (Some(method), Some(path), Some("HTTP/1.1" | "HTTP/1.0"), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Answer::Refuse("400 Bad Request");
        };
        if !matches!(method, "GET" | "HEAD" | "OPTIONS") {
            return Answer::Refuse("405 Method Not Allowed");
        }
        let named = path.strip_prefix('/').and_then(|path| path.split_once('/'));
        let named = named.filter(|(secret, _)| is_same(secret.as_bytes(), self.secret.as_bytes()));
        let opened = named.and_then(|(_, name)| {
            let name = name.strip_prefix(OPEN)?;
            self.trace.files.iter().find(|file| file.name == name)
        });
        if let Some(file) = opened {
            return Answer::Redirect(self.page(file));
        }
        match named.and_then(|(_, name)| self.trace.names().find(|known| *known == name)) {
            // Without the secret, a client cannot discover names.
            None => Answer::Refuse("404 Not Found"),
            Some(_) if method == "OPTIONS" => Answer::Allow,
            Some(name) => Answer::File { name, body: method == "GET" },
        }
    }
}

/// The answer to a request.
#[derive(PartialEq, Eq, Debug)]
enum Answer<'a> {
    Refuse(&'static str),
    /// Lists the allowed methods.
    Allow,
    /// Leads to this address.
    Redirect(String),
    File {
        name: &'a str,
        body: bool,
    },
}

/// Compares in constant time, so that the time does not reveal where the two differ.
fn is_same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Reads a request up to its empty line.
fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + REQUEST_TIMEOUT;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() >= MAX_REQUEST_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(piece.get(..read).unwrap_or_default());
    }
    Ok(head)
}

fn respond(stream: &mut TcpStream, status: &str, length: u64, more: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nAccess-Control-Allow-Origin: {ORIGIN}\r\nVary: Origin\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::open::TraceFile;
    use std::fs;
    use std::net::Shutdown;

    const NAME: &str = "trace.pftrace.gz";
    const BYTES: &[u8] = b"\x1f\x8b packets";

    /// Serves a trace in a folder with other files while `check` runs with the port and the secret.
    fn served(check: impl FnOnce(u16, &str)) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), BYTES).unwrap();
        fs::write(folder.path().join("trace.db"), "private").unwrap();
        let file = TraceFile { name: NAME.to_owned(), times: None, ranks: "0,3".to_owned() };
        let trace = WrittenTrace { folder: folder.path().to_path_buf(), files: vec![file], has_index: false };
        let site = Arc::new(Site { secret: secret().unwrap(), trace });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stopped = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| site.answer_all(&listener, &stopped));
            let checked =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(port, &site.secret)));
            stopped.store(true, Ordering::Relaxed);
            checked.unwrap();
        });
    }

    /// Returns the answer, up to the end of the connection.
    fn exchange(port: u16, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may reject the request before all of it is sent.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    fn ask(port: u16, method: &str, path: &str) -> (String, Vec<u8>) {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: {ORIGIN}\r\n\r\n");
        let answer = exchange(port, request.as_bytes());
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let (head, body) = answer.split_at(end);
        (String::from_utf8(head.to_vec()).unwrap(), body.to_vec())
    }

    #[test]
    fn a_client_with_the_secret_gets_the_files() {
        served(|port, secret| {
            let path = format!("/{secret}/{NAME}");
            let (head, body) = ask(port, "GET", &path);
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert!(head.contains(&format!("Content-Length: {}\r\n", BYTES.len())), "{head}");
            assert!(head.contains("Access-Control-Allow-Origin: https://ui.perfetto.dev\r\n"), "{head}");
            assert_eq!(body, BYTES);
            let (head, body) = ask(port, "HEAD", &path);
            assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head}");
            let (head, body) = ask(port, "OPTIONS", &path);
            assert!(head.starts_with("HTTP/1.1 204 ") && body.is_empty(), "{head}");
            assert!(head.contains("Access-Control-Allow-Private-Network: true\r\n"), "{head}");
        });
    }

    #[test]
    fn a_short_address_leads_to_the_ui_with_the_ranks_in_order() {
        served(|port, secret| {
            let (head, body) = ask(port, "GET", &format!("/{secret}/{OPEN}{NAME}"));
            assert!(head.starts_with("HTTP/1.1 302 ") && body.is_empty(), "{head}");
            let page =
                format!("{ORIGIN}/#!/?url=http://127.0.0.1:{PERFETTO_PORT}/{secret}/{NAME}&startupCommands=");
            assert!(head.contains(&format!("\r\nLocation: {page}%5B")), "{head}");
            assert!(head.find("rank%200%20") < head.find("rank%203%20"), "{head}");
        });
    }

    #[test]
    fn no_client_gets_anything_else() {
        served(|port, secret| {
            let other = "0".repeat(secret.len());
            for path in [
                "/".to_owned(),
                format!("/{NAME}"),
                format!("/{other}/{NAME}"),
                format!("/{}/{NAME}", &secret[1..]),
                format!("/{secret}/"),
                format!("/{secret}/trace.db"),
                format!("/{secret}/./{NAME}"),
                format!("/{secret}/../{secret}/{NAME}"),
                format!("/{secret}/{NAME}/"),
                format!("/{secret}/{NAME}?x"),
                format!("/{other}/{OPEN}{NAME}"),
                format!("/{secret}/{OPEN}trace.db"),
                format!("/{secret}/{OPEN}"),
                "/status".to_owned(),
            ] {
                for method in ["GET", "HEAD", "OPTIONS"] {
                    let (head, body) = ask(port, method, &path);
                    assert!(head.starts_with("HTTP/1.1 404 ") && body.is_empty(), "{method} {path}: {head}");
                }
            }
            let path = format!("/{secret}/{NAME}");
            for method in ["POST", "PUT", "DELETE", "get", "GETGET"] {
                assert!(ask(port, method, &path).0.starts_with("HTTP/1.1 405 "), "{method}");
            }
            for request in ["GET\r\n\r\n", "\r\n\r\n", "GET /a b HTTP/1.1\r\n\r\n", "GET / HTTP/2\r\n\r\n"] {
                assert!(exchange(port, request.as_bytes()).starts_with(b"HTTP/1.1 400 "), "{request}");
            }
            // An oversized or incomplete request is not answered.
            assert_eq!(exchange(port, format!("GET {path} HTTP/1.1\r\n").as_bytes()), b"");
            assert_eq!(exchange(port, &[b'a'; 3 * MAX_REQUEST_BYTES]), b"");
        });
    }

    #[test]
    fn idle_clients_block_no_others_for_long() {
        served(|port, secret| {
            let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let waiting: Vec<TcpStream> = (0..MAX_REQUESTS).map(|_| connect()).collect();
            let until = Instant::now() + 4 * REQUEST_TIMEOUT;
            loop {
                let answer = exchange(port, format!("GET /{secret}/{NAME} HTTP/1.1\r\n\r\n").as_bytes());
                if answer.ends_with(BYTES) {
                    break;
                }
                assert!(Instant::now() < until, "silent clients keep others out");
                thread::sleep(Duration::from_millis(100));
            }
            drop(waiting);
        });
    }
}
