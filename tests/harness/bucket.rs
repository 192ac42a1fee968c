//! A small S3 server in memory: whole objects, lists with prefixes, and a gate that holds writes
//! of blocks back. It trusts every client that names the right key, and checks no signature.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use jiff::Timestamp;

pub(crate) const KEY: &str = "test-access-key";
pub(crate) const BUCKET: &str = "backups";

pub(crate) struct Bucket {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    objects: Mutex<BTreeMap<String, Stored>>,
    /// Keys of blocks in the order in which they were written.
    written: Mutex<Vec<String>>,
    /// How many more blocks are taken before writes wait.
    allowance: Mutex<Option<usize>>,
    opened: Condvar,
}

#[derive(Clone)]
struct Stored {
    content: Vec<u8>,
    modified: Timestamp,
}

impl Bucket {
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

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes so many blocks and lets writes of further ones wait; nothing: all are taken.
    pub(crate) fn allow(&self, blocks: Option<usize>) {
        *self.state.allowance.lock().unwrap() = blocks;
        self.state.opened.notify_all();
    }

    /// The blocks that were written since this was last asked.
    pub(crate) fn take_written(&self) -> Vec<String> {
        std::mem::take(&mut self.state.written.lock().unwrap())
    }

    pub(crate) fn written(&self) -> usize {
        self.state.written.lock().unwrap().len()
    }

    pub(crate) fn keys(&self, part: &str) -> Vec<String> {
        let objects = self.state.objects.lock().unwrap();
        objects.keys().filter(|key| key.contains(part)).cloned().collect()
    }

    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.state.objects.lock().unwrap().get(key).map(|own| own.content.clone())
    }
}

/// One request per connection.
fn serve(mut stream: TcpStream, state: &State) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let mut parts = first.split(' ');
    let (method, target) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let (mut length, mut signed) = (0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().ok()?;
        }
        signed |= line.starts_with("authorization: ") && line.contains(KEY);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let path = decode(path);
    let (bucket, key) = path.trim_start_matches('/').split_once('/').unwrap_or((&path[1..], ""));
    let is_head = method == "HEAD";
    let mut modified = Timestamp::now();
    let (status, content) = match (signed && bucket == BUCKET, method.as_str()) {
        (false, _) => ("403 Forbidden", b"<Error><Code>InvalidAccessKeyId</Code></Error>".to_vec()),
        (true, "PUT") => {
            put(state, key, body);
            ("200 OK", Vec::new())
        }
        (true, "DELETE") => {
            state.objects.lock().unwrap().remove(key);
            ("204 No Content", Vec::new())
        }
        (true, _) if key.is_empty() => ("200 OK", list(state, query)),
        (true, _) => match state.objects.lock().unwrap().get(key) {
            Some(stored) => {
                modified = stored.modified;
                ("200 OK", stored.content.clone())
            }
            None => ("404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
        },
    };
    let modified = modified.strftime("%a, %d %b %Y %H:%M:%S GMT");
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"one\"\r\nLast-Modified: {modified}\r\n\
         Connection: close\r\n\r\n",
        content.len()
    )
    .ok()?;
    if is_head { Some(()) } else { stream.write_all(&content).ok() }
}

fn put(state: &State, key: &str, body: Vec<u8>) {
    if key.ends_with(".blk") {
        let allowance = state.allowance.lock().unwrap();
        let mut allowance = state.opened.wait_while(allowance, |left| *left == Some(0)).unwrap();
        if let Some(left) = allowance.as_mut() {
            *left -= 1;
        }
        state.written.lock().unwrap().push(key.to_owned());
    }
    let stored = Stored { content: body, modified: Timestamp::now() };
    state.objects.lock().unwrap().insert(key.to_owned(), stored);
}

fn list(state: &State, query: &str) -> Vec<u8> {
    let parameter = |name: &str| {
        let pair = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        decode(pair.unwrap_or_default())
    };
    let (prefix, delimiter) = (parameter("prefix"), parameter("delimiter"));
    let mut xml = String::from("<ListBucketResult>");
    let mut folders = std::collections::BTreeSet::new();
    for (key, stored) in &*state.objects.lock().unwrap() {
        let Some(rest) = key.strip_prefix(&prefix) else { continue };
        match rest.split_once('/') {
            Some((folder, _)) if delimiter == "/" => {
                folders.insert(format!("{prefix}{folder}/"));
            }
            _ => {
                let size = stored.content.len();
                let _ = write!(
                    xml,
                    "<Contents><Key>{key}</Key><Size>{size}</Size><ETag>one</ETag>\
                     <LastModified>{}</LastModified></Contents>",
                    stored.modified.strftime("%Y-%m-%dT%H:%M:%SZ")
                );
            }
        }
    }
    for folder in folders {
        let _ = write!(xml, "<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>");
    }
    xml.push_str("</ListBucketResult>");
    xml.into_bytes()
}

fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
