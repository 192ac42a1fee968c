//! A web server for images, with the faults of real ones: connections that break, that hang,
//! files that come late.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub(crate) struct Web {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    files: Mutex<BTreeMap<String, File>>,
    /// First bytes of the ranges that were asked for, in order.
    asked: Mutex<Vec<u64>>,
    gate: Mutex<bool>,
    opened: Condvar,
}

#[derive(Clone)]
struct File {
    content: Arc<Vec<u8>>,
    fault: Fault,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Every connection breaks after so many bytes.
    Breaks(usize),
    /// The server cannot go on in the middle.
    BreaksWithoutRanges(usize),
    /// After so many bytes there is silence until [`Web::open`].
    Hangs(usize),
    /// Name and password are asked for, `user` and `word`.
    Locked,
}

impl Web {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    pub(crate) fn put(&self, name: &str, content: Vec<u8>, fault: Fault) {
        let file = File { content: Arc::new(content), fault };
        self.state.files.lock().unwrap().insert(format!("/{name}"), file);
    }

    /// Ends the silence.
    pub(crate) fn open(&self) {
        *self.state.gate.lock().unwrap() = true;
        self.state.opened.notify_all();
    }

    pub(crate) fn asked(&self) -> Vec<u64> {
        self.state.asked.lock().unwrap().clone()
    }
}

/// One request per connection. It ends when the client stops reading.
fn serve(mut stream: TcpStream, state: &State) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    let asked = lines.next()?.split(' ').nth(1)?.to_owned();
    // A proxy is asked for the whole URL.
    let path = match asked.strip_prefix("http://").and_then(|rest| rest.split_once('/')) {
        Some((_, path)) => format!("/{path}"),
        None => asked,
    };
    let headers: Vec<String> =
        lines.take_while(|line| !line.is_empty()).map(|line| line.to_lowercase()).collect();
    let header = |name: &str| headers.iter().find_map(|line| line.strip_prefix(name));
    if let Some(place) = path.strip_prefix("/moved/") {
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: /{place}\r\nContent-Length: 0\r\n");
        return write!(stream, "{answer}Connection: close\r\n\r\n").ok();
    }
    let file = state.files.lock().unwrap().get(&path).cloned();
    let Some(File { content, fault }) = file else {
        let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        return stream.write_all(answer.as_bytes()).ok();
    };
    // "user:word"
    if fault == Fault::Locked && header("authorization: basic ") != Some("dxnlcjp3b3jk") {
        let answer = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        return stream.write_all(answer.as_bytes()).ok();
    }
    let from = header("range: bytes=").and_then(|range| range.trim_end_matches('-').parse().ok());
    let from = from.filter(|_| !matches!(fault, Fault::BreaksWithoutRanges(_)));
    state.asked.lock().unwrap().push(from.unwrap_or(0));
    let (start, all) = (usize::try_from(from.unwrap_or(0)).ok()?, content.len());
    let rest = content.get(start..)?;
    let status = match from {
        Some(_) => format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{all}", all - 1),
        None => "200 OK".to_owned(),
    };
    let length = rest.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: \"one\"\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    match fault {
        Fault::Breaks(most) => stream.write_all(&rest[..most.min(length)]).ok(),
        // Each time it comes a little further.
        Fault::BreaksWithoutRanges(most) => {
            let times = state.asked.lock().unwrap().len();
            stream.write_all(&rest[..(most * times).min(length)]).ok()
        }
        Fault::Hangs(most) if most < length => {
            stream.write_all(&rest[..most]).ok()?;
            let gate = state.gate.lock().unwrap();
            drop(state.opened.wait_while(gate, |open| !*open).unwrap());
            stream.write_all(&rest[most..]).ok()
        }
        Fault::None | Fault::Locked | Fault::Hangs(_) => stream.write_all(rest).ok(),
    }
}
